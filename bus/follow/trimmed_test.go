package follow_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
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
			if wanted, err := follow.HashOf(want); from != 11 || hash != wanted || err != nil {
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
