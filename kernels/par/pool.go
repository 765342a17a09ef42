// Package par runs pieces of work on threads that stay: the one pool of everything that
// computes here.
//
// Each thread begins every call with the same stretch of it: the first items are the
// caller's, the next the first helper's, and so on. What a thread has written in one call
// it so finds in its caches when it reads the same stretch in the next; between processors
// that share no cache a line takes a third of a microsecond. A thread that is done helps
// out the others, so what is computed must not depend on who computes it.
package par

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

// Pool is some goroutines, which [New] starts and Close ends, and whoever calls it, who
// computes too. One call at a time has the goroutines. One that comes meanwhile, from
// another goroutine or out of a task, and one that comes after Close, is done by its
// caller alone: it waits for nobody. A nil Pool is the caller alone.
//
// A task that panics ends its call: nothing more is begun, what has begun is awaited, and
// the caller panics, with the value itself where its own goroutine had the task, with a
// *[Panic] where another one had it.
//
// # Memory
//
// A call is a round. What a round is about (job, and the turns' beginnings) is written by
// the caller alone, under running, at a time when no helper is between the two points at
// which it may read it:
//
//   - A helper reads it only after it has loaded a value of round that it has not had
//     before. The caller adds to round after it has written, so the writes are visible.
//   - It counts left down once in each round, after its last read. The caller writes for the
//     next round only after it has seen left at 0, so after all of those reads.
//
// Hence a helper must not be counted twice in a round. It is woken through asleep and wake:
// whoever turns asleep from true to false settles that sleep, the caller by sending to wake,
// which the helper then receives; so wake never holds what nobody receives. A helper that has done its
// part and sleeps again before the caller comes to wake it is woken for a round that it has had;
// it goes back to sleep. The same holds of waits and done, where the caller sleeps: it looks at
// left again whenever it is woken.
//
// What tasks write, the caller reads after left was 0, and the tasks of the next round after that.
type Pool struct {
	helpers []helper
	stopped sync.WaitGroup // the helpers
	running sync.Mutex     // held by the call that has the helpers; for good after Close

	job   job
	turns []turn       // of each thread
	round atomic.Int64 // counts calls; below zero: closed
	left  atomic.Int64 // helpers that have not done their part of the round
	done  chan struct{}
	waits atomic.Bool // the caller sleeps until done

	failed atomic.Pointer[Panic] // the first of the round
	closed sync.Once
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

// New starts threads-1 goroutines, 1 to [MaxThreads]; who calls the pool is the last thread. Who
// made the pool owns them and closes it.
func New(threads int) (*Pool, error) {
	if threads < 1 || threads > MaxThreads {
		return nil, fmt.Errorf("par: a pool of %d threads: give 1 to %d", threads, MaxThreads)
	}
	p := &Pool{helpers: make([]helper, threads-1), turns: make([]turn, threads), done: make(chan struct{}, 1)}
	for i := range p.helpers {
		p.helpers[i].wake = make(chan struct{}, 1)
		p.stopped.Go(func() { p.help(i, 0) })
	}
	return p, nil
}

// Threads is the number of goroutines that work at once, the caller's included.
func (p *Pool) Threads() int {
	if p == nil {
		return 1
	}
	return len(p.helpers) + 1
}

// Close waits for the call that is under way, ends the goroutines and returns when they have
// ended. It may be called often, but not by a task of the pool.
func (p *Pool) Close() {
	p.closed.Do(func() {
		p.running.Lock()
		p.round.Store(-1)
		p.rouse()
		p.stopped.Wait()
	})
}

// alone says that a call of n items is its caller's; otherwise it has the helpers until run
// is done.
func (p *Pool) alone(n int) bool {
	return n < 2 || p == nil || len(p.helpers) == 0 || !p.running.TryLock()
}

// run does all items of j on all threads, which the caller has.
func (p *Pool) run(n int, j job) {
	p.begin(n, j)
	whole := false
	defer func() { p.end(whole) }()
	p.rouse()
	p.work(0)
	whole = true
}

// begin makes the round visible.
func (p *Pool) begin(n int, j job) {
	j.n = n
	p.job = j
	for w := range p.turns {
		p.turns[w].next.Store(int64(p.first(w)))
	}
	p.left.Store(int64(len(p.helpers)))
	p.round.Add(1)
}

// end waits until all helpers have done their part; whole says that the caller has done its own,
// and neither panics nor ends its goroutine.
func (p *Pool) end(whole bool) {
	if !whole {
		p.abandon()
	}
	for p.left.Load() > 0 {
		p.look(func() bool { return p.left.Load() <= 0 })
		p.waits.Store(true)
		if p.left.Load() > 0 || !p.waits.CompareAndSwap(true, false) {
			<-p.done
		}
	}
	p.job = job{}
	failed := p.failed.Swap(nil)
	p.running.Unlock()
	if whole && failed != nil {
		panic(failed)
	}
}

// help takes part in every round after seen until the pool is closed.
func (p *Pool) help(i int, seen int64) {
	for {
		if seen = p.next(&p.helpers[i], seen); seen < 0 {
			return
		}
		if !p.part(i, seen) {
			return
		}
	}
}

// next waits for a round other than seen.
func (p *Pool) next(h *helper, seen int64) int64 {
	for {
		p.look(func() bool { return p.round.Load() != seen })
		if r := p.round.Load(); r != seen {
			return r
		}
		h.asleep.Store(true)
		// A round that begins between the look above and here sees asleep, or is seen.
		if p.round.Load() == seen || !h.asleep.CompareAndSwap(true, false) {
			<-h.wake
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

// first is the first item that is worker's own: the others' lie before it, those of
// worker+1 begin where its end.
func (p *Pool) first(worker int) int { return p.job.n * worker / len(p.turns) }

// work does the items that are the worker's own, then what others have not begun.
func (p *Pool) work(worker int) {
	for n := range p.turns {
		of := (worker + n) % len(p.turns)
		next, end := &p.turns[of].next, int64(p.first(of+1))
		for i := next.Add(1) - 1; i < end; i = next.Add(1) - 1 {
			p.job.do(worker, int(i))
		}
	}
}
