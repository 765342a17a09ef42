package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// Replay hands every archived event from sequence `from` to `until` (0: the last one) to
// handle, in order. wanted names contexts, none: all. Events of other contexts come as an
// empty one of their context, which changes nothing but the sequence of a view that does
// not fold them; Data is the original only of events stored in binary. An event of the
// context znode, with all its messages, belongs to handle only until it returns: later
// ones are decoded into the same memory. Strings and data may be kept. It returns the
// sequence to go on from.
func (a *Archive) Replay(ctx context.Context, from, until uint64, wanted []string, handle func(events.Recorded) error) (next uint64, err error) {
	var w want
	if len(wanted) > 0 {
		w = func(c string) bool { return slices.Contains(wanted, c) }
	}
	return a.replay(ctx, from, until, w, false, func(r *events.Recorded) error { return handle(*r) })
}

// errEnough ends a replay that has reached its end.
var errEnough = errors.New("enough")

func (a *Archive) replay(ctx context.Context, from, until uint64, w want, originals bool, handle func(*events.Recorded) error) (next uint64, err error) {
	from = max(from, 1)
	next = from
	segments := a.covering(from)
	if len(segments) == 0 {
		return next, nil
	}
	if first := segments[0].First; first > from {
		return next, fmt.Errorf("archive: %w: it begins at sequence %d, %d was asked for", bus.ErrTrimmed, first, from)
	}
	for _, s := range segments {
		err := s.blocks(ctx, next, w, originals, func(r *events.Recorded) error {
			if until > 0 && r.Seq > until {
				return errEnough
			}
			if err := handle(r); err != nil {
				return err
			}
			next = r.Seq + 1
			return nil
		})
		if errors.Is(err, errEnough) {
			return next, nil
		}
		if err != nil {
			return next, fmt.Errorf("archive: %s: %w", s.path, err)
		}
	}
	return next, nil
}

// blocks hands on the segment's events from sequence `from` on. The next block is read
// and decoded while this one is handled. Of originals nothing is used again: whoever
// follows the log may keep its events.
func (s segment) blocks(ctx context.Context, from uint64, w want, originals bool, handle func(*events.Recorded) error) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	i, found := slices.BinarySearchFunc(s.Blocks, from, func(b Block, seq uint64) int { return cmp.Compare(b.First, seq) })
	if !found && i > 0 {
		i--
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type decoded struct {
		*batch
		err error
	}
	ahead := make(chan chan decoded, 2)
	go func() {
		defer close(ahead)
		for _, b := range s.Blocks[i:] {
			one := make(chan decoded, 1)
			select {
			case ahead <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				t := new(batch)
				if !originals {
					t = batches.Get().(*batch)
				}
				one <- decoded{t, b.read(f, from, w, originals, t)}
			}()
		}
	}()
	var failed error
	for one := range ahead { // to its end, so that nobody reads f any more
		d := <-one
		if failed == nil {
			if failed = cmp.Or(d.err, ctx.Err()); failed == nil {
				failed = each(d.records, handle)
			}
			if failed != nil {
				cancel()
			}
		}
		if !originals {
			batches.Put(d.batch)
		}
	}
	return failed
}

func each(records []events.Recorded, handle func(*events.Recorded) error) error {
	for i := range records {
		if err := handle(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

// read decodes the block's records from sequence `from` on into t.
func (b Block) read(f *os.File, from uint64, w want, originals bool, t *batch) error {
	payload, err := readFrame(f, b.Offset)
	if err != nil {
		return err
	}
	var raw []byte
	if originals {
		if raw, err = unpack(f, b.Raw); err != nil {
			return err
		}
	}
	return t.decode(payload, raw, from, w)
}

// batches are those whose records have been handled.
var batches = sync.Pool{New: func() any { return new(batch) }}

// Log is upstream with the archive before it: what upstream has trimmed is read from the
// archive, and so is the beginning of every long replay.
func (a *Archive) Log(upstream bus.Log) bus.Log { return archived{upstream, a} }

type archived struct {
	bus.Log
	a *Archive
}

// covers says whether the archive holds seq, also when it was archived a moment ago.
func (l archived) covers(seq uint64) (bool, error) {
	if first, last := l.a.Span(); seq >= first && seq <= last {
		return true, nil
	}
	if err := l.a.Refresh(); err != nil {
		return false, err
	}
	first, last := l.a.Span()
	return seq >= first && seq <= last, nil
}

// Replay is Archive.Replay, once upstream is known to be the log that was archived.
func (l archived) Replay(ctx context.Context, from, until uint64, contexts []string, handle func(events.Recorded) error) (next uint64, err error) {
	from = max(from, 1)
	if ok, err := l.covers(from); err != nil || !ok {
		return from, err
	}
	if err := l.a.Check(ctx, l.Log); err != nil {
		return from, err
	}
	return l.a.Replay(ctx, from, until, contexts, handle)
}

// Follow replays what is archived and goes on with upstream. Where that was trimmed
// meanwhile, the archive holds more by then.
func (l archived) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	from = max(from, 1)
	var failed error // handle's own
	pass := func(r events.Recorded) error {
		if failed = handle(r); failed == nil {
			from = r.Seq + 1
		}
		return failed
	}
	for {
		began := from
		ok, err := l.covers(from)
		if err != nil {
			return err
		}
		if ok {
			if err := l.a.Check(ctx, l.Log); err != nil {
				return err
			}
			if from, err = l.a.replay(ctx, from, until, nil, true, func(r *events.Recorded) error { return handle(*r) }); err != nil {
				return err
			}
			if until > 0 && from > until {
				return nil
			}
		}
		err = l.Log.Follow(ctx, from, until, pass)
		if failed != nil || !errors.Is(err, bus.ErrTrimmed) || from == began {
			return err
		}
	}
}

func (l archived) Get(ctx context.Context, seq uint64) (events.Recorded, error) {
	r, err := l.Log.Get(ctx, seq)
	if seq == 0 || !errors.Is(err, bus.ErrNotFound) {
		return r, err
	}
	if ok, cerr := l.covers(seq); cerr != nil || !ok {
		return r, errors.Join(err, cerr)
	}
	_, err = l.a.replay(ctx, seq, seq, nil, true, func(found *events.Recorded) error { r = *found; return nil })
	return r, err
}

// Span is the oldest sequence that can be read and the last one.
func (l archived) Span(ctx context.Context) (first, last uint64, err error) {
	first, last = 1, 0
	if t, ok := l.Log.(bus.Trimmer); ok {
		first, last, err = t.Span(ctx)
	} else {
		last, err = l.Last(ctx)
	}
	if err != nil || first <= 1 {
		return first, last, err
	}
	ok, err := l.covers(first - 1)
	if begin, _ := l.a.Span(); ok {
		first = begin
	}
	return first, last, err
}

// Cut is upstream's.
func (l archived) Cut(ctx context.Context) (bus.Cut, error) { return cutOf(ctx, l.Log) }

// SeqAt looks into the archive where that holds an event behind t: upstream may have
// forgotten what was stored by then, and names the last one forgotten.
func (l archived) SeqAt(ctx context.Context, t time.Time) (uint64, error) {
	seq, err := l.Log.SeqAt(ctx, t)
	if err != nil {
		return seq, err
	}
	if err := l.a.Refresh(); err != nil {
		return 0, err
	}
	segments := l.a.Segments()
	i := slices.IndexFunc(segments, func(f Footer) bool { return f.Ended.After(t) })
	if i < 0 {
		return seq, nil
	}
	found := segments[i].First - 1
	_, err = l.a.replay(ctx, segments[i].First, segments[i].Last, func(string) bool { return false }, false, func(r *events.Recorded) error {
		if r.Time.After(t) {
			return errEnough
		}
		found = r.Seq
		return nil
	})
	return found, err
}
