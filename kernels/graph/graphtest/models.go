package graphtest

import "github.com/monolith-go/monolith/kernels/graph"

// model draws an operation that models are made of, over x, as [n m].
func (d *drawing) model(x graph.ID) graph.ID {
	m := d.width(x)
	switch n := d.r.IntN(27); n {
	case 0: // the stack has a later reader, or none
		stack := d.stack(x, fields(m))
		y := d.Add("", graph.Scale{Factor: 0.25}, d.Add("", graph.FM{}, stack))
		if d.r.IntN(2) == 0 {
			return d.Add("", graph.Concat{}, y, d.Add("", graph.Reshape{Dims: []int{m}}, stack))
		}
		return y
	case 1:
		f, dim := 1+d.r.IntN(3), 1+d.r.IntN(9)
		return d.Add("", graph.FFM{}, d.Add("", graph.Reshape{Dims: []int{f, f, dim}}, d.as(f*f*dim)))
	case 2:
		return d.Cross("", d.as(m), x, d.weight(m, m), d.weight(m), d.o.products())
	case 3:
		r := 1 + d.r.IntN(m)
		x0 := d.Add("", graph.Scale{Factor: 0.1}, d.as(m)) // else values grow, and bounds more so
		return d.CrossLowRank("", x0, x, d.weight(m, r), d.weight(r, m), d.weight(m), d.o.products())
	case 4: // what becomes MulAdd
		p := d.Add("", graph.Mul{}, x, d.as(m))
		return d.Add("", graph.Add{}, p, d.as(m))
	case 5:
		return d.Add("", graph.SiLU{}, x)
	case 6:
		return d.Add("", graph.GELU{}, x)
	case 7:
		return d.Add("", graph.PReLU{}, x, d.weight(m))
	case 8:
		y := d.Add("", graph.PReLU{}, d.stack(x, fields(m)), d.weight(m/fields(m)))
		return d.Add("", graph.Reshape{Dims: []int{m}}, y)
	case 9:
		return d.Add("", graph.Exp{}, d.Add("", graph.Tanh{}, x))
	case 10: // of what is above −1, and far from where they are steep
		return d.Add("", graph.Log1p{}, d.Add("", graph.Mul{}, x, x))
	case 11:
		return d.Add("", graph.Sqrt{}, d.above(x))
	case 12:
		return d.Add("", graph.Reciprocal{}, d.above(x))
	case 13:
		return d.Add("", graph.MulRow{}, d.Add("", graph.AddRow{}, x, d.weight(m)), d.weight(m))
	default:
		return d.modelOfStacks(n, x)
	}
}

// modelOfStacks is drawing n of model, from the fourteenth on: what reads a sample as vectors,
// and what is left.
func (d *drawing) modelOfStacks(n int, x graph.ID) graph.ID {
	m := d.width(x)
	switch n {
	case 14:
		f := fields(m)
		if d.r.IntN(2) == 0 {
			return d.Add("", graph.Sum{}, d.stack(x, f))
		}
		return d.Mean("", 1, d.stack(x, f))
	case 15:
		y := d.Add("", graph.Repeat{Axis: d.r.IntN(2), Count: 1 + d.r.IntN(2)}, x)
		return d.Add("", graph.Reshape{Dims: []int{d.Node(y).Shape.Size()}}, y)
	case 16:
		y := d.Add("", graph.Softmax{}, d.stack(x, fields(m)))
		return d.Add("", graph.Reshape{Dims: []int{m}}, y)
	case 17:
		y := d.Add("", graph.Softmax{Lengths: true}, d.stack(x, fields(m)), d.lengths)
		return d.Add("", graph.Reshape{Dims: []int{m}}, y)
	case 18:
		y := d.LayerNorm("", d.stack(x, fields(m)), d.weight(m/fields(m)), d.weight(m/fields(m)), 0.1)
		return d.Add("", graph.Reshape{Dims: []int{m}}, y)
	case 19: // some rows are shorter than epsilon's root, some longer
		return d.Add("", graph.L2Norm{Epsilon: 0.5}, x)
	case 20: // each kind of product, of two of the sample's matrices
		f := fields(m)
		y := d.stack(d.as(m), f)
		kind := graph.Kind(d.r.IntN(3))
		if kind == graph.NN {
			y = d.stack(d.as(m), m/f)
		}
		y = d.Add("", graph.BatchMatMul{Kind: kind}, d.stack(x, f), y)
		y = d.Add("", graph.Reshape{Dims: []int{d.Node(y).Shape.Size()}}, y)
		return d.Add("", graph.Scale{Factor: 0.25}, y)
	case 21:
		return d.Dot("", x, d.Add("", graph.Tanh{}, d.as(m)))
	case 22:
		f := fields(m)
		y := d.Add("", graph.AddEach{}, d.Add("", graph.MulEach{}, d.stack(x, f), d.as(m/f)), d.as(m/f))
		return d.Add("", graph.Reshape{Dims: []int{m}}, y)
	case 23:
		f := fields(m)
		return d.Add("", graph.SumProducts{}, d.stack(x, f), d.stack(d.as(m), f))
	case 24:
		return d.gru()
	case 25:
		return d.Mix("", d.dense(x, 2, true), d.as(m), x)
	default:
		p := d.Add("", graph.Mul{}, x, x)
		return d.Add("", graph.Add{}, d.Add("", graph.Mul{}, x, d.as(m)), p)
	}
}

// above is x² + 1.
func (d *drawing) above(x graph.ID) graph.ID {
	return d.Add("", graph.Scale{Factor: 1, Shift: 1}, d.Add("", graph.Mul{}, x, x))
}

// stack is x as rows of equal length.
func (d *drawing) stack(x graph.ID, rows int) graph.ID {
	return d.Add("", graph.Reshape{Dims: []int{rows, d.width(x) / rows}}, x)
}

// gru is a short sequence of any kind, flat.
func (d *drawing) gru() graph.ID {
	t, h := 1+d.r.IntN(3), 1+d.r.IntN(4)
	op := graph.GRU{Attention: d.r.IntN(2) == 0, Lengths: d.r.IntN(2) == 0}
	in := []graph.ID{d.stack(d.as(t*2*h), t), d.stack(d.as(t*h), t), d.weight(h, 2*h), d.weight(h, h)}
	if op.Attention {
		in = append(in, d.stack(d.Add("", graph.Sigmoid{}, d.as(t)), t))
	}
	if op.Lengths {
		in = append(in, d.lengths)
	}
	return d.Add("", graph.Reshape{Dims: []int{t * h}}, d.Add("", op, in...))
}
