package outbox

import "context"

const (
	notifyAlone  = 8   // connections told at once up to which each is left to its own goroutine
	notifyChunk  = 16  // connections that a notifier takes at a time
	notifyQueued = 256 // such chunks that wait; what is beyond is left to the connections
)

// Notifiers write what one change has told many connections: a few goroutines that go
// from socket to socket, instead of one to be woken for each, whose stack and state are
// in no cache. They never wait for a client: what a socket does not take at once is its
// connection's to write.
type Notifiers struct {
	work chan []*Outbox
}

// NewNotifiers returns a queue that [Notifiers.Run] works on.
func NewNotifiers() Notifiers { return Notifiers{work: make(chan []*Outbox, notifyQueued)} }

// Tell has what is queued in the outboxes written. It waits for nothing, and keeps told.
func (n Notifiers) Tell(told []*Outbox) {
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
	for _, o := range told {
		o.Nudge()
	}
}

// Run is one notifier; several may run.
func (n Notifiers) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case chunk := <-n.work:
			for _, o := range chunk {
				o.flushNow()
			}
		}
	}
}
