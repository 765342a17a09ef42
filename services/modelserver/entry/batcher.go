package entry

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/process/prom"
)

// Batching says how requests that come at once are computed together, by TensorFlow Serving's parameters.
type Batching struct {
	// MaxRows is the most rows of a batch. A request of more is refused, or with Large a batch by itself.
	MaxRows int
	Large   bool
	// Timeout is how long a batch that is not full waits for more while another one is computed.
	Timeout time.Duration
	// MaxEnqueued is the most batches of a version of a model that wait; more are refused.
	MaxEnqueued int
	// Threads is how many batches are computed at once.
	Threads int
}

// Batcher makes batches of requests. One that is idle computes each request at once; while all of its
// threads compute, requests for the same version wait together for the next.
type Batcher struct {
	p       Batching
	compute func(ctx context.Context, m *Model, jobs []*job)

	rows    prometheus.Histogram
	refused prometheus.Counter

	mu      sync.Mutex
	waiting *list.List // of *batch, the oldest first
	queues  map[*Model]*queue
	busy    int // threads that compute
	stopped bool

	kick chan struct{} // one for each thread that has to look
}

// queue is what waits for one version of a model.
type queue struct {
	open    *list.Element // its newest batch
	batches int
}

// batch is what is computed together.
type batch struct {
	model *Model
	jobs  []*job
	rows  int
	due   time.Time // it waits for more until then
}

// job is a request in a batch. Whoever takes its batch owns its scratch until it is done.
type job struct {
	ctx     context.Context
	in      Input
	scratch *scratch // holds the rows
	rec     *Recorder

	place  *list.Element // of a Batcher's batch; nil: it is taken
	turn   chan []*job   // a joiner's: what its caller is to compute
	joined bool          // with others
	scores [][]float32
	err    error
	done   chan struct{}
}

// overloaded is a refusal that says nothing about the version that was asked.
type overloaded struct{ error }

func (o overloaded) GRPCStatus() *status.Status { return status.Convert(o.error) }

// NewBatcher counts in reg; its Scorer's Run computes.
func NewBatcher(p Batching, reg prometheus.Registerer) *Batcher {
	return &Batcher{
		p: p, waiting: list.New(), queues: map[*Model]*queue{}, kick: make(chan struct{}, p.Threads),
		rows: prom.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "monolith_modelserver_batch_rows", Help: "Rows that were computed together.", Buckets: prometheus.ExponentialBuckets(1, 2, 17)})),
		refused: prom.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_modelserver_batch_refused_total", Help: "Requests refused as max_enqueued_batches wait already."})),
	}
}

// Threads is how many batches are computed at once.
func (b *Batcher) Threads() int { return b.p.Threads }

// run computes batches until ctx ends. Those that still wait then are refused.
func (b *Batcher) run(ctx context.Context) {
	var threads sync.WaitGroup
	for range b.p.Threads {
		threads.Go(func() { b.thread(ctx) })
	}
	threads.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for e := b.waiting.Front(); e != nil; e = b.waiting.Front() {
		for _, j := range b.remove(e).jobs {
			j.err = stopping()
			close(j.done)
		}
	}
}

func stopping() error {
	return overloaded{status.Error(codes.Unavailable, "the server is stopping; ask another one")}
}

func (b *Batcher) thread(ctx context.Context) {
	for ctx.Err() == nil {
		next, wait := b.take()
		if next == nil {
			b.sleep(ctx, wait)
			continue
		}
		b.rows.Observe(float64(next.rows))
		all, stop := together(next.jobs)
		b.compute(all, next.model, next.jobs)
		stop()
		for _, j := range next.jobs {
			close(j.done)
		}
		b.finished()
	}
}

// sleep waits for something to do, at most so long; 0: for ever.
func (b *Batcher) sleep(ctx context.Context, wait time.Duration) {
	var due <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-b.kick:
	case <-due:
	case <-ctx.Done():
	}
}

// together is a context that lasts as long as one of the callers stays.
func together(jobs []*job) (ctx context.Context, stop func()) {
	if len(jobs) == 1 {
		return jobs[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(jobs[0].ctx))
	left := make(chan struct{}, len(jobs))
	stops := make([]func() bool, len(jobs))
	for i, j := range jobs {
		stops[i] = context.AfterFunc(j.ctx, func() {
			if left <- struct{}{}; len(left) == cap(left) {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, s := range stops {
			s()
		}
		cancel()
	}
}

// take removes the oldest batch that is due: one that is full or has waited, or any while no other is
// computed. Where none is it says how long the next one waits, 0 where there is none.
func (b *Batcher) take() (next *batch, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for e := b.waiting.Front(); e != nil; e = e.Next() {
		x := e.Value.(*batch)
		if left := x.due.Sub(now); b.busy > 0 && left > 0 && x.rows < b.p.MaxRows && b.queues[x.model].open == e {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		b.busy++
		next = b.remove(e)
		if b.waiting.Len() > 0 {
			b.wake() // another thread watches over the rest
		}
		return next, 0
	}
	return nil, wait
}

// remove takes a batch from those that wait. The caller holds mu.
func (b *Batcher) remove(e *list.Element) *batch {
	x := b.waiting.Remove(e).(*batch)
	q := b.queues[x.model]
	if q.open == e {
		q.open = nil
	}
	if q.batches--; q.batches == 0 {
		delete(b.queues, x.model)
	}
	for _, j := range x.jobs {
		j.place = nil
	}
	return x
}

func (b *Batcher) finished() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	b.wake()
}

// wake makes one more thread look.
func (b *Batcher) wake() {
	select {
	case b.kick <- struct{}{}:
	default: // all of them will
	}
}

// answer computes a job in some batch. A caller that leaves is answered at once; its job is taken out,
// or its scores are nobody's.
func (b *Batcher) answer(m *Model, j *job) error {
	if err := b.enqueue(m, j); err != nil {
		m.scratches.Put(j.scratch)
		return err
	}
	select {
	case <-j.done:
	case <-j.ctx.Done():
		b.leave(j)
		return status.FromContextError(j.ctx.Err()).Err()
	}
	return j.err
}

// enqueue puts a job into the open batch of its version, or into a new one.
func (b *Batcher) enqueue(m *Model, j *job) error {
	n := j.scratch.batch.Len()
	if n > b.p.MaxRows && !b.p.Large {
		return status.Errorf(codes.InvalidArgument, "Task size %d is larger than maximum input batch size %d: send fewer rows at once, or serve with a greater max_batch_size or enable_large_batch_splitting", n, b.p.MaxRows)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return stopping()
	}
	q := b.queues[m]
	if q == nil {
		q = &queue{}
	}
	fits := q.open != nil && q.open.Value.(*batch).rows+n <= b.p.MaxRows
	if err := b.full(q, fits); err != nil {
		return err
	}
	if !fits {
		b.queues[m] = q
		q.open = b.waiting.PushBack(&batch{model: m, due: time.Now().Add(b.p.Timeout)})
		q.batches++
	}
	x := q.open.Value.(*batch)
	x.jobs, x.rows, j.place = append(x.jobs, j), x.rows+n, q.open
	b.wake()
	return nil
}

// full refuses what there is no room for. The caller holds mu.
func (b *Batcher) full(q *queue, fits bool) error {
	if fits || q.batches < b.p.MaxEnqueued {
		return nil
	}
	b.refused.Inc()
	return overloaded{status.Errorf(codes.Unavailable, "The batch scheduling queue to which this task was submitted is full; currently %d batches enqueued and max_enqueued_batches is %d: try again later, or ask another replica", q.batches, b.p.MaxEnqueued)}
}

// leave takes a job out of the batch that it waits in.
func (b *Batcher) leave(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.place == nil {
		return // it is taken
	}
	x := j.place.Value.(*batch)
	for i := range x.jobs {
		if x.jobs[i] == j {
			x.jobs = append(x.jobs[:i], x.jobs[i+1:]...)
			break
		}
	}
	x.rows -= j.scratch.batch.Len()
	if len(x.jobs) == 0 {
		b.remove(j.place)
	}
	x.model.scratches.Put(j.scratch)
}

// Validate says what of the parameters cannot be.
func (p Batching) Validate() error {
	for name, n := range map[string]int{"max_batch_size": p.MaxRows, "num_batch_threads": p.Threads, "max_enqueued_batches": p.MaxEnqueued} {
		if n < 1 {
			return fmt.Errorf("%s is %d; name 1 or more", name, n)
		}
	}
	if p.MaxRows > MaxBatch || p.Threads > maxThreads {
		return fmt.Errorf("max_batch_size is %d and num_batch_threads %d; at most %d and %d are taken", p.MaxRows, p.Threads, MaxBatch, maxThreads)
	}
	if p.Timeout < 0 {
		return fmt.Errorf("batch_timeout_micros is %d; name 0 or more", p.Timeout.Microseconds())
	}
	return nil
}

// maxThreads bounds the batches computed at once: each has its memory.
const maxThreads = 1024
