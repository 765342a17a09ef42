package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
	"github.com/monolith-go/monolith/events"
)

// logStream is the control plane's stream.
type logStream struct{ b *Bus }

func (l logStream) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	ready, err := wire.Prepare(drafts)
	if err != nil {
		return nil, err
	}
	wire.Attribute(ready, bus.AskedOf(ctx))
	if err := l.b.sign(ready); err != nil {
		return nil, err
	}
	l.b.tail.expect(drafts, ready)
	msgs := make([]outgoing, len(ready))
	now := time.Now()
	for i, r := range ready {
		msgs[i] = outgoing{
			subject: r.Subject, id: r.Header.ID, header: r.Envelope(now), data: r.Data, expect: r.Expect,
		}
	}
	return l.commit(ctx, msgs)
}

func (l logStream) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	if until == 0 {
		return l.b.tail.follow(ctx, from, handle)
	}
	return l.follow(ctx, from, until, nil, handle)
}

// follow has a reading of its own; known is [wire.Record]'s.
func (l logStream) follow(ctx context.Context, from, until uint64, known func(events.Recorded) proto.Message, handle func(events.Recorded) error) error {
	all := stream.Reading{From: from, Until: until, Whole: true, Hint: l.whereTrimmed}
	return l.b.stream(wire.LogStream).Follow(ctx, all, func(m *stream.Message) error {
		return handle(wire.Record(m.Seq, m.Subject, m.Time, m.Header, m.Data, known))
	})
}

func record(m *stream.Message) events.Recorded {
	return wire.Record(m.Seq, m.Subject, m.Time, m.Header, m.Data, nil)
}

func (l logStream) Last(ctx context.Context) (uint64, error) {
	_, last, err := l.b.stream(wire.LogStream).Span(ctx)
	return last, err
}

func (l logStream) LastOf(ctx context.Context, subject events.Subject) (uint64, error) {
	seq, err := l.b.stream(wire.LogStream).LastOf(ctx, string(subject))
	if err == nil && seq == 0 {
		return l.trimmedLast(ctx, string(subject))
	}
	return seq, err
}

func (l logStream) Get(ctx context.Context, seq uint64) (events.Recorded, error) {
	if seq == 0 {
		return events.Recorded{}, fmt.Errorf("sequence 0: %w; the first is 1", bus.ErrNotFound)
	}
	m, err := l.b.stream(wire.LogStream).At(ctx, seq)
	if err != nil {
		return events.Recorded{}, fmt.Errorf("sequence %d: %w", seq, err)
	}
	return record(m), nil
}

func (l logStream) SeqAt(ctx context.Context, t time.Time) (uint64, error) {
	after := t.Add(1).UTC()
	m, err := l.b.stream(wire.LogStream).Ask(ctx, stream.Query{Start: &after})
	if errors.Is(err, bus.ErrNotFound) {
		return l.Last(ctx)
	}
	if err != nil {
		return 0, err
	}
	return m.Seq - 1, nil
}
