package gemm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// MaxThreads bounds a pool.
const MaxThreads = 256

// linger is how many times a thread looks for work, or the caller for the end of it,
// before it sleeps: some 20 microseconds, the gap between two products of a training step.
const linger = 20_000

// Pool owns threads and the memory for packing, which grows to what the largest product
// needs. One call at a time. The zero value is a pool of the caller's goroutine alone.
type Pool struct {
	choice  *[2]*backend // fp32 and bf16; nil is the chosen ones
	helpers []helper
	stopped sync.WaitGroup

	// What each does is set before round is counted up, and not changed before every
	// helper has counted left down.
	phase func(p *Pool, worker, i int)
	items int
	next  atomic.Int64
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

// NewPool starts threads-1 goroutines (the caller's is the last), which Close ends.
func NewPool(threads int) (*Pool, error) {
	if threads < 1 || threads > MaxThreads {
		return nil, fmt.Errorf("gemm: a pool of %d threads: give 1 to %d", threads, MaxThreads)
	}
	p := &Pool{
		helpers: make([]helper, threads-1), workers: make([]worker, threads), done: make(chan struct{}, 1),
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
		for n := 0; p.round.Load() == seen && n < p.looks(); n++ {
		}
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

// looks is 0 where spinning would keep a processor from those waited for.
func (p *Pool) looks() int {
	if runtime.GOMAXPROCS(0) < p.Threads() {
		return 0
	}
	return linger
}

func (p *Pool) rouse() {
	for i := range p.helpers {
		if h := &p.helpers[i]; h.asleep.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
	}
}

// each runs phase for every i below n, on all threads.
func (p *Pool) each(n int, phase func(p *Pool, worker, i int)) {
	if p.workers == nil {
		p.workers = make([]worker, 1)
	}
	p.phase, p.items = phase, n
	p.next.Store(0)
	if n < 2 || len(p.helpers) == 0 {
		p.work(0)
		return
	}
	p.left.Store(int64(len(p.helpers)))
	p.round.Add(1)
	p.rouse()
	p.work(0)
	for p.left.Load() > 0 {
		for n := 0; p.left.Load() > 0 && n < p.looks(); n++ {
		}
		p.waits.Store(true)
		// The last helper sees waits, or is seen. One that was last a round ago and sees
		// it only now wakes the caller too early: hence the outer loop.
		if p.left.Load() > 0 || !p.waits.CompareAndSwap(true, false) {
			<-p.done
		}
	}
}

func (p *Pool) work(worker int) {
	for {
		i := int(p.next.Add(1)) - 1
		if i >= p.items {
			return
		}
		p.phase(p, worker, i)
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
