package graphtest

import "github.com/monolith-go/monolith/kernels/graph"

// model draws an operation that models are made of, over x, as [n m].
func (d *drawing) model(x graph.ID) graph.ID {
	m := d.width(x)
	switch d.r.IntN(6) {
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
		return d.Cross("", d.as(m), x, d.weight(m, m), d.weight(m), d.o.BF16)
	case 3:
		r := 1 + d.r.IntN(m)
		x0 := d.Add("", graph.Scale{Factor: 0.1}, d.as(m)) // else values grow, and bounds more so
		return d.CrossLowRank("", x0, x, d.weight(m, r), d.weight(r, m), d.weight(m), d.o.BF16)
	case 4: // what becomes MulAdd
		p := d.Add("", graph.Mul{}, x, d.as(m))
		return d.Add("", graph.Add{}, p, d.as(m))
	default:
		p := d.Add("", graph.Mul{}, x, x)
		return d.Add("", graph.Add{}, d.Add("", graph.Mul{}, x, d.as(m)), p)
	}
}

// stack is x as rows of equal length.
func (d *drawing) stack(x graph.ID, rows int) graph.ID {
	return d.Add("", graph.Reshape{Dims: []int{rows, d.width(x) / rows}}, x)
}
