package shards

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// dense are the variables of a small model on the shards of the set.
func (w *setWorld) dense() *Dense {
	w.t.Helper()
	e, err := step.New(trainertest.SmallSpec(), w.set.Len(), 16)
	if err != nil {
		w.t.Fatal(err)
	}
	d := NewDense(w.set, e)
	w.t.Cleanup(d.Close)
	return d
}

// The dense variables are fetched anew once they are old, and not by everybody who needs them.
func TestDenseVariablesAreShared(t *testing.T) {
	w := setOf(t, 1)
	w.serve(trainertest.SmallSpec())
	dense := w.dense()
	first, err := dense.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := func(age time.Duration, steps uint64) { // what is handed out
		dense.mu.Lock()
		defer dense.mu.Unlock()
		dense.has = denseCopy{w: first, at: time.Now().Add(-age), step: dense.steps - steps}
	}
	settled := func() {
		dense.mu.Lock()
		next := dense.next
		dense.mu.Unlock()
		if next != nil {
			<-next.done
		}
	}
	for range denseSteps {
		dense.Learnt()
	}
	for name, tc := range map[string]struct {
		age         time.Duration
		steps       uint64
		same, fetch bool
	}{
		"new":              {-time.Hour, 0, true, false}, // it stays so for as long as this test runs
		"half of its time": {-time.Hour, denseSteps / 2, true, true},
		"some steps":       {-time.Hour, denseSteps/2 - 1, true, false},
		"all steps":        {-time.Hour, denseSteps, false, true},
		"its time":         {denseAge, 0, false, true},
	} {
		old(tc.age, tc.steps)
		got, err := dense.Get(t.Context())
		if err != nil || (got == first) != tc.same {
			t.Errorf("%s: the same are handed out: %v, %v", name, got == first, err)
		}
		settled()
		if fetched := dense.has.w != first; fetched != tc.fetch {
			t.Errorf("%s: others were fetched: %v", name, fetched)
		}
	}
	old(denseAge, 0)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dense.Get(gone); err == nil {
		t.Error("they were fetched after the end of ctx")
	}
	if again, err := dense.Get(t.Context()); err != nil || len(again.Values) != len(first.Values) {
		t.Errorf("after a failure: %d variables, %v", len(again.Values), err)
	}
}

// A step that waits for variables goes when its partition ends, or the trainer, though no shard
// answers; whoever comes later asks again.
func TestNobodyWaitsForVariablesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dense := setOf(t, 1).dense()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { _, err := dense.Get(ctx); ended <- err }()
		cancel()
		if err := <-ended; err == nil {
			t.Error("variables came from nowhere")
		}
		go func() { _, err := dense.Get(t.Context()); ended <- err }()
		synctest.Wait() // nobody calls Get behind Close
		dense.Close()
		if err := <-ended; err == nil {
			t.Error("variables came from nowhere")
		}
	})
}

// At half of its time a copy is still handed out while the next one is fetched; at its whole time
// nobody gets it any more.
func TestACopyOfVariablesAtItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dense := setOf(t, 1).dense() // no shard answers
		w := new(runtime.Weights)
		for age, want := range map[time.Duration]struct{ handed, fetch bool }{
			denseAge/2 - 1: {true, false}, denseAge / 2: {true, true}, denseAge - 1: {true, true}, denseAge: {false, true},
		} {
			dense.mu.Lock()
			dense.has, dense.next = denseCopy{w: w, at: time.Now().Add(-age)}, nil
			dense.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
			got, err := dense.Get(ctx)
			cancel()
			dense.mu.Lock()
			fetch := dense.next != nil
			dense.mu.Unlock()
			if (got == w) != want.handed || (err == nil) != want.handed || fetch != want.fetch {
				t.Errorf("after %v: handed out %v, fetched anew %v, %v; want %+v", age, got == w, fetch, err, want)
			}
		}
	})
}
