package jetstream

import (
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/asker"
	"github.com/monolith-go/monolith/events"
)

// sign has requests say who asks, for their owner to check. A request that a role passes on is the
// role's own: it has checked who asked of it, and nobody else's word counts.
func (b *Bus) sign(ready []wire.Ready) error {
	for i := range ready {
		r := &ready[i]
		if !events.Subject(r.Subject).IsRequest() {
			r.Header.Asked.Proof = "" // a fact's owner has checked it
			continue
		}
		a, err := b.asker.Sign(r.Subject, r.Data, time.Now())
		if err != nil {
			return err
		}
		r.Header.Asked = a
	}
	return nil
}

// Asked implements bus.Commands.
func (c commands) Asked(r events.Recorded) (events.Asked, error) {
	if !r.Subject.IsRequest() {
		return r.Header.Asked.Fact(), nil
	}
	return c.b.asker.Check(r.Header.Asked, string(r.Subject), r.Data, r.Time, asker.Logged)
}

// asked is who sends a command, refused where that must be known and is not. Heartbeats say no such
// thing: they are not a person's, and twice a second.
func (b *Bus) asked(subject string, headers map[string][]string, data []byte) (events.Asked, *bus.CommandError) {
	if strings.HasPrefix(subject, bus.PulseRoot+".") {
		return events.Asked{}, nil
	}
	a, err := b.asker.Check(wire.DecodeAsked(headers), subject, data, time.Now(), asker.Fresh)
	if err != nil {
		return a, &bus.CommandError{Code: bus.CodeForbidden, Message: err.Error()}
	}
	return a, nil
}
