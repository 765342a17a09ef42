package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/durable"
)

// WriterOptions are all optional.
type WriterOptions struct {
	Events uint64        // that end a segment; default 1,000,000
	Bytes  int64         // the same by size; default 256 MiB
	Age    time.Duration // the same by the time its first event waits; default 1 h
	Log    *slog.Logger  // nil: nothing is logged
}

func (o WriterOptions) withDefaults() WriterOptions {
	if o.Events == 0 {
		o.Events = 1_000_000
	}
	if o.Bytes == 0 {
		o.Bytes = 256 << 20
	}
	if o.Age == 0 {
		o.Age = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// errSeal ends the following of the log for a segment to be sealed.
var errSeal = errors.New("the segment is full")

// Write archives the log from where the archive ends up to the sequence until, 0: for
// ever, and seals what it has when it reaches it or ctx ends. A crash loses the segment
// at hand, which the log still holds. The log must be the one that was archived before.
func (a *Archive) Write(ctx context.Context, log bus.Log, until uint64, o WriterOptions) error {
	o = o.withDefaults()
	unlock, err := lock(a.dir)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer unlock()
	if err := a.Refresh(); err != nil { // what another writer has added
		return err
	}
	if err := a.Check(ctx, log); err != nil {
		return err
	}
	if err := sweep(a.dir); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for {
		_, last := a.Span()
		if until > 0 && last >= until {
			return nil
		}
		err := a.writeOne(ctx, log, last+1, until, o)
		switch {
		case errors.Is(err, errSeal):
		case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			return nil
		case errors.Is(err, bus.ErrTrimmed):
			return fmt.Errorf("archive: %s ends at sequence %d and lacks what the log has forgotten since: go on in the archive behind which it was trimmed: %w", a.dir, last, err)
		case err != nil:
			return fmt.Errorf("archive: %w", err)
		}
	}
}

// writeOne writes one segment.
func (a *Archive) writeOne(ctx context.Context, log bus.Log, from, until uint64, o WriterOptions) error {
	f, err := create(a.dir)
	if err != nil {
		return err
	}
	aged, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var timer *time.Timer
	var broken error
	err = log.Follow(aged, from, until, func(r events.Recorded) error {
		if timer == nil {
			timer = time.AfterFunc(o.Age, func() { cancel(errSeal) })
		}
		if broken = f.add(r); broken != nil {
			return broken
		}
		if f.footer.Last-f.footer.First+1 >= o.Events || f.at >= o.Bytes {
			return errSeal
		}
		return nil
	})
	if timer != nil {
		timer.Stop()
	}
	if err != nil && errors.Is(context.Cause(aged), errSeal) && ctx.Err() == nil {
		err = errSeal
	}
	if broken != nil || f.footer.First == 0 {
		return errors.Join(err, f.abandon())
	}
	s, serr := f.seal()
	if serr != nil {
		return errors.Join(err, serr)
	}
	a.add(s)
	o.Log.Info("archive segment sealed", "file", s.path, "first", s.First, "last", s.Last)
	return err
}

// Check makes sure that log goes on where the archive ends.
func (a *Archive) Check(ctx context.Context, log bus.Log) error {
	s, ok := a.last()
	if !ok {
		return nil
	}
	end, err := log.Last(ctx)
	if err != nil {
		return fmt.Errorf("archive: find the end of the log: %w", err)
	}
	if end < s.Last {
		return fmt.Errorf("archive: it holds sequences up to %d, the log ends at %d: it is another log, or its disk lost data", s.Last, end)
	}
	r, err := log.Get(ctx, s.Last)
	id, at := r.Header.ID, r.Time
	if errors.Is(err, bus.ErrNotFound) { // trimmed
		var cut bus.Cut
		if cut, err = cutOf(ctx, log); err == nil && cut.Seq != s.Last {
			return nil // nobody knows what stood there
		}
		id, at = cut.ID, cut.Time
	}
	switch {
	case err != nil:
		return fmt.Errorf("archive: read the log at sequence %d: %w", s.Last, err)
	case id != s.LastID || !at.Equal(s.Ended):
		return fmt.Errorf("archive: the log holds another event at sequence %d: it is another log", s.Last)
	}
	return nil
}

// cutOf is what the log remembers of having been trimmed.
func cutOf(ctx context.Context, log bus.Log) (bus.Cut, error) {
	if t, ok := log.(bus.Trimmer); ok {
		return t.Cut(ctx)
	}
	return bus.Cut{}, nil
}

// lock makes sure that one process at a time writes into dir, until unlock is called or the
// process ends.
func lock(dir string) (unlock func(), err error) {
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(dir, "lock"))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if !got {
		return nil, fmt.Errorf("another process writes into %s: stop it, or leave the archive to it", dir)
	}
	return func() { _ = l.Close() }, nil // the lock goes with the file, whatever closing says
}

// sweep removes what crashed writers left.
func sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "unfinished-*.tmp"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
