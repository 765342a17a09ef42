package follow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
)

// A snapshot goes on while everything behind it is there, whether or not its own event is.
func TestSnapshotOfATrimmedLog(t *testing.T) {
	for _, tc := range []struct {
		name   string
		later  int // events behind the snapshot, whose sequence is 10
		before uint64
		ok     bool
	}{
		{"idle, trimmed to the end", 0, 11, true},
		{"trimmed right behind it", 5, 11, true},
		{"an event behind it is gone", 5, 12, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := mem.New()
			defer b.Close()
			dir := t.TempDir()
			for i := range 10 {
				add(t, b.Log(), "demo", "m", i)
			}
			once(t, b.Log(), dir, registry.Catalog, nil)
			for i := range tc.later {
				add(t, b.Log(), "demo", "m", i)
			}
			want, err := follow.Replay(t.Context(), b.Log(), registry.Catalog, follow.End)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Log().(bus.Trimmer).Trim(t.Context(), tc.before); err != nil {
				t.Fatal(err)
			}
			if !tc.ok {
				f := follow.New(b.Log(), registry.Catalog, follow.Options{SnapshotDir: dir})
				if err := f.Run(t.Context()); !errors.Is(err, bus.ErrTrimmed) {
					t.Errorf("Run = %v", err)
				}
				return
			}
			from, _, hash := once(t, b.Log(), dir, registry.Catalog, nil)
			if wanted, err := hashOf(want); from != 11 || hash != wanted || err != nil {
				t.Errorf("from %d: %s, want from 11: %s, %v", from, hash, wanted, err)
			}
		})
	}
}

// The event in front of the cut proves which log a snapshot is of, like one that is there.
func TestSnapshotOfAnotherTrimmedLog(t *testing.T) {
	logs := [2]bus.Log{}
	for i := range logs {
		b := mem.New()
		defer b.Close()
		logs[i] = b.Log()
		for n := range 10 {
			add(t, logs[i], "demo", "m", n)
		}
	}
	dir := t.TempDir()
	once(t, logs[0], dir, registry.Catalog, nil)
	add(t, logs[1], "demo", "m", 10)
	if err := logs[1].(bus.Trimmer).Trim(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	f := follow.New(logs[1], registry.Catalog, follow.Options{SnapshotDir: dir})
	if err := f.Run(t.Context()); !errors.Is(err, bus.ErrTrimmed) || f.Seq() != 0 {
		t.Errorf("Run = %v at %d: the snapshot of another log was taken", err, f.Seq())
	}
}

// altered is a log whose events stand as another log would have them.
type altered struct {
	bus.Log
	alter func(*events.Recorded)
}

func (a altered) Get(ctx context.Context, seq uint64) (events.Recorded, error) {
	r, err := a.Log.Get(ctx, seq)
	a.alter(&r)
	return r, err
}

// An event of another id, or of another time, is another event: the log is not the one that
// the snapshot was taken of.
func TestSnapshotOfAnotherEvent(t *testing.T) {
	b := mem.New()
	defer b.Close()
	add(t, b.Log(), "demo", "m", 1)
	for _, tc := range []struct {
		name  string
		alter func(*events.Recorded)
		from  uint64
	}{
		{"the same", func(*events.Recorded) {}, 2},
		{"another id", func(r *events.Recorded) { r.Header.ID = "another" }, 1},
		{"another time", func(r *events.Recorded) { r.Time = r.Time.Add(1) }, 1},
	} {
		dir := t.TempDir()
		once(t, b.Log(), dir, registry.Catalog, nil)
		var logged bytes.Buffer
		if from, _, _ := once(t, altered{b.Log(), tc.alter}, dir, registry.Catalog, &logged); from != tc.from {
			t.Errorf("%s: from %d, want %d: %s", tc.name, from, tc.from, &logged)
		}
		if tc.from == 2 && strings.Contains(logged.String(), "WARN") {
			t.Errorf("%s: %s", tc.name, &logged)
		}
	}
}

// archived is a log with an archive of the events up to held.
type archived struct {
	bus.Log
	held     uint64
	err      error
	followed []uint64
}

func (a *archived) Replay(ctx context.Context, from, until uint64, _ []string, handle func(events.Recorded) error) (uint64, error) {
	if a.err != nil {
		return from, a.err
	}
	end := a.held
	if until > 0 {
		end = min(end, until)
	}
	return end + 1, a.Log.Follow(ctx, from, end, handle)
}

func (a *archived) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	a.followed = append(a.followed, from, until)
	return a.Log.Follow(ctx, from, until, handle)
}

// A replay asks the server for no more than its archive does not hold.
func TestReplayGoesOnBehindTheArchive(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for i := range 10 {
		add(t, b.Log(), "demo", "m", i)
	}
	for _, tc := range []struct {
		until    uint64
		followed string
	}{{4, "[]"}, {5, "[]"}, {6, "[6 6]"}, {10, "[6 10]"}} {
		a := &archived{Log: b.Log(), held: 5}
		s, err := follow.Replay(t.Context(), bus.Log(a), registry.Catalog, tc.until)
		if err != nil || s.Seq != tc.until || fmt.Sprint(a.followed) != tc.followed {
			t.Errorf("until %d: at %d, %v; the server was asked for %v, want %s", tc.until, s.Seq, err, a.followed, tc.followed)
		}
	}
	a := &archived{Log: b.Log(), held: 5}
	f := follow.New(bus.Log(a), registry.Catalog, follow.Options{})
	stop := start(t, f)
	wait.Closed(t, "ready", f.Ready())
	if err := stop(); err != nil || f.Seq() != 10 || fmt.Sprint(a.followed) != "[6 0]" {
		t.Errorf("a follower stands at %d, %v; the server was asked for %v", f.Seq(), err, a.followed)
	}
	broken := &archived{Log: b.Log(), err: bus.ErrTrimmed}
	if _, err := follow.Replay(t.Context(), bus.Log(broken), registry.Catalog, follow.End); !errors.Is(err, bus.ErrTrimmed) || len(broken.followed) != 0 {
		t.Errorf("an archive that fails: %v, and the server was asked for %v", err, broken.followed)
	}
}

// busy is a log that does not answer for a moment.
type busy struct{ bus.Log }

func (busy) Get(context.Context, uint64) (events.Recorded, error) {
	return events.Recorded{}, bus.ErrUnavailable
}

// A log that does not answer is no reason to throw a snapshot away: the replay that it
// saves may not be possible any more.
func TestSnapshotIsKeptWhenTheLogDoesNotAnswer(t *testing.T) {
	b := mem.New()
	defer b.Close()
	dir := t.TempDir()
	add(t, b.Log(), "demo", "m", 1)
	once(t, b.Log(), dir, registry.Catalog, nil)
	f := follow.New(bus.Log(busy{b.Log()}), registry.Catalog, follow.Options{SnapshotDir: dir})
	if err := f.Run(t.Context()); !bus.Retryable(err) {
		t.Errorf("Run = %v", err)
	}
	var logged bytes.Buffer
	if from, _, _ := once(t, b.Log(), dir, registry.Catalog, &logged); from != 2 || strings.Contains(logged.String(), "ignored") {
		t.Errorf("from %d: %s", from, &logged)
	}
}
