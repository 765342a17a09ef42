package layout

import (
	"sync"
	"sync/atomic"
)

// Runner runs do(0) to do(n-1), each once, in any order and as many at a time as it
// likes, and returns when all have returned. It is the original's parallel_flag: a nil
// Runner means 0, everything in the caller's goroutine.
type Runner interface {
	Run(n int, do func(task int))
}

// run gives do its argument instead of letting it capture one: without a runner nothing is
// allocated.
func run[T any](r Runner, n int, arg T, do func(arg T, task int)) {
	if r == nil || n == 1 {
		for i := range n {
			do(arg, i)
		}
		return
	}
	r.Run(n, func(task int) { do(arg, task) })
}

// Pool is a [Runner] on goroutines that live until Close. Its owner is who made it.
type Pool struct {
	jobs chan *job
	quit chan struct{}
	once sync.Once
	wg   sync.WaitGroup
	size int
}

type job struct {
	n    int64
	next atomic.Int64
	do   func(task int)
	done sync.WaitGroup
}

// NewPool starts workers-1 goroutines: who calls Run is the other worker, so a pool of
// one is serial.
func NewPool(workers int) *Pool {
	p := &Pool{quit: make(chan struct{}), size: max(workers-1, 0)}
	p.jobs = make(chan *job, p.size)
	for range p.size {
		p.wg.Go(p.work)
	}
	return p
}

func (p *Pool) work() {
	for {
		select {
		case j := <-p.jobs:
			j.take()
		case <-p.quit:
			return
		}
	}
}

// Run may be called by several goroutines at the same time, which then share the
// workers, and even after Close, when the caller does everything itself.
func (p *Pool) Run(n int, do func(task int)) {
	j := &job{n: int64(n), do: do}
	j.done.Add(n)
invite:
	for range min(p.size, n-1) {
		select {
		case p.jobs <- j:
		default:
			break invite // all workers have work waiting; whoever is free takes tasks
		}
	}
	j.take()
	j.done.Wait()
}

// take does tasks until none is left. A job that is taken late is simply empty.
func (j *job) take() {
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.do(int(i))
		j.done.Done()
	}
}

// Close ends the goroutines and returns when they have ended.
func (p *Pool) Close() {
	p.once.Do(func() { close(p.quit) })
	p.wg.Wait()
}
