package par

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func pool(t testing.TB, threads int) *Pool {
	t.Helper()
	p, err := New(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

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

// until waits for ok, at most two minutes: a busy machine may keep a thread waiting.
func until(ok func() bool) bool {
	for began := time.Now(); !ok(); runtime.Gosched() {
		if time.Since(began) > 2*time.Minute {
			return false
		}
	}
	return true
}

func TestForDoesEachPieceOnce(t *testing.T) {
	pools := []*Pool{nil, pool(t, 1), pool(t, 2), pool(t, 3), pool(t, 7)}
	for _, p := range pools {
		for _, n := range []int{-1, 0, 1, 2, 3, 6, 7, 8, 64, 1001} {
			for _, grain := range []int{1, 3, 64, 1 << 62} {
				r := countRange{times: make([]atomic.Int32, max(n, 0))}
				p.For(n, grain, &r)
				for i := range r.times {
					if got := r.times[i].Load(); got != 1 {
						t.Fatalf("%d threads, %d by %d: index %d was done %d times", p.Threads(), n, grain, i, got)
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
		p.Each(n, func(worker, i int) {
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

// A caller that loses its processor between a round's beginning and waking its helpers finds
// them asleep again, their part done. Woken then, a helper must not count itself a second time:
// the round would end while others still read it.
func TestAHelperCountsOnceInARound(t *testing.T) {
	p := pool(t, 3)
	asleep := func() bool { return p.helpers[0].asleep.Load() && p.helpers[1].asleep.Load() }
	for range 20 {
		if !until(asleep) {
			t.Fatal("the helpers do not sleep")
		}
		p.running.Lock()
		var done, entered atomic.Int32
		p.begin(3, job{task: func(int) { done.Add(1) }})
		p.helpers[1].asleep.Store(false) // woken by this test instead of rouse
		p.helpers[1].wake <- struct{}{}
		if !until(func() bool { return p.left.Load() == 1 && p.helpers[1].asleep.Load() }) {
			t.Fatal("the helper that was woken did not do its part and sleep again")
		}
		p.job.task = func(int) { entered.Add(1) } // nothing is left to do; helper 1 sleeps
		p.helpers[1].asleep.Store(false)          // the caller comes late
		p.helpers[1].wake <- struct{}{}
		if !until(p.helpers[1].asleep.Load) || p.left.Load() != 1 {
			t.Fatalf("a helper that had done its part counted itself again: %d are left, 1 is asleep", p.left.Load())
		}
		p.rouse()
		p.work(0)
		p.end(true)
		if done.Load()+entered.Load() != 3 {
			t.Fatalf("%d of 3 items were done", done.Load()+entered.Load())
		}
	}
}

// Rounds that follow at once and rounds so late that the helpers sleep, with as many threads
// as cores and more: none begins before the last is complete, none is missed. The counters are
// plain: the race detector sees it if rounds overlap.
func TestRounds(t *testing.T) {
	for _, threads := range []int{2, 5} {
		p := pool(t, threads)
		counts := make([]int, 9)
		for round := range 1000 {
			p.Run(len(counts), func(i int) { counts[i]++ })
			for i, n := range counts {
				if n != round+1 {
					t.Fatalf("after round %d item %d is done %d times", round, i, n)
				}
			}
			if round%50 == 0 {
				for began := time.Now(); time.Since(began) < 2*linger; {
					runtime.Gosched()
				}
			}
		}
	}
}

// Several pools, each called by several goroutines, some of them out of tasks, while the
// processors are too few for all of them.
func TestHammer(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	pools := []*Pool{pool(t, 2), pool(t, 3), pool(t, 8)}
	var callers sync.WaitGroup
	for c := range 9 {
		callers.Go(func() {
			p, other := pools[c%3], pools[(c+1)%3]
			for round := range rounds {
				counts := make([]int, round%23)
				p.Run(len(counts), func(i int) {
					counts[i]++
					if i%11 == 3 {
						inner := make([]int, 5)
						[]*Pool{p, other}[round%2].Run(len(inner), func(k int) { inner[k]++ })
						for _, n := range inner {
							counts[i] += n - 1
						}
					}
				})
				for i, n := range counts {
					if n != 1 {
						t.Errorf("caller %d, round %d: item %d is done %d times", c, round, i, n)
					}
				}
			}
		})
	}
	callers.Wait()
}

func TestEachLendsAWorkerOnce(t *testing.T) {
	p := pool(t, 4)
	var callers sync.WaitGroup
	for range 3 { // each call has workers of its own
		callers.Go(func() {
			memory := make([]int, p.Threads()) // plain: the race detector sees two of one worker
			for range 100 {
				p.Each(30, func(worker, _ int) { memory[worker]++ })
			}
			sum := 0
			for _, n := range memory {
				sum += n
			}
			if sum != 3000 {
				t.Errorf("%d of 3000 items were done", sum)
			}
		})
	}
	callers.Wait()
}

// A pool really runs tasks side by side: each of two waits for the other.
func TestParallel(t *testing.T) {
	p := pool(t, 2)
	var meet sync.WaitGroup
	meet.Add(2)
	p.Run(2, func(int) {
		meet.Done()
		meet.Wait()
	})
}

func TestCloseWaitsForTheCall(t *testing.T) {
	p := pool(t, 3)
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	var done atomic.Int32
	var call, closing sync.WaitGroup
	call.Go(func() {
		p.Run(30, func(i int) {
			if i == 0 {
				began <- struct{}{}
				<-goOn
			}
			done.Add(1)
		})
	})
	<-began
	closing.Go(func() {
		p.Close()
		if done.Load() != 30 {
			t.Errorf("Close came back when %d of 30 items were done", done.Load())
		}
	})
	close(goOn)
	closing.Wait()
	call.Wait()
	p.Close()
	ran := 0
	p.Run(5, func(int) { ran++ }) // by the caller alone, so no lock is needed
	if ran != 5 {
		t.Errorf("%d of 5 tasks ran after Close", ran)
	}
}

// Callers do not know when somebody closes.
func TestCloseWhileCalled(t *testing.T) {
	for range 50 {
		p, err := New(3)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for n := range 30 {
					counts := make([]int, n)
					p.Run(n, func(i int) { counts[i]++ })
					for i := range counts {
						if counts[i] != 1 {
							t.Errorf("item %d is done %d times", i, counts[i])
						}
					}
				}
			})
		}
		all.Go(p.Close)
		p.Close()
		all.Wait()
	}
}

func TestSizes(t *testing.T) {
	for _, threads := range []int{-1, 0, MaxThreads + 1} {
		if p, err := New(threads); err == nil {
			p.Close()
			t.Errorf("a pool of %d threads was made", threads)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	p, r := pool(t, 2), &countRange{times: make([]atomic.Int32, 64)}
	each := func(_, i int) { r.times[i].Add(1) }
	if n := testing.AllocsPerRun(100, func() {
		p.For(64, 4, r)
		p.Each(64, each)
	}); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}
