package runtime

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Lane is the memory of one computation. It is of use to any batch of its engine, and needed
// only while it computes.
type Lane struct {
	nn     nn.Lane
	input  []layout.Tensor
	in     [][]float32 // the tensors of input, lengths, floats, then labels and weights
	losses []float64   // by task
	out    nn.Outputs  // of a step, in the lane's memory but for the dense gradients
	scored nn.Outputs
}

// NewLane returns a lane.
func (e *Engine) NewLane() *Lane { return &Lane{} }

// Weights are the dense variables as of one version, in order. Neither they nor their values
// ever change.
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

// Result is what a step came to.
type Result struct {
	Loss   float64     // summed over the samples, tasks by their weights
	Losses []float64   // by task, likewise but for that weight; the lane's until its next use, as is Scores
	Scores [][]float32 // by task, by sample
}

// Train computes scores, loss and all gradients of a sealed batch whose rows were looked up.
//
// A gradient is that of the sum of the samples' losses, for rows and dense variables
// alike: under Adagrad, whose steps do not grow with the scale of the gradient, a row
// seen once in a batch then learns as much as it would alone, whatever the batch's size. With
// reduction MEAN it is that of their mean.
func (e *Engine) Train(l *Lane, b *Batch, w *Weights) (Result, error) {
	n := b.Len()
	for i := range b.labels {
		if len(b.labels[i]) != n {
			return Result{}, fmt.Errorf("the batch has %d labels for %d samples", len(b.labels[i]), n)
		}
	}
	if err := e.forward(l, b); err != nil {
		return Result{}, err
	}
	l.in = append(l.in, b.labels...)
	for i := range e.tasks {
		if e.tasks[i].Weighted() {
			l.in = append(l.in, b.weights[i])
		}
	}
	if l.out.Values == nil {
		l.out.Values = make([][]float32, e.at.dense+len(e.vars))
	}
	out := l.out.Values
	copy(out[e.at.dense:], b.Dense)
	if err := e.train.Run(&l.nn, n, l.in, &w.nn, &l.out); err != nil {
		return Result{}, err
	}
	copy(b.Dense, out[e.at.dense:])
	b.open()
	var err error
	if b.gradients, err = e.plan.Gradient(b.gradients, &b.rows, out[e.at.slopes:e.at.dense], nil); err != nil {
		return Result{}, err
	}
	l.losses = l.losses[:0]
	for _, loss := range out[e.at.losses:e.at.slopes] {
		l.losses = append(l.losses, float64(loss[0])*float64(n))
	}
	return Result{Loss: float64(out[e.at.loss][0]) * float64(n), Losses: l.losses, Scores: out[:len(e.tasks)]}, nil
}

// Score appends the scores of a sealed batch whose rows were looked up to those of each task.
func (e *Engine) Score(l *Lane, b *Batch, w *Weights, scores [][]float32) ([][]float32, error) {
	if err := e.forward(l, b); err != nil {
		return nil, err
	}
	if err := e.score.Run(&l.nn, b.Len(), l.in, &w.nn, &l.scored); err != nil {
		return nil, err
	}
	for len(scores) < len(e.tasks) {
		scores = append(scores, nil)
	}
	for i := range e.tasks {
		scores[i] = append(scores[i], l.scored.Values[i]...)
	}
	return scores, nil
}

// forward lays the rows out as the model's tensors.
func (e *Engine) forward(l *Lane, b *Batch) (err error) {
	switch {
	case b.e != e:
		return fmt.Errorf("the batch was made by another engine")
	case !b.sealed:
		return errUnsealed
	}
	if l.input, err = e.plan.Forward(l.input, &b.rows, nil); err != nil {
		return err
	}
	l.in = l.in[:0]
	for i := range l.input {
		l.in = append(l.in, l.input[i].Data)
	}
	l.in = append(append(l.in, b.lengths...), b.floats...)
	return nil
}
