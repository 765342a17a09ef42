package runtime

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Lane is what one computation has to itself: threads, and memory for what lies between rows and
// gradients. It serves any engine, and is needed only while it computes.
type Lane = nn.Lane

// Weights are the dense variables as of one version, in order. Neither they nor their values
// change as long as anybody uses them.
type Weights struct {
	Version uint64 // the caller's own number
	Values  [][]float32
	nn      nn.Weights // packs them, once
}

// Weights checks that values are those of the model's variables.
func (e *Engine) Weights(version uint64, values [][]float32) (*Weights, error) {
	if len(values) != len(e.vars) {
		return nil, fmt.Errorf("%d dense variables: the model has %d", len(values), len(e.vars))
	}
	for i, v := range e.vars {
		if len(values[i]) != v.Size {
			return nil, fmt.Errorf("dense variable %s has %d values: there must be %d", v.Name, len(values[i]), v.Size)
		}
	}
	return &Weights{Version: version, Values: values, nn: nn.Weights{Step: version, Values: values}}, nil
}

// Again makes w another version, of the values that its memory has by now. Nobody uses w meanwhile.
func (w *Weights) Again(version uint64) {
	w.Version = version
	w.nn.Reset(version, w.Values)
}

// Result is what a step came to.
type Result struct {
	Loss   float64     // summed over the samples, tasks by their weights, with what layers add
	Losses []float64   // by task, likewise but for that weight; the batch's until its next use, as is Scores
	Scores [][]float32 // by task, by sample
	Added  []Added     // what layers add; the batch's until its next use
}

// Added is a loss that a layer adds, of a batch: summed over its samples, or with reduction SUM and of no sample, once.
type Added struct {
	Name string // as modelspec has it
	Loss float64
}

// Train computes scores, loss and all gradients of a sealed batch whose rows were looked up.
//
// A gradient is that of the sum of the samples' losses, for rows and dense variables
// alike: under Adagrad, whose steps do not grow with the scale of the gradient, a row
// seen once in a batch then learns as much as it would alone, whatever the batch's size. With
// reduction MEAN it is that of their mean.
func (e *Engine) Train(l *Lane, b *Batch, w *Weights) (Result, error) {
	n := b.Len()
	if b.scored {
		return Result{}, errors.New("the batch was sealed for scores: seal it to learn from it")
	}
	for i := range b.labels {
		if len(b.labels[i]) != n {
			return Result{}, fmt.Errorf("the batch has %d labels for %d samples", len(b.labels[i]), n)
		}
	}
	if err := e.forward(l, b); err != nil {
		return Result{}, err
	}
	b.in = append(b.in, b.labels...)
	for i := range e.tasks {
		if e.tasks[i].Weighted() {
			b.in = append(b.in, b.weights[i])
		}
	}
	out := b.out.Values
	if err := e.train.Run(l, n, b.in, &w.nn, &b.out); err != nil {
		return Result{}, err
	}
	b.open()
	var err error
	if b.gradients, err = e.plan.Gradient(b.gradients, &b.rows, out[e.at.slopes:e.at.dense], e.runner(l, b)); err != nil {
		return Result{}, err
	}
	b.losses = b.losses[:0]
	for _, loss := range out[e.at.losses:e.at.added] {
		b.losses = append(b.losses, float64(loss[0])*float64(n))
	}
	r := Result{Loss: float64(out[e.at.loss][0]) * float64(n), Losses: b.losses, Scores: out[:len(e.tasks)]}
	b.added = b.added[:0]
	for i, a := range e.penalties {
		loss := float64(out[e.at.added+i][0])
		if a.Sample || e.spec.GetReduction() == model.ModelSpec_MEAN {
			loss *= float64(n)
		}
		b.added = append(b.added, Added{a.Name, loss})
		r.Loss += loss
	}
	r.Added = b.added
	return r, nil
}

// Score appends the scores of a sealed batch whose rows were looked up to those of each task.
func (e *Engine) Score(l *Lane, b *Batch, w *Weights, scores [][]float32) ([][]float32, error) {
	if err := e.forward(l, b); err != nil {
		return nil, err
	}
	for len(scores) < len(e.tasks) {
		scores = append(scores, nil)
	}
	var common []int
	if b.scored {
		common = e.common(b)
	}
	for from, n := 0, b.Len(); from < n; from += stretch {
		to := min(from+stretch, n)
		if err := e.scoreStretch(l, b, w, common, from, to); err != nil {
			return nil, err
		}
		for i := range e.tasks {
			scores[i] = append(scores[i], b.scores.Values[i]...)
		}
	}
	return scores, nil
}

// stretch is how many samples are scored at once: what one layer of a thousand units hands to the next
// is then 2 MiB, and stays in the caches of the cores that compute it.
const stretch = 512

// scoreStretch computes the scores of the samples from to to, of which the first common floats of each input are
// the same in all of the batch.
func (e *Engine) scoreStretch(l *Lane, b *Batch, w *Weights, common []int, from, to int) error {
	n := b.Len()
	b.part = b.part[:0]
	for i, in := range b.in {
		if width := e.widths[i]; len(in) == n*width { // otherwise it is one sample's alone
			in = in[from*width : to*width]
		}
		b.part = append(b.part, in)
	}
	if b.scored {
		return e.score.RunShared(l, to-from, b.part, common, &w.nn, &b.scores)
	}
	return e.score.Run(l, to-from, b.part, &w.nn, &b.scores)
}

// wake is how many floats of inputs are laid out on all threads of a lane: waking one costs as much as
// laying out as many.
const wake = 1 << 15

// runner is whose threads lay out a batch's rows: the lane's, or with nil the caller's alone.
func (e *Engine) runner(l *Lane, b *Batch) layout.Runner {
	floats := 0
	for _, width := range e.widths {
		floats += width
	}
	if l.Pool.Threads() == 1 || b.Len()*floats < wake {
		return nil
	}
	return l.Pool
}

// forward lays the rows out as the model's tensors.
func (e *Engine) forward(l *Lane, b *Batch) (err error) {
	switch {
	case b.e != e:
		return fmt.Errorf("the batch was made by another engine")
	case !b.sealed:
		return errUnsealed
	}
	if b.input, err = e.plan.Forward(b.input, &b.rows, e.runner(l, b)); err != nil {
		return err
	}
	b.in = b.in[:0]
	for i := range b.input {
		b.in = append(b.in, b.input[i].Data)
	}
	b.in = append(append(b.in, b.lengths...), b.floats...)
	return nil
}
