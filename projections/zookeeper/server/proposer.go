package server

import (
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
)

// Proposer takes the writes of clients and the facts of their sessions to the log.
type Proposer interface {
	// Propose queues e, whose strings must be UTF-8, and keeps it. Proposals reach the
	// log in the order of the calls, those of one session also where some of them are
	// commands to another service. It blocks while the queue is full, so it must not be
	// called under the tree's lock.
	//
	// Writes to paths that belong to a service become commands, and Propose returns when
	// that service has answered, within a few seconds.
	//
	// done is called exactly once. From the fold that decided e, under the tree's write
	// lock and after every hook that was set on the tree before the proposer's own, so
	// after the server's watches have fired: zxid is e's sequence. Or by Propose itself,
	// with the answer to a command: zxid is where the tree stands. Or with err: nothing is known of e, or
	// it will never happen; the connection must be closed, which its client sees as
	// ConnectionLoss. done must not block and must not call Propose.
	Propose(e *znode.Event, done func(zxid uint64, o *tree.Outcome, err error))

	// Touch says that the session's client was heard of now. Sessions that nobody
	// touches for their time-out are proposed as expired. It does not block.
	Touch(session int64)

	// Writable says whether this process may write now; while another registry has the
	// writer's lease, proposals fail at once.
	Writable() bool
}
