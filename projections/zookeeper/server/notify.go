package server

import "context"

const (
	notifyAlone  = 8   // connections told at once up to which each is left to its own goroutine
	notifyChunk  = 16  // connections that a notifier takes at a time
	notifyQueued = 256 // such chunks that wait; what is beyond is left to the connections
)

// notifiers write what one change has told many connections: a few goroutines that go
// from socket to socket, instead of one to be woken for each, whose stack and state are
// in no cache. They never wait for a client: what a socket does not take at once is its
// connection's to write.
type notifiers struct {
	work chan []*conn
}

func newNotifiers() notifiers { return notifiers{work: make(chan []*conn, notifyQueued)} }

// tell has what is queued for the connections written. It runs in the fold and keeps told.
func (n notifiers) tell(told []*conn) {
	if len(told) > notifyAlone {
		for len(told) > 0 {
			chunk := told[:min(notifyChunk, len(told))]
			select {
			case n.work <- chunk:
				told = told[len(chunk):]
				continue
			default:
			}
			break
		}
	}
	for _, c := range told {
		c.out.nudge()
	}
}

// run is one notifier.
func (n notifiers) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case chunk := <-n.work:
			for _, c := range chunk {
				c.out.flushNow()
			}
		}
	}
}
