package graph

import "fmt"

// Penalty is a loss of numbers that are large: L1·Σ|x| + L2·Σx², summed in float64 and in order, the result
// float32. Of a value of the batch it is the mean over the samples, of no samples 0.
type Penalty struct{ L1, L2 float32 }

// PenaltyGrad is its gradient by x, L1·sign(x) + 2·L2·x and over n for a value of the batch, in float64 and
// rounded. The sign of 0 is 0.
type PenaltyGrad struct{ L1, L2 float32 }

// Name is "penalty".
func (Penalty) Name() string { return "penalty" }

// Name is "penalty_grad".
func (PenaltyGrad) Name() string { return "penalty_grad" }

// Shape takes any operand.
func (o Penalty) Shape(in []Shape) (Shape, error) {
	return Fixed(), penalized(in, o.L1, o.L2)
}

// Shape is the operand's.
func (o PenaltyGrad) Shape(in []Shape) (Shape, error) {
	if err := penalized(in, o.L1, o.L2); err != nil {
		return Shape{}, err
	}
	return in[0], nil
}

func penalized(in []Shape, l1, l2 float32) error {
	if !(l1 >= 0 && l2 >= 0) {
		return fmt.Errorf("its factors are %g and %g: give numbers of 0 or more", l1, l2)
	}
	return operands(in, 1)
}

// Backward is [PenaltyGrad].
func (o Penalty) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.times(b.Add("", PenaltyGrad(o), at.In[0]), dy)}
}

// Backward reports: there is no second derivative.
func (PenaltyGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is five operations an element.
func (Penalty) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{5 * float64(in[0].Floats(n)), moved(n, in[0], out)}
}

// Cost is five operations an element.
func (PenaltyGrad) Cost(n int, in []Shape, out Shape) Cost { return each(5, n, in, out) }
