package writer

import "github.com/monolith-go/monolith/events/znode"

const (
	packFrom   = 9         // proposals from which on they share an event of the log
	packBytes  = 256 << 10 // of one such event, unless it is one proposal
	halvedFrom = 256       // proposals under way from which on they are stored in two halves
)

// coalesce chooses, of proposals that came at once, those that share one event of the log,
// and with it its fsync and its zxid. Nobody among them writes to a node that another one
// writes to, so that a node's states can be told apart by their zxids, as ZooKeeper's
// can. What would do so is left for later, and whatever its session has proposed behind
// it too: a session's order is kept, and between sessions there is none yet. What writes
// to nodes that it does not name, the end of a session, goes alone. Where there is little
// to share, all of the batch is stored in events of their own.
func coalesce(batch []*proposal) (events [][]*proposal, later []*proposal) {
	if len(batch) >= packFrom {
		in, later := batchable(batch)
		if len(in) >= packFrom {
			return [][]*proposal{in}, later
		}
	}
	for i := range batch {
		events = append(events, batch[i:i+1])
	}
	return events, nil
}

func batchable(batch []*proposal) (in, later []*proposal) {
	taken, held := make(map[string]struct{}, len(batch)), map[int64]struct{}{}
	size := 0
	for _, p := range batch {
		session, writes, names := subjectOf(p.event)
		if _, waits := held[session]; waits || !names || size+p.size > packBytes || conflicts(taken, writes) {
			later = append(later, p)
			held[session] = struct{}{}
			continue
		}
		for _, op := range writes {
			taken[op.Path()] = struct{}{}
		}
		in, size = append(in, p), size+p.size
	}
	return in, later
}

// subjectOf is whose event it is and what it writes to; names is false when it does not
// say.
func subjectOf(e *znode.Event) (session int64, writes []*znode.Op, names bool) {
	switch b := e.GetBody().(type) {
	case *znode.Event_SessionOpened:
		return b.SessionOpened.GetSession(), nil, true
	case *znode.Event_SessionClosed:
		return b.SessionClosed.GetSession(), nil, false
	case *znode.Event_Proposed:
		return b.Proposed.GetSession(), b.Proposed.GetOps(), true
	}
	return 0, nil, false
}

func conflicts(taken map[string]struct{}, writes []*znode.Op) bool {
	for _, op := range writes {
		if sequential(op) {
			continue
		}
		path := op.Path()
		if _, there := taken[path]; there {
			return true
		}
		// It may name, by guess, what a sequence among the others makes.
		if n := len(path) - digits; n > 0 && path[n] >= '0' && path[n] <= '9' {
			if _, there := taken[path[:n]]; there {
				return true
			}
		}
	}
	return false
}

// digits is how many a sequence has.
const digits = 10

// sequential says whether op makes a new node whatever its path.
func sequential(op *znode.Op) bool {
	switch op.GetCreate().GetMode() {
	case znode.Mode_PERSISTENT_SEQUENTIAL, znode.Mode_EPHEMERAL_SEQUENTIAL, znode.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL:
		return true
	}
	return false
}

// pack is the event that stands for the proposals: the only one's own, or all in one.
func pack(batch []*proposal) *znode.Event {
	if len(batch) == 1 {
		return batch[0].event
	}
	in := make([]*znode.Event, len(batch))
	for i, p := range batch {
		in[i] = p.event
	}
	return &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: in}}}
}

// atMost is how many proposals are stored at once when, of late, peak were undecided at a
// time, and so many wait behind the batch. Very many writers do better in two halves, one
// being stored while the other is folded, answered, and asks again.
func atMost(peak, queued int) int {
	if peak < halvedFrom {
		return batchEvents
	}
	return max((peak+1)/2, queued)
}
