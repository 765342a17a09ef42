package graph

import "fmt"

// Concat lays values of the batch, [n a], [n b] and so on, side by side: [n a+b+…].
type Concat struct{}

// Name is "concat".
func (Concat) Name() string { return "concat" }

// Shape wants at least one operand.
func (Concat) Shape(in []Shape) (Shape, error) {
	if len(in) == 0 {
		return Shape{}, fmt.Errorf("it has no operands: give at least one")
	}
	sum := 0
	for _, s := range in {
		if !s.Batch || len(s.Dims) != 1 {
			return Shape{}, fmt.Errorf("an operand is %v: give [n m], reshape others", s)
		}
		if sum += s.Dims[0]; sum > MaxSize {
			return Shape{}, fmt.Errorf("it has more than %d columns", MaxSize)
		}
	}
	return PerSample(sum), nil
}

// Backward cuts the gradient.
func (Concat) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	out, from := make([]ID, len(at.In)), 0
	for i, id := range at.In {
		width := b.Node(id).Shape.Size()
		out[i] = None
		if want[i] {
			out[i] = b.Add("", Slice{from, from + width}, dy)
		}
		from += width
	}
	return out
}

// Cost is that of moving.
func (Concat) Cost(n int, in []Shape, out Shape) Cost { return each(0, n, in, out) }

// Slice is the columns From to To (excluded) of [n m].
type Slice struct{ From, To int }

// Name is "slice".
func (Slice) Name() string { return "slice" }

// Shape wants 0 <= From < To <= m.
func (o Slice) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if s := in[0]; !s.Batch || len(s.Dims) != 1 || o.From < 0 || o.From >= o.To || o.To > s.Dims[0] {
		return Shape{}, fmt.Errorf("columns %d to %d of %v: give some of [n m]", o.From, o.To, s)
	}
	return PerSample(o.To - o.From), nil
}

// Backward puts the gradient back between zeros.
func (o Slice) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Pad{o.From, b.Node(at.In[0]).Shape.Size()}, dy)}
}

// Cost is that of moving.
func (Slice) Cost(n int, in []Shape, out Shape) Cost { return each(0, n, []Shape{out}, out) }

// Pad puts [n m] into the columns from From on of zeros, [n Width].
type Pad struct{ From, Width int }

// Name is "pad".
func (Pad) Name() string { return "pad" }

// Shape wants 0 <= From and From+m <= Width.
func (o Pad) Shape(in []Shape) (Shape, error) {
	if err := operands(in, 1); err != nil {
		return Shape{}, err
	}
	if s := in[0]; !s.Batch || len(s.Dims) != 1 || o.From < 0 || o.From > o.Width-s.Dims[0] {
		return Shape{}, fmt.Errorf("%v does not fit into %d columns from column %d on", s, o.Width, o.From)
	}
	return PerSample(o.Width), nil
}

// Backward cuts the gradient.
func (o Pad) Backward(b *Builder, at Node, dy ID, _ []bool) []ID {
	return []ID{b.Add("", Slice{o.From, o.From + b.Node(at.In[0]).Shape.Size()}, dy)}
}

// Cost is that of moving.
func (Pad) Cost(n int, in []Shape, out Shape) Cost { return each(0, n, in, out) }
