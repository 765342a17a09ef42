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
	in     [2][]float32 // the input and the labels
	out    nn.Outputs
	scores []float32
	loss   []float32
	slopes [1][]float32 // of input
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
	Loss   float64   // summed over the samples
	Scores []float32 // by sample; the lane's until its next use
}

// Train computes scores, loss and all gradients of a sealed batch whose rows were looked up.
//
// A gradient is that of the sum of the samples' losses, for rows and dense variables
// alike: under Adagrad, whose steps do not grow with the scale of the gradient, a row
// seen once in a batch then learns as much as it would alone, whatever the batch's size.
func (e *Engine) Train(l *Lane, b *Batch, w *Weights) (Result, error) {
	n := b.Len()
	if len(b.labels) != n {
		return Result{}, fmt.Errorf("the batch has %d labels for %d samples", len(b.labels), n)
	}
	x, err := e.forward(l, b)
	if err != nil {
		return Result{}, err
	}
	l.in = [2][]float32{x, b.labels}
	l.out.Values = append(l.out.Values[:0], l.scores, l.loss, l.slopes[0])
	l.out.Values = append(l.out.Values, b.Dense...)
	if err := e.train.Run(&l.nn, n, l.in[:], &w.nn, &l.out); err != nil {
		return Result{}, err
	}
	out := l.out.Values
	l.scores, l.loss, l.slopes[0] = out[scoreOutput], out[lossOutput], out[slopesOutput]
	copy(b.Dense, out[denseOutput:])
	b.open()
	if b.gradients, err = e.plan.Gradient(b.gradients, &b.rows, l.slopes[:], nil); err != nil {
		return Result{}, err
	}
	return Result{Loss: float64(l.loss[0]) * float64(n), Scores: l.scores}, nil
}

// Score appends the scores of a sealed batch whose rows were looked up.
func (e *Engine) Score(l *Lane, b *Batch, w *Weights, scores []float32) ([]float32, error) {
	x, err := e.forward(l, b)
	if err != nil {
		return nil, err
	}
	l.in = [2][]float32{x}
	l.out.Values = append(l.out.Values[:0], l.scores)
	if err := e.score.Run(&l.nn, b.Len(), l.in[:], &w.nn, &l.out); err != nil {
		return nil, err
	}
	l.scores = l.out.Values[scoreOutput]
	return append(scores, l.scores...), nil
}

// forward lays the rows out as the tower's input.
func (e *Engine) forward(l *Lane, b *Batch) (x []float32, err error) {
	switch {
	case b.e != e:
		return nil, fmt.Errorf("the batch was made by another engine")
	case !b.sealed:
		return nil, errUnsealed
	}
	if l.input, err = e.plan.Forward(l.input, &b.rows, nil); err != nil {
		return nil, err
	}
	return l.input[0].Data, nil
}
