package jetstream

import (
	"bytes"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// ownKept is how many appended events wait to come back.
const ownKept = 16

// own remembers the binary events that this process has on their way to the log, so that
// the tail need not decode what was encoded here a moment ago. Place, time and order come
// from the log; only the message object is our own, and only where the log holds the very
// bytes that it became. What is forgotten here is decoded as everything else.
type own struct {
	mu   sync.Mutex
	kept [ownKept]encoded
	next int
}

// encoded is an event and what it was encoded as.
type encoded struct {
	event   proto.Message // nil: nothing is kept here
	subject string
	id      string
	data    []byte
}

// keep is called before the drafts are sent: they may come back before they are acked.
func (o *own) keep(drafts []bus.Draft, ready []wire.Ready) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, r := range ready {
		if r.Binary {
			o.kept[o.next%ownKept] = encoded{drafts[i].Event, r.Subject, r.Header.ID, r.Data}
			o.next++
		}
	}
}

// take returns the event that r is, if it is one of ours, once.
func (o *own) take(r events.Recorded) proto.Message {
	if !r.Binary {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.kept {
		if e := &o.kept[i]; e.event != nil && e.id == r.Header.ID && e.subject == string(r.Subject) && bytes.Equal(e.data, r.Data) {
			m := e.event
			*e = encoded{}
			return m
		}
	}
	return nil
}

// clear forgets all: nobody reads the log's end.
func (o *own) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = [ownKept]encoded{}
}
