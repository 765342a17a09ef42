package gemm

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// countRange counts how often each index is done; the first piece may wait.
type countRange struct {
	times []atomic.Int32
	done  atomic.Int32
	first func(lo, hi int)
}

func (r *countRange) Do(lo, hi int) {
	if lo == 0 && r.first != nil {
		r.first(lo, hi)
	}
	for i := lo; i < hi; i++ {
		r.times[i].Add(1)
	}
	r.done.Add(int32(hi - lo))
}

// until waits for ok, at most ten seconds.
func until(ok func() bool) bool {
	for began := time.Now(); !ok(); runtime.Gosched() {
		if time.Since(began) > 10*time.Second {
			return false
		}
	}
	return true
}

func TestForDoesEachPieceOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 7} {
		p := pool(t, threads)
		for _, n := range []int{0, 1, 2, 3, 6, 7, 8, 64, 1001} {
			for _, grain := range []int{1, 3, 64} {
				r := countRange{times: make([]atomic.Int32, n)}
				p.For(n, grain, &r)
				for i := range r.times {
					if got := r.times[i].Load(); got != 1 {
						t.Fatalf("%d threads, %d by %d: index %d was done %d times", threads, n, grain, i, got)
					}
				}
			}
		}
	}
}

// A thread that is held up loses what it has not begun to the others.
func TestOthersHelpOut(t *testing.T) {
	p := pool(t, 2)
	const n = 16
	r := &countRange{times: make([]atomic.Int32, n)}
	helped := false
	r.first = func(lo, hi int) { helped = until(func() bool { return int(r.done.Load()) == n-(hi-lo) }) }
	p.For(n, 1, r)
	if !helped {
		t.Errorf("of %d pieces only %d were done while one thread was held up", n, r.done.Load())
	}
}

// Each thread begins with a stretch of its own, the same in every call.
func TestStretchesKeepTheirThread(t *testing.T) {
	p := pool(t, 3)
	const n = 9
	var by [n]atomic.Int32
	for range 50 {
		for i := range by {
			by[i].Store(-1)
		}
		late := atomic.Bool{}
		p.each(n, func(_ *Pool, worker, i int) {
			by[i].Store(int32(worker))
			if i%3 == 0 && !until(func() bool { return by[0].Load() >= 0 && by[3].Load() >= 0 && by[6].Load() >= 0 }) {
				late.Store(true)
			}
		})
		if late.Load() || by[0].Load() != 0 || by[3].Load() != 1 || by[6].Load() != 2 {
			t.Fatalf("the stretches began on the threads %d, %d and %d", by[0].Load(), by[3].Load(), by[6].Load())
		}
	}
}
