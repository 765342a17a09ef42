package follow_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// noted counts events, and keeps a list of the counts at which snapshots were taken.
type noted struct {
	n  int
	at *[]int
}

func (s noted) MarshalJSON() ([]byte, error) {
	*s.at = append(*s.at, s.n)
	return json.Marshal(s.n)
}

func (s *noted) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &s.n) }

// Snapshots are taken after so many events, counted from the last one, which may be of
// another run, and at the end of a run that has folded anything.
func TestWhenSnapshotsAreTaken(t *testing.T) {
	b := mem.New()
	defer b.Close()
	var at []int
	v := follow.View[noted]{
		Name: "noted", Version: 1, New: func() noted { return noted{at: &at} },
		Fold: func(s noted, _ events.Recorded) noted { s.n++; return s },
	}
	dir := t.TempDir()
	for _, tc := range []struct {
		events int
		want   []int
	}{{10, []int{4, 8, 10}}, {0, nil}, {3, []int{13}}, {9, []int{17, 21, 22}}, {4, []int{26}}, {0, nil}} {
		at = nil
		for i := range tc.events {
			add(t, b.Log(), "demo", "m", i)
		}
		f := follow.New(b.Log(), v, follow.Options{SnapshotDir: dir, SnapshotEvery: 4})
		stop := start(t, f)
		wait.Closed(t, "ready", f.Ready())
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(at, tc.want) {
			t.Errorf("after %d more events: snapshots at %v, want %v", tc.events, at, tc.want)
		}
	}
}

// stuttering is a log that hands each event on twice, and behind it all that were before.
type stuttering struct{ bus.Log }

func (l stuttering) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	var all []events.Recorded
	return l.Log.Follow(ctx, from, until, func(r events.Recorded) error {
		all = append(all, r, r)
		for _, r := range slices.Backward(all) {
			if err := handle(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// An event that comes again is folded once, the newest one too.
func TestRedeliveredEventsAreFoldedOnce(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for i := range 5 {
		add(t, b.Log(), "demo", "m", i)
	}
	var at []int
	v := follow.View[noted]{
		Name: "noted", Version: 1, New: func() noted { return noted{at: &at} },
		Fold: func(s noted, _ events.Recorded) noted { s.n++; return s },
	}
	f := follow.New(bus.Log(stuttering{b.Log()}), v, follow.Options{})
	var seen []uint64
	f.OnEvent(func(_ noted, r events.Recorded) { seen = append(seen, r.Seq) })
	stop := start(t, f)
	wait.Closed(t, "ready", f.Ready())
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("folded were %v", seen)
	}
	f.Read(func(s noted) {
		if s.n != 5 {
			t.Errorf("%d events were folded, want 5", s.n)
		}
	})
}
