// Package graphtest draws graphs for the tests of what computes them.
package graphtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/monolith-go/monolith/kernels/graph"
)

// Case is a graph and what it is run with.
type Case struct {
	Graph           *graph.Graph
	N               int
	Inputs, Weights [][]float32
	Loss            graph.ID
	By, Gradients   []graph.ID // the loss's gradient by each of By
}

// Wide are a case's values in float64.
func Wide(values [][]float32) [][]float64 {
	out := make([][]float64, len(values))
	for i, v := range values {
		out[i] = make([]float64, len(v))
		for k, x := range v {
			out[i][k] = float64(x)
		}
	}
	return out
}

// drawing is a graph that grows.
type drawing struct {
	graph.Builder
	r      *rand.Rand
	values []graph.ID // [n m], from which the next node takes its operands
	by     []graph.ID
	o      Options

	lengths graph.ID // some of a row
}

// Options are what may be in a graph.
type Options struct {
	BF16 bool // products are; not INT8, which has no gradients
	Sums bool // over the batch, between inputs and loss
}

func (o Options) products() graph.Precision {
	if o.BF16 {
		return graph.BF16
	}
	return graph.FP32
}

// Draw draws a graph of every operation there is, in any order, with a loss of them and its gradients by all
// inputs and weights, and some samples. Its outputs are the loss, the gradients and a few values
// between, some twice, some as they came.
func Draw(r *rand.Rand, n int, o Options) (*Case, error) {
	d := &drawing{r: r, o: o}
	for i := range 1 + r.IntN(3) {
		d.by = append(d.by, d.Input(fmt.Sprintf("x%d", i), 1+r.IntN(20)))
	}
	d.values = append(d.values, d.by...)
	label := d.Input("label", 1)
	d.lengths = d.Input("lengths", 1)
	for range 2 + r.IntN(10) {
		d.values = append(d.values, d.next())
	}
	last := d.values[len(d.values)-1]
	if r.IntN(2) == 0 {
		last = d.Add("", graph.Concat{}, d.any(), last, d.any())
	}
	y := d.dense(last, 1, true)
	c := &Case{N: n}
	if r.IntN(2) == 0 {
		c.Loss = d.Add("", graph.CrossEntropy{}, y, label)
	} else {
		c.Loss = d.Add("", graph.MSE{}, y, label)
	}
	switch r.IntN(7) {
	case 6: // of a variable, and of a value of the batch
		penalty := graph.Penalty{L1: float32(r.IntN(2)) / 4, L2: r.Float32()}
		of := d.Add("", graph.TimesBatch{}, d.Add("", penalty, d.by[len(d.by)-1]))
		c.Loss = d.Add("", graph.Add{}, c.Loss, d.Add("", graph.Add{}, of, d.Add("", penalty, d.any())))
	case 5:
		c.Loss = d.Add("", graph.Add{}, c.Loss, d.Add("", graph.InBatchAUC{}, d.dense(d.any(), 1, true), label))
	case 4:
		op, in := graph.InBatchSoftmax{LogQ: r.IntN(2) == 0}, []graph.ID{d.any()}
		if in = append(in, d.as(d.width(in[0]))); op.LogQ {
			in = append(in, d.lengths) // which nothing goes back to
		}
		for i := range 2 { // towers of length 1: products of others grow
			in[i] = d.Add("", graph.L2Norm{Epsilon: 0.5}, in[i])
		}
		c.Loss = d.Add("", graph.Add{}, c.Loss, d.Add("", op, in...))
	case 0:
		c.Loss = d.Add("", graph.TimesBatch{}, c.Loss)
	case 1:
		c.Loss = d.Add("", graph.Scale{Factor: 0.5}, c.Loss)
	case 2:
		other := d.Add("", graph.MSE{}, d.dense(d.any(), 1, false), label)
		c.Loss = d.Add("", graph.Add{}, c.Loss, d.Add("", graph.TimesBatch{}, other))
	case 3:
		other := d.Add("", graph.CrossEntropy{Weighted: true}, d.dense(d.any(), 1, true), label, d.lengths)
		c.Loss = d.Add("", graph.Add{}, c.Loss, d.Add("", graph.Add{}, other, d.Add("", graph.MSE{Weighted: true}, d.dense(d.any(), 1, false), label, d.lengths)))
	}
	c.By = d.by
	c.Gradients = d.Gradients(c.Loss, c.By...)
	d.Output("loss", c.Loss)
	for i, id := range c.Gradients {
		d.Output(fmt.Sprintf("gradient %d", i), id)
	}
	for i := range r.IntN(5) {
		d.Output(fmt.Sprintf("value %d", i), d.any())
	}
	g, err := d.Graph()
	if err != nil {
		return nil, err
	}
	c.Graph = g
	for _, id := range g.Inputs() {
		x := numbers(r, g.Nodes()[id].Shape.Floats(n))
		if id == d.lengths {
			for i := range x {
				x[i] = float32(r.IntN(12)-2) / 2
			}
		}
		c.Inputs = append(c.Inputs, x)
	}
	for _, id := range g.Weights() {
		c.Weights = append(c.Weights, numbers(r, g.Nodes()[id].Shape.Size()))
	}
	return c, nil
}

func numbers(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()) / 2
	}
	return x
}

func (d *drawing) any() graph.ID { return d.values[d.r.IntN(len(d.values))] }

func (d *drawing) width(id graph.ID) int { return d.Node(id).Shape.Last() }

func (d *drawing) weight(dims ...int) graph.ID {
	w := d.Weight("", dims...)
	d.by = append(d.by, w)
	return w
}

func (d *drawing) dense(x graph.ID, out int, bias bool) graph.ID {
	w := d.weight(d.width(x), out)
	if bias {
		return d.Dense("", x, w, d.weight(out), d.o.products())
	}
	return d.Add("", graph.MatMul{Precision: d.o.products()}, x, w)
}

// next draws one more value [n m].
func (d *drawing) next() graph.ID {
	x := d.any()
	m := d.width(x)
	if d.r.IntN(3) == 0 {
		return d.model(x)
	}
	kinds := 16
	if d.o.Sums {
		kinds = 18
	}
	switch d.r.IntN(kinds) {
	case 0, 1:
		return d.Add("", graph.ReLU{}, d.dense(x, 1+d.r.IntN(40), true))
	case 2:
		return d.dense(x, 1+d.r.IntN(40), d.r.IntN(2) == 0)
	case 3:
		return d.Add("", graph.Sigmoid{}, x)
	case 4:
		return d.Add("", graph.Tanh{}, x)
	case 5:
		return d.Add("", graph.Add{}, x, d.as(m))
	case 6:
		return d.Add("", graph.Mul{}, x, d.as(m))
	case 7:
		return d.Add("", graph.Scale{Factor: float32(d.r.NormFloat64()), Shift: float32(d.r.IntN(2))}, x)
	case 8:
		return d.Add("", graph.Concat{}, x, d.any(), d.any())
	case 9:
		from := d.r.IntN(m)
		return d.Add("", graph.Slice{From: from, To: from + 1 + d.r.IntN(m-from)}, x)
	case 10:
		from := d.r.IntN(3)
		return d.Add("", graph.Pad{From: from, Width: from + m + d.r.IntN(3)}, x)
	case 11:
		return d.Add("", graph.Add{}, x, d.Add("", graph.Broadcast{Dims: []int{m}}, d.weight(m)))
	case 12:
		return d.Add("", graph.Mask{}, x, d.as(m))
	case 13:
		return d.Add("", graph.MulScalar{}, x, d.Add("", graph.Scale{Factor: 3, Shift: 0.5}, d.Const(0.25, graph.Fixed())))
	case 14:
		return d.Add("", graph.MatMul{Kind: graph.NT, Precision: d.o.products()}, x, d.weight(1+d.r.IntN(20), m))
	case 16: // a product that is a factor
		return d.Add("", graph.MatMul{Precision: d.o.products()}, x, d.Add("", graph.MatMul{Kind: graph.TN, Precision: d.o.products()}, x, d.any()))
	case 17:
		return d.Add("", graph.Broadcast{Dims: []int{m}}, d.Add("", graph.SumRows{}, x))
	default: // a layer over rows of each sample
		rows := fields(m)
		out := 1 + d.r.IntN(5)
		y := d.dense(d.Add("", graph.Reshape{Dims: []int{rows, m / rows}}, x), out, true)
		if d.r.IntN(2) == 0 {
			y = d.Add("", graph.ReLU{}, y)
		}
		return d.Add("", graph.Reshape{Dims: []int{rows * out}}, y)
	}
}

// fields is how many rows m columns are made, if they can be.
func fields(m int) int {
	for k := 2; k <= m; k++ {
		if m%k == 0 {
			return k
		}
	}
	return 1
}

// as is some value of m columns, made so if need be.
func (d *drawing) as(m int) graph.ID {
	x := d.any()
	switch w := d.width(x); {
	case w == m:
		return x
	case w > m:
		return d.Add("", graph.Slice{From: 0, To: m}, x)
	default:
		return d.Add("", graph.Pad{From: m - w, Width: m}, x)
	}
}
