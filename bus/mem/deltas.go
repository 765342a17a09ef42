package mem

import (
	"context"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
)

// deltas is the sync stream; nothing is discarded but by Trim.
type deltas struct{ s *stream }

func (d deltas) Publish(ctx context.Context, drafts ...bus.DeltaDraft) (uint64, error) {
	if len(drafts) == 0 {
		return d.s.last(ctx)
	}
	ready, err := wire.CheckDeltas(drafts)
	if err != nil {
		return 0, err
	}
	items := make([]item, len(ready))
	for i, r := range ready {
		items[i] = item{subject: r.Subject, id: r.ID, header: wire.DeltaHeader(r), data: r.Data, expect: r.Expect}
	}
	seqs, err := d.s.append(ctx, items)
	if err != nil {
		return 0, err
	}
	return seqs[len(seqs)-1], nil
}

func stored(m message) bus.StoredDelta {
	return wire.Delta(bus.StoredDelta{Seq: m.seq, Subject: m.subject, Time: m.at, Data: m.data}, m.header)
}

func (d deltas) Follow(ctx context.Context, from, until uint64, subjects []string, handle func(bus.StoredDelta) error) error {
	for _, f := range subjects {
		if err := wire.CheckSubject(f, true); err != nil {
			return err
		}
	}
	return d.s.follow(ctx, from, until, func(m message) error {
		if len(subjects) == 0 {
			return handle(stored(m))
		}
		for _, f := range subjects {
			if match(f, m.subject) {
				return handle(stored(m))
			}
		}
		return nil
	})
}

func (d deltas) First(ctx context.Context) (uint64, error) { return d.s.oldest(ctx) }

func (d deltas) Last(ctx context.Context) (uint64, error) { return d.s.last(ctx) }

func (d deltas) LastOf(ctx context.Context, subject string) (uint64, error) {
	return d.s.lastOfSubject(ctx, subject)
}

func (d deltas) Get(ctx context.Context, seq uint64) (bus.StoredDelta, error) {
	m, err := d.s.get(ctx, seq)
	if err != nil {
		return bus.StoredDelta{}, err
	}
	return stored(m), nil
}

// Trim drops everything before a sequence, as the stream does by itself when full.
func (d deltas) Trim(ctx context.Context, before uint64) error { return d.s.trim(ctx, before) }
