package shards

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
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
		dense.has = &Copy{Weights: first.Weights, d: dense, at: time.Now().Add(-age), step: dense.steps - steps, users: 1}
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
		if err != nil || (got.Weights == first.Weights) != tc.same {
			t.Errorf("%s: the same are handed out: %v, %v", name, got.Weights == first.Weights, err)
		}
		settled()
		if fetched := dense.has.Weights != first.Weights; fetched != tc.fetch {
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
			dense.has, dense.next = &Copy{Weights: w, d: dense, at: time.Now().Add(-age)}, nil
			dense.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
			got, err := dense.Get(ctx)
			cancel()
			dense.mu.Lock()
			fetch := dense.next != nil
			dense.mu.Unlock()
			if (got != nil && got.Weights == w) != want.handed || (err == nil) != want.handed || fetch != want.fetch {
				t.Errorf("after %v: handed out %v, fetched anew %v, %v; want %+v", age, got != nil, fetch, err, want)
			}
		}
	})
}

// A copy's memory is another's once no step uses it, and not before: what a step computes with stays
// as it is however many copies follow.
func TestACopyStaysWhileItIsUsed(t *testing.T) {
	w := setOf(t, 1)
	shard := w.serve(trainertest.SmallSpec())[0]
	n := float32(0) // all numbers of the next copy
	shard.change = func(v *rowwire.NamedTensor) {
		for i := range v.Values {
			v.Values[i] = n
		}
	}
	dense := w.dense()
	get := func() *Copy {
		t.Helper()
		for range denseSteps {
			dense.Learnt()
		}
		n++
		c, err := dense.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Values[0][0] != n {
			t.Fatalf("copy %v has %v", n, c.Values[0][0])
		}
		dense.mu.Lock()
		c.at = time.Now().Add(time.Hour) // it grows old by steps alone
		dense.mu.Unlock()
		return c
	}
	first, second := get(), get()
	third := get()
	if first.Values[0][0] != 1 || second.Values[0][0] != 2 {
		t.Errorf("copies that are used changed to %v and %v", first.Values[0][0], second.Values[0][0])
	}
	again, err := dense.Get(t.Context()) // by two partitions
	if err != nil || again != third {
		t.Fatal(again == third, err)
	}
	memory := map[*float32]bool{&first.Values[0][0]: true, &second.Values[0][0]: true, &third.Values[0][0]: true}
	first.Done()
	second.Done()
	third.Done()
	fourth := get()
	if again.Values[0][0] != 3 {
		t.Errorf("a copy of which one of two users is done changed to %v", again.Values[0][0])
	}
	again.Done()
	fifth := get()
	if !memory[&fourth.Values[0][0]] || !memory[&fifth.Values[0][0]] {
		t.Error("copies that nobody uses are not used again")
	}
	fourth.Done()
	fifth.Done()
}
