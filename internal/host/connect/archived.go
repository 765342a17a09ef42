package connect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/events"
)

// archivedBus is a bus whose log is read from an archive as far as that goes.
type archivedBus struct {
	bus.Bus
	log bus.Log
}

func (b archivedBus) Log() bus.Log { return b.log }

// untrimmed is a log that was whole, or without its archive, when it was dialled. Somebody
// may trim it while it is in use, another namespace's operator too: what it has forgotten
// is read from the archive that the trim was told, as one that is dialled later does.
type untrimmed struct {
	bus.Log
	find func(context.Context) (dir string) // "": there is no archive here

	mu   sync.Mutex
	full bus.Log // guarded by mu; nil: none was needed yet, or found
}

// archived is the log with its archive in front of it, nil as long as there is none.
func (l *untrimmed) archived(ctx context.Context) (bus.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full != nil {
		return l.full, nil
	}
	dir := l.find(ctx)
	if dir == "" {
		return nil, nil
	}
	a, err := archive.Open(dir)
	if err != nil {
		return nil, err
	}
	l.full = a.Log(l.Log)
	return l.full, nil
}

// Follow goes on in the archive where the log was trimmed.
func (l *untrimmed) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	var failed error // handle's own
	err := l.Log.Follow(ctx, from, until, func(r events.Recorded) error {
		if failed = handle(r); failed == nil {
			from = r.Seq + 1
		}
		return failed
	})
	if failed != nil || !errors.Is(err, bus.ErrTrimmed) {
		return err
	}
	full, ferr := l.archived(ctx)
	if full == nil {
		return errors.Join(err, ferr)
	}
	return full.Follow(ctx, from, until, handle)
}

func (l *untrimmed) Get(ctx context.Context, seq uint64) (events.Recorded, error) {
	r, err := l.Log.Get(ctx, seq)
	if seq == 0 || !errors.Is(err, bus.ErrNotFound) {
		return r, err
	}
	full, ferr := l.archived(ctx)
	if full == nil {
		return r, errors.Join(err, ferr)
	}
	return full.Get(ctx, seq)
}

// Span is the oldest sequence that can be read and the last one.
func (l *untrimmed) Span(ctx context.Context) (first, last uint64, err error) {
	first, last, err = l.Log.(bus.Trimmer).Span(ctx)
	if err != nil || first <= 1 {
		return first, last, err
	}
	full, err := l.archived(ctx)
	if full == nil {
		return first, last, err
	}
	return full.(interface {
		Span(context.Context) (uint64, uint64, error)
	}).Span(ctx)
}

// Cut is the log's.
func (l *untrimmed) Cut(ctx context.Context) (bus.Cut, error) { return l.Log.(bus.Trimmer).Cut(ctx) }

func (l *untrimmed) SeqAt(ctx context.Context, t time.Time) (uint64, error) {
	first, _, err := l.Log.(bus.Trimmer).Span(ctx)
	if err != nil {
		return 0, err
	}
	if first > 1 {
		full, err := l.archived(ctx)
		if full != nil || err != nil {
			if err != nil {
				return 0, err
			}
			return full.SeqAt(ctx, t)
		}
	}
	return l.Log.SeqAt(ctx, t)
}
