package mem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
)

// letters is the dead-letter stream, with marks as messages of their own.
type letters struct {
	bus    *Bus
	stream *stream
	mu     sync.Mutex // held while a letter is re-driven
}

func (l *letters) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	data, err := wire.EncodeLetter(p)
	if err != nil {
		return 0, err
	}
	subject := wire.LetterSubject("", p)
	seqs, err := l.stream.append(ctx, []item{{subject: subject, data: data}})
	if errors.Is(err, bus.ErrConflict) {
		return l.stream.lastOfSubject(ctx, subject) // parked before
	}
	if err != nil {
		return 0, err
	}
	return seqs[0], nil
}

func (l *letters) List(ctx context.Context) ([]bus.Parked, error) {
	last, err := l.stream.last(ctx)
	if err != nil || last == 0 {
		return nil, err
	}
	var out []bus.Parked
	err = l.stream.follow(ctx, 1, last, func(m message) error {
		if _, mark := wire.IsMark(m.subject); mark {
			return nil
		}
		p, err := l.Show(ctx, m.seq)
		out = append(out, p)
		return err
	})
	return out, err
}

func (l *letters) Show(ctx context.Context, seq uint64) (bus.Parked, error) {
	m, err := l.stream.get(ctx, seq)
	if err != nil {
		return bus.Parked{}, fmt.Errorf("dead letter: %w", err)
	}
	if _, mark := wire.IsMark(m.subject); mark {
		return bus.Parked{}, fmt.Errorf("dead letter: sequence %d: %w", seq, bus.ErrNotFound)
	}
	p, err := wire.DecodeLetter(m.data)
	if err != nil {
		return bus.Parked{}, err
	}
	marked, err := l.stream.lastOfSubject(ctx, wire.MarkSubject(m.subject))
	p.Seq, p.Time, p.Redriven = m.seq, m.at, marked > 0
	return p, err
}

func (l *letters) Redrive(ctx context.Context, seq uint64, data []byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.Show(ctx, seq)
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
	stored, err := l.bus.Publish(ctx, p.Subject, header, data)
	if err != nil {
		return 0, err
	}
	mark, err := json.Marshal(wire.Mark{Letter: seq, Seq: stored})
	if err != nil {
		return 0, err
	}
	_, err = l.stream.append(ctx, []item{{subject: wire.MarkSubject(wire.LetterSubject("", p)), data: mark}})
	return stored, err
}
