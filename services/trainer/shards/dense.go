package shards

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/step"
)

const (
	// denseAge and denseSteps bound how old a copy of the dense variables may be, in time
	// and in steps of this trainer, outside deterministic mode.
	denseAge   = 20 * time.Millisecond
	denseSteps = 8
)

// Dense shares one copy of the dense variables among the partitions, outside
// deterministic mode: what was learnt since is missing from a forward pass, never from the
// variables. While half of a copy's time is left the next one is fetched beside the steps
// that still use it, into the memory of one that nobody uses any more.
type Dense struct {
	s      *Set
	e      *step.Engine
	ctx    context.Context // of fetches; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	steps uint64 // taken so far
	has   *Copy
	next  *denseFetch        // under way; nil: none
	spare []*runtime.Weights // nobody's
}

// Copy is the variables as of when its fetch began. Whoever got it from Get calls Done once
// nothing of it is used any more.
type Copy struct {
	*runtime.Weights
	d     *Dense
	at    time.Time
	step  uint64
	users int // guarded by d.mu
}

// mostSpare is how many copies are kept for the memory that they have: one is fetched into
// while steps of several partitions use others.
const mostSpare = 2

// denseFetch is a copy on its way: has or err is set once done is closed.
type denseFetch struct {
	done chan struct{}
	has  *Copy
	err  error
}

// NewDense returns a Dense that has fetched nothing yet; Close ends it.
func NewDense(s *Set, e *step.Engine) *Dense {
	d := &Dense{s: s, e: e, has: new(Copy)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Close ends a fetch that is under way. Nobody calls Get any more.
func (d *Dense) Close() {
	d.cancel()
	d.wg.Wait()
}

// Learnt counts a step.
func (d *Dense) Learnt() {
	d.mu.Lock()
	d.steps++
	d.mu.Unlock()
}

// Get lends the variables to the caller.
func (d *Dense) Get(ctx context.Context) (*Copy, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c, next := d.take()
		if c != nil {
			return c, nil
		}
		select {
		case <-next.done:
			if next.err != nil {
				return nil, next.err
			}
			if d.use(next.has) {
				return next.has, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take is the copy at hand if it is young enough, and the fetch under way.
func (d *Dense) take() (*Copy, *denseFetch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	age, steps := time.Since(d.has.at), d.steps-d.has.step
	if d.next == nil && (d.has.Weights == nil || age >= denseAge/2 || steps >= denseSteps/2) {
		d.fetch()
	}
	if d.has.Weights != nil && age < denseAge && steps < denseSteps {
		d.has.users++
		return d.has, d.next
	}
	return nil, d.next
}

// use lends a copy that was waited for, however old it is by now; false once another has
// followed it.
func (d *Dense) use(c *Copy) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.has != c {
		return false
	}
	c.users++
	return true
}

// Done says that the caller does not use the copy any more.
func (c *Copy) Done() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.users--
	c.d.keep(c)
}

// keep has the memory of a copy used again, if nobody needs it. The caller holds mu.
func (d *Dense) keep(c *Copy) {
	if c != d.has && c.users == 0 && len(d.spare) < mostSpare {
		d.spare = append(d.spare, c.Weights)
	}
}

// fetch begins to fetch the next copy. The caller holds mu.
func (d *Dense) fetch() {
	f := &denseFetch{done: make(chan struct{}), has: &Copy{d: d, at: time.Now(), step: d.steps}}
	var spare *runtime.Weights
	if n := len(d.spare); n > 0 {
		spare, d.spare = d.spare[n-1], d.spare[:n-1]
	}
	d.next = f
	d.wg.Go(func() {
		f.has.Weights, f.err = FetchDense(d.ctx, d.s, d.e, 0, 0, spare)
		d.mu.Lock()
		if d.next = nil; f.err == nil {
			last := d.has
			if d.has = f.has; last.Weights != nil {
				d.keep(last)
			}
		}
		d.mu.Unlock()
		close(f.done)
	})
}

// FetchDense asks every shard for its bands of the variables, at a turn in deterministic mode. They
// come into the memory of spare, which nobody uses any more; nil: into memory of their own.
func FetchDense(ctx context.Context, s *Set, e *step.Engine, turn, generation uint64, spare *runtime.Weights) (*runtime.Weights, error) {
	var v [][]float32
	if spare != nil {
		v = spare.Values
	} else {
		v = memory(e)
	}
	if err := fetchVariables(ctx, s, e, e.Rounded, turn, generation, v); err != nil {
		return nil, err
	}
	if spare != nil {
		spare.Again(turn)
		return spare, nil
	}
	return e.Weights(turn, v)
}

// FetchVariables asks for every number of the variables, none of them rounded.
func FetchVariables(ctx context.Context, s *Set, e *step.Engine, turn, generation uint64) ([][]float32, error) {
	v := memory(e)
	return v, fetchVariables(ctx, s, e, make([]bool, len(e.Variables())), turn, generation, v)
}

// memory has room for the variables.
func memory(e *step.Engine) (v [][]float32) {
	for _, x := range e.Variables() {
		v = append(v, make([]float32, x.Size))
	}
	return v
}

// fetchVariables asks every shard for its bands, which come to where they belong in v.
func fetchVariables(ctx context.Context, s *Set, e *step.Engine, rounded []bool, turn, generation uint64, v [][]float32) error {
	return s.Each(func(i int) error {
		for bands := e.Bands[i]; len(bands) > 0; {
			n := atOnce(bands)
			if err := fetchBands(ctx, s, i, bands[:n], rounded, turn, generation, v); err != nil {
				return err
			}
			bands = bands[n:]
		}
		return nil
	})
}

// atOnce is how many of bands one answer holds.
func atOnce(bands []modelspec.Band) int {
	n, size := 0, 0
	for n < len(bands) && n < rowwire.MaxTensors {
		if size += 4 * bands[n].Size; size > modelspec.MaxStepBytes {
			break
		}
		n++
	}
	return n
}

// fetchBands has bands of shard i come to where they belong in values; those of rounded
// variables come in half the bytes, if they come over a socket.
func fetchBands(ctx context.Context, s *Set, i int, bands []modelspec.Band, rounded []bool, turn, generation uint64, values [][]float32) error {
	req := &rowwire.DenseRequest{Job: s.Job, Shard: uint32(i), Turn: turn, Generation: generation}
	var places [][]float32
	for _, b := range bands {
		req.Names, req.At, req.BF16 = append(req.Names, b.Name), append(req.At, uint32(b.At)), append(req.BF16, rounded[b.Variable])
		places = append(places, values[b.Variable][b.At:b.At+b.Size])
	}
	var r rowwire.DenseResponse
	if _, err := Call(ctx, s, i, func(ctx context.Context, c rowwire.Conn) (struct{}, error) {
		r.Into(places)
		return struct{}{}, c.DenseInto(ctx, req, &r)
	}); err != nil {
		return err
	}
	if len(r.Tensors) != len(bands) {
		return fmt.Errorf("shard %d answered %d variables where %d were asked for", i, len(r.Tensors), len(bands))
	}
	for k, t := range r.Tensors {
		b := bands[k]
		if t.Name != b.Name || int(t.At) != b.At || len(t.Values) != b.Size {
			return fmt.Errorf("shard %d answered %d numbers of variable %q at %d where %d of %q at %d were asked for", i, len(t.Values), t.Name, t.At, b.Size, b.Name, b.At)
		}
		r.Land(k, places[k])
	}
	return nil
}
