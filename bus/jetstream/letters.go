package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// letters is the dead-letter stream. Every refused message has a subject of its own,
// and so at most one letter however often and however late it is parked; that it was
// re-driven is a message beside it.
type letters struct{ b *Bus }

// put publishes and, when the server is away, again.
func (l letters) put(ctx context.Context, m *nats.Msg) (a *ack, err error) {
	ctx, cancel := l.b.bound(ctx)
	defer cancel()
	err = l.b.retry(ctx, func(ctx context.Context) error {
		a, err = l.b.request(ctx, m)
		var api *apiError
		if errors.As(err, &api) {
			return api.sentinel()
		}
		return err
	})
	return a, err
}

func (l letters) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	data, err := wire.EncodeLetter(p)
	if err != nil {
		return 0, err
	}
	subject := wire.LetterSubject(l.b.cfg.BZID, p)
	a, err := l.put(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		wire.MsgID:       {fmt.Sprintf("%s-%d", p.Stream, p.StreamSeq)},
		wire.ContentType: {wire.JSON},
		expectHeader:     {"0"},
	}})
	if errors.Is(err, bus.ErrConflict) {
		seq, err := l.b.lastOf(ctx, wire.LetterStream, subject)
		if err == nil && seq == 0 {
			err = fmt.Errorf("%w: the stream has a letter on %s and does not show it", bus.ErrUnavailable, subject)
		}
		return seq, err
	}
	if err != nil {
		return 0, fmt.Errorf("park %s %d: %w", p.Stream, p.StreamSeq, err)
	}
	return a.Seq, nil
}

func (l letters) List(ctx context.Context) ([]bus.Parked, error) {
	_, last, err := l.b.span(ctx, wire.LetterStream)
	if err != nil || last == 0 {
		return nil, err
	}
	filter := wire.LetterRoot + ".>"
	if l.b.cfg.BZID != "" {
		filter = wire.LetterRoot + "." + events.Escape(l.b.cfg.BZID) + ".>"
	}
	var out []bus.Parked
	at := map[string]int{} // letter's subject → place in out
	f := follower{b: l.b, stream: wire.LetterStream, filters: []string{filter}, until: last, handle: func(m *stored) error {
		if letter, mark := wire.IsMark(m.subject); mark {
			if i, ok := at[letter]; ok {
				out[i].Redriven = true
			}
			return nil
		}
		p, err := letter(m)
		if err != nil {
			return err
		}
		at[m.subject] = len(out)
		out = append(out, p)
		return nil
	}}
	if err := f.run(ctx, 1); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return out, nil
}

func letter(m *stored) (bus.Parked, error) {
	p, err := wire.DecodeLetter(m.data)
	p.Seq, p.Time = m.seq, m.at
	return p, err
}

// show also says on which subject the letter stands.
func (l letters) show(ctx context.Context, seq uint64) (bus.Parked, string, error) {
	if seq == 0 {
		return bus.Parked{}, "", fmt.Errorf("dead letter 0: %w; the first is 1", bus.ErrNotFound)
	}
	m, err := l.b.direct(ctx, wire.LetterStream, query{Seq: seq})
	if err != nil {
		return bus.Parked{}, "", fmt.Errorf("dead letter %d: %w", seq, err)
	}
	if _, mark := wire.IsMark(m.subject); mark {
		return bus.Parked{}, "", fmt.Errorf("dead letter %d: %w: that is the mark of another one", seq, bus.ErrNotFound)
	}
	p, err := letter(m)
	if err != nil {
		return bus.Parked{}, "", err
	}
	marked, err := l.b.lastOf(ctx, wire.LetterStream, wire.MarkSubject(m.subject))
	p.Redriven = marked > 0
	return p, m.subject, err
}

func (l letters) Show(ctx context.Context, seq uint64) (bus.Parked, error) {
	p, _, err := l.show(ctx, seq)
	return p, err
}

// Redrive publishes under an id that follows from the letter, so that a second attempt
// after a crash between publish and mark stores nothing twice.
func (l letters) Redrive(ctx context.Context, seq uint64, data []byte) (uint64, error) {
	p, subject, err := l.show(ctx, seq)
	if err != nil {
		return 0, err
	}
	if p.Redriven {
		return 0, fmt.Errorf("%w: letter %d has been re-driven before", bus.ErrConflict, seq)
	}
	header, data, err := wire.Redrive(p, fmt.Sprintf("redrive-%d", seq), data)
	if err != nil {
		return 0, err
	}
	if len(data) > wire.MaxEvent {
		return 0, fmt.Errorf("re-drive letter %d: %w: %d bytes", seq, bus.ErrTooLarge, len(data))
	}
	a, err := l.put(ctx, &nats.Msg{Subject: p.Subject, Header: header, Data: data})
	if err != nil {
		return 0, fmt.Errorf("re-drive letter %d: %w", seq, err)
	}
	mark, err := json.Marshal(wire.Mark{Letter: seq, Seq: a.Seq})
	if err != nil {
		return 0, err
	}
	_, err = l.put(ctx, &nats.Msg{Subject: wire.MarkSubject(subject), Data: mark, Header: nats.Header{
		wire.ContentType: {wire.JSON},
		expectHeader:     {"0"},
	}})
	if err != nil && !errors.Is(err, bus.ErrConflict) {
		return a.Seq, fmt.Errorf("letter %d is re-driven as %d, but not marked so: %w", seq, a.Seq, err)
	}
	return a.Seq, nil
}
