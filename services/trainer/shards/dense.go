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
// that still use it.
type Dense struct {
	s      *Set
	e      *step.Engine
	ctx    context.Context // of fetches; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	steps uint64 // taken so far
	has   denseCopy
	next  *denseFetch // under way; nil: none
}

// denseCopy is a copy of the variables, as of when its fetch began.
type denseCopy struct {
	w    *runtime.Weights
	at   time.Time
	step uint64
}

// denseFetch is a copy on its way: has or err is set once done is closed.
type denseFetch struct {
	done chan struct{}
	has  denseCopy
	err  error
}

// NewDense returns a Dense that has fetched nothing yet; Close ends it.
func NewDense(s *Set, e *step.Engine) *Dense {
	d := &Dense{s: s, e: e}
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

// Get returns the variables.
func (d *Dense) Get(ctx context.Context) (*runtime.Weights, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	d.mu.Lock()
	age, steps := time.Since(d.has.at), d.steps-d.has.step
	if d.next == nil && (d.has.w == nil || age >= denseAge/2 || steps >= denseSteps/2) {
		d.fetch()
	}
	w, next := d.has.w, d.next
	d.mu.Unlock()
	if w != nil && age < denseAge && steps < denseSteps {
		return w, nil
	}
	select {
	case <-next.done:
		return next.has.w, next.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetch begins to fetch the next copy. The caller holds mu.
func (d *Dense) fetch() {
	f := &denseFetch{done: make(chan struct{}), has: denseCopy{at: time.Now(), step: d.steps}}
	d.next = f
	d.wg.Go(func() {
		f.has.w, f.err = FetchDense(d.ctx, d.s, d.e, 0, 0)
		d.mu.Lock()
		if d.next = nil; f.err == nil {
			d.has = f.has
		}
		d.mu.Unlock()
		close(f.done)
	})
}

// FetchDense asks every shard for its bands of the variables, at a turn in deterministic mode.
func FetchDense(ctx context.Context, s *Set, e *step.Engine, turn, generation uint64) (*runtime.Weights, error) {
	v, err := fetchVariables(ctx, s, e, e.Rounded, turn, generation)
	if err != nil {
		return nil, err
	}
	return e.Weights(turn, v)
}

// FetchVariables asks for every number of the variables, none of them rounded.
func FetchVariables(ctx context.Context, s *Set, e *step.Engine, turn, generation uint64) ([][]float32, error) {
	return fetchVariables(ctx, s, e, make([]bool, len(e.Variables())), turn, generation)
}

func fetchVariables(ctx context.Context, s *Set, e *step.Engine, rounded []bool, turn, generation uint64) ([][]float32, error) {
	vars := e.Variables()
	v := make([][]float32, len(vars))
	for i := range v {
		if vars[i].Size > modelspec.MaxBand { // else what a shard answers is all of it
			v[i] = make([]float32, vars[i].Size)
		}
	}
	err := s.Each(func(i int) error {
		for bands := e.Bands[i]; len(bands) > 0; {
			n := atOnce(bands)
			if err := fetchBands(ctx, s, i, bands[:n], rounded, turn, generation, v); err != nil {
				return err
			}
			bands = bands[n:]
		}
		return nil
	})
	return v, err
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

// fetchBands copies bands of shard i to where they belong in values; those of rounded
// variables come in half the bytes, if they come over a socket.
func fetchBands(ctx context.Context, s *Set, i int, bands []modelspec.Band, rounded []bool, turn, generation uint64, values [][]float32) error {
	req := &rowwire.DenseRequest{Job: s.Job, Shard: uint32(i), Turn: turn, Generation: generation}
	for _, b := range bands {
		req.Names, req.At, req.BF16 = append(req.Names, b.Name), append(req.At, uint32(b.At)), append(req.BF16, rounded[b.Variable])
	}
	r, err := Call(ctx, s, i, func(ctx context.Context, c rowwire.Conn) (*rowwire.DenseResponse, error) { return c.Dense(ctx, req) })
	if err != nil {
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
		if whole := values[b.Variable]; whole != nil {
			copy(whole[b.At:], t.Values)
		} else {
			values[b.Variable] = t.Values
		}
	}
	return nil
}
