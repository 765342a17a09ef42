package follow_test

import (
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
)

// Whoever works on each change of a view is not called for what other contexts and other
// namespaces store, and whoever waits for a sequence is.
func TestChangedIsOfTheViewsOwnEvents(t *testing.T) {
	b := mem.New()
	defer b.Close()
	lost := func(bzid string) uint64 {
		t.Helper()
		seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(bzid, "replica", "m/ps:0/0"), Expect: bus.Any,
			Event: &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "gone"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return seqs[0]
	}
	f := follow.New(b.Log(), registry.Catalog.Only("demo"), follow.Options{})
	start(t, f)
	wait.Closed(t, "ready", f.Ready())
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	changed := f.Changed()
	for _, seq := range []uint64{lost("demo"), add(t, b.Log(), "other", "m", 1), lost("other")} {
		if err := f.Wait(ctx, seq); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			t.Fatalf("event %d changed demo's catalog", seq)
		default:
		}
	}
	add(t, b.Log(), "demo", "m", 2)
	wait.Closed(t, "changed", changed)

	// Nor is the view of all namespaces changed by other contexts.
	whole := follow.New(b.Log(), registry.Catalog, follow.Options{})
	start(t, whole)
	wait.Closed(t, "ready", whole.Ready())
	changed = whole.Changed()
	if err := whole.Wait(ctx, lost("demo")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("an event of another context changed the catalog")
	default:
	}
	add(t, b.Log(), "other", "m", 3)
	wait.Closed(t, "changed", changed)

	// A view whose contexts are not named may change by any event of its namespace.
	v := registry.Catalog.Only("demo")
	v.Contexts = nil
	any := follow.New(b.Log(), v, follow.Options{})
	start(t, any)
	wait.Closed(t, "ready", any.Ready())
	changed = any.Changed()
	if err := any.Wait(ctx, lost("other")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("an event of another namespace changed demo's view")
	default:
	}
	lost("demo")
	wait.Closed(t, "changed", changed)
}

// The hash of a state that can be frozen holds up neither the fold nor readers, and those
// who ask for it meanwhile share the next one.
func TestHashOfAFrozenStateHoldsUpNobody(t *testing.T) {
	b := mem.New()
	defer b.Close()
	first := add(t, b.Log(), "demo", "m", 0)
	var folds, frozen atomic.Int64
	held, begun := make(chan struct{}), make(chan struct{}, 1)
	v := tallies(&folds, nil)
	v.Freeze = func(s tally) func(io.Writer) error {
		frozen.Add(1)
		return func(w io.Writer) error {
			begun <- struct{}{}
			<-held
			data, err := json.Marshal(s)
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		}
	}
	f := follow.New(b.Log(), v, follow.Options{})
	start(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := f.Wait(ctx, first); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		seq  uint64
		hash string
	}
	answers := make(chan answer, 8)
	ask := func() { seq, hash := f.Hash(); answers <- answer{seq, hash} }
	go ask()
	wait.Closed(t, "the first hash", begun)
	last := add(t, b.Log(), "demo", "m", 1)
	if err := f.Wait(ctx, last); err != nil { // it would wait for ever if the hash held up the fold
		t.Fatal(err)
	}
	f.Read(func(s tally) {
		if s.N != 2 {
			t.Errorf("read %d while a hash is taken", s.N)
		}
	})
	for range cap(answers) - 1 {
		go ask()
	}
	go func() { <-begun }()
	close(held)
	at := map[uint64]int{}
	for range cap(answers) {
		a := <-answers
		at[a.seq]++
		want, err := hashOf(tally{N: int(a.seq)})
		if err != nil || a.hash != want {
			t.Errorf("at %d: %s, want %s, %v", a.seq, a.hash, want, err)
		}
	}
	if at[first] < 1 || frozen.Load() > 2 {
		t.Errorf("%d copies were taken for the answers %v, want 2 at most", frozen.Load(), at)
	}
}
