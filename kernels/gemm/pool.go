package gemm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// MaxThreads bounds a pool.
const MaxThreads = 256

// linger is how long a thread looks for work, or the caller for the end of it, before it
// sleeps. That is longer than anything a training step does on one thread; waking a thread
// takes some 50 microseconds.
const linger = 400 * time.Microsecond

// Pool owns threads and the memory for packing, which grows to what the largest product
// needs. One call at a time. The zero value is a pool of the caller's goroutine alone.
type Pool struct {
	choice  *[2]*backend // fp32 and bf16; nil is the chosen ones
	helpers []helper
	stopped sync.WaitGroup

	// What each does is set before round is counted up, and not changed before every
	// helper has counted left down.
	phase func(p *Pool, worker, i int)
	items atomic.Int64 // a helper that comes late to a round reads nothing else of it; the race detector has reported that read when it was plain
	turns []turn       // of each thread
	round atomic.Int64 // counts calls of each; below zero: closed
	left  atomic.Int64
	done  chan struct{} // the last helper, if the caller sleeps
	waits atomic.Bool   // the caller sleeps

	job     job
	pack    []float32
	workers []worker
}

type helper struct {
	asleep atomic.Bool
	wake   chan struct{} // holds one
	_      [40]byte      // neighbours look at other cache lines
}

// turn is where a thread is among the items that are its own.
type turn struct {
	next atomic.Int64
	_    [56]byte // neighbours look at other cache lines
}

// NewPool starts threads-1 goroutines (the caller's is the last), which Close ends.
func NewPool(threads int) (*Pool, error) {
	if threads < 1 || threads > MaxThreads {
		return nil, fmt.Errorf("gemm: a pool of %d threads: give 1 to %d", threads, MaxThreads)
	}
	p := &Pool{
		helpers: make([]helper, threads-1), workers: make([]worker, threads), turns: make([]turn, threads), done: make(chan struct{}, 1),
	}
	for i := range p.helpers {
		p.helpers[i].wake = make(chan struct{}, 1)
		p.stopped.Go(func() { p.help(i) })
	}
	return p, nil
}

// Threads is the number of goroutines that work at once.
func (p *Pool) Threads() int { return len(p.helpers) + 1 }

// Close ends the goroutines and waits for them. The pool cannot be used afterwards.
func (p *Pool) Close() {
	p.round.Store(-1)
	p.rouse()
	p.stopped.Wait()
}

// help takes part in every round until the pool is closed.
func (p *Pool) help(i int) {
	h := &p.helpers[i]
	seen := int64(0)
	for {
		p.look(func() bool { return p.round.Load() != seen })
		if p.round.Load() == seen {
			h.asleep.Store(true)
			// A round that begins between the look above and here sees asleep or is seen.
			if p.round.Load() == seen || !h.asleep.CompareAndSwap(true, false) {
				<-h.wake
			}
		}
		if seen = p.round.Load(); seen < 0 {
			return
		}
		p.work(i + 1)
		if p.left.Add(-1) == 0 && p.waits.CompareAndSwap(true, false) {
			p.done <- struct{}{}
		}
	}
}

// look returns when over does or linger has passed; at once where spinning would keep a
// processor from those waited for.
func (p *Pool) look(over func() bool) {
	if over() || runtime.GOMAXPROCS(0) < p.Threads() {
		return
	}
	for began := time.Now(); time.Since(began) < linger; {
		for range 100 {
			if over() {
				return
			}
		}
	}
}

func (p *Pool) rouse() {
	for i := range p.helpers {
		if h := &p.helpers[i]; h.asleep.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
	}
}

// each runs phase for every i below n, on all threads. The first items are the caller's,
// the next the first helper's, and so on: what a thread has written in one call it finds
// in its caches when it reads the same stretch in the next. Between processors that share
// no cache a line takes a third of a microsecond.
func (p *Pool) each(n int, phase func(p *Pool, worker, i int)) {
	if p.workers == nil {
		p.workers, p.turns = make([]worker, 1), make([]turn, 1)
	}
	if n < 2 || len(p.helpers) == 0 {
		for i := range n {
			phase(p, 0, i)
		}
		return
	}
	p.phase = phase
	p.items.Store(int64(n))
	for w := range p.turns {
		p.turns[w].next.Store(int64(p.first(w)))
	}
	p.left.Store(int64(len(p.helpers)))
	p.round.Add(1)
	p.rouse()
	p.work(0)
	for p.left.Load() > 0 {
		p.look(func() bool { return p.left.Load() <= 0 })
		p.waits.Store(true)
		// The last helper sees waits, or is seen. One that was last a round ago and sees
		// it only now wakes the caller too early: hence the outer loop.
		if p.left.Load() > 0 || !p.waits.CompareAndSwap(true, false) {
			<-p.done
		}
	}
}

// first is the first item that is worker's own: the others' lie before it, those of
// worker+1 begin where its end.
func (p *Pool) first(worker int) int { return int(p.items.Load()) * worker / len(p.turns) }

// work does the items that are the worker's own, then what others have not begun.
func (p *Pool) work(worker int) {
	for n := range p.turns {
		of := (worker + n) % len(p.turns)
		next, end := &p.turns[of].next, int64(p.first(of+1))
		for i := next.Add(1) - 1; i < end; i = next.Add(1) - 1 {
			p.phase(p, worker, int(i))
		}
	}
}

// Range is work on a range of indices.
type Range interface{ Do(lo, hi int) }

// For runs r over 0 to n, cut into pieces that are multiples of grain, on all threads. The
// pieces depend on n and grain only, not on the threads.
func (p *Pool) For(n, grain int, r Range) {
	if n <= 0 {
		return
	}
	p.job = job{r: r, n: n, grain: grain}
	p.each((n+grain-1)/grain, forPhase)
	p.job = job{}
}

func forPhase(p *Pool, _, i int) {
	j := &p.job
	j.r.Do(i*j.grain, min(j.n, (i+1)*j.grain))
}
