package graphtest

import "github.com/monolith-go/monolith/kernels/graph"

// model draws an operation that models are made of, over x, as [n m].
func (d *drawing) model(x graph.ID) graph.ID {
	switch d.r.IntN(1) {
	default: // the stack has a later reader, or none
		f := fields(d.width(x))
		stack := d.stack(x, f)
		y := d.Add("", graph.Scale{Factor: 0.25}, d.Add("", graph.FM{}, stack))
		if d.r.IntN(2) == 0 {
			return d.Add("", graph.Concat{}, y, d.Add("", graph.Reshape{Dims: []int{d.width(x)}}, stack))
		}
		return y
	}
}

// stack is x as rows of equal length.
func (d *drawing) stack(x graph.ID, rows int) graph.ID {
	return d.Add("", graph.Reshape{Dims: []int{rows, d.width(x) / rows}}, x)
}
