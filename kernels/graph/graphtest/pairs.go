package graphtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/monolith-go/monolith/kernels/graph"
)

// Layer adds nodes that compute something of in.
type Layer func(b *graph.Builder, in []graph.ID) graph.ID

// Pair is an operation written by hand, or a layer of such, and what it is composed of.
type Pair struct {
	Name            string
	In              []graph.Shape // inputs where they are the batch's, else weights
	Fused, Composed Layer
}

// Case is a graph of layer: its value y, a loss of it, and the gradients of that by all operands. Cases of one n
// have equal numbers.
func (p Pair) Case(layer Layer, n int) (*Case, error) {
	r, b, c := rand.New(rand.NewPCG(uint64(n), 5)), &graph.Builder{}, &Case{N: n}
	for i, s := range p.In {
		if name := fmt.Sprint("x", i); s.Batch {
			c.By, c.Inputs = append(c.By, b.Input(name, s.Dims...)), append(c.Inputs, numbers(r, s.Floats(n)))
		} else {
			c.By, c.Weights = append(c.By, b.Weight(name, s.Dims...)), append(c.Weights, numbers(r, s.Floats(n)))
		}
	}
	y := layer(b, c.By)
	b.Output("y", y)
	z := flat(b, y)
	width := b.Node(z).Shape.Size()
	c.Inputs, c.Weights = append(c.Inputs, numbers(r, n)), append(c.Weights, numbers(r, width))
	logit := b.Add("", graph.MatMul{}, z, b.Weight("weigh", width, 1))
	c.Loss = b.Add("loss", graph.MSE{}, logit, b.Input("label", 1))
	b.Output("loss", c.Loss)
	c.Gradients = b.Gradients(c.Loss, c.By...)
	for i, id := range c.Gradients {
		b.Output(fmt.Sprintf("gradient %d", i), id)
	}
	g, err := b.Graph()
	c.Graph = g
	return c, err
}

// sum adds up the columns of [n m].
func sum(b *graph.Builder, x graph.ID) graph.ID {
	return b.Add("", graph.MatMul{}, x, b.Const(1, graph.Fixed(b.Node(x).Shape.Last(), 1)))
}

func flat(b *graph.Builder, x graph.ID) graph.ID { return shaped(b, x, b.Node(x).Shape.Size()) }

func shaped(b *graph.Builder, x graph.ID, dims ...int) graph.ID {
	return b.Add("", graph.Reshape{Dims: dims}, x)
}

// columns is part i of [n m] cut into parts of equal width.
func columns(b *graph.Builder, x graph.ID, i, width int) graph.ID {
	return b.Add("", graph.Slice{From: i * width, To: (i + 1) * width}, x)
}

// Pairs are all of them, of a few floats each, or of as many as models have.
func Pairs(big bool) []Pair {
	per, fixed := graph.PerSample, graph.Fixed
	size := func(small, large int) int {
		if big {
			return large
		}
		return small
	}
	fields, dim, width, rank := size(4, 26), size(3, 16), size(5, 416), size(2, 64)
	return []Pair{
		{"fm", []graph.Shape{per(fields, dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Add("", graph.FM{}, in[0]) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				x, y := flat(b, in[0]), graph.None
				for i := range fields {
					for j := range i {
						p := sum(b, b.Add("", graph.Mul{}, columns(b, x, i, dim), columns(b, x, j, dim)))
						if y == graph.None {
							y = p
						} else {
							y = b.Add("", graph.Add{}, y, p)
						}
					}
				}
				return y
			}},
		{"ffm", []graph.Shape{per(fields, fields, dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Add("", graph.FFM{}, in[0]) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				x, y := flat(b, in[0]), graph.None
				for i := range fields {
					for j := range i {
						p := sum(b, b.Add("", graph.Mul{}, columns(b, x, i*fields+j, dim), columns(b, x, j*fields+i, dim)))
						if y == graph.None {
							y = p
						} else {
							y = b.Add("", graph.Add{}, y, p)
						}
					}
				}
				return y
			}},
		{"cross", []graph.Shape{per(width), per(width), fixed(width, width), fixed(width)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Cross("", in[0], in[1], in[2], in[3], false) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				z := b.Add("", graph.Add{}, b.Add("", graph.MatMul{}, in[1], in[2]), b.Add("", graph.Broadcast{Dims: []int{width}}, in[3]))
				return b.Add("", graph.Add{}, b.Add("", graph.Mul{}, in[0], z), in[1])
			}},
		{"cross of low rank", []graph.Shape{per(width), per(width), fixed(width, rank), fixed(rank, width), fixed(width)},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.CrossLowRank("", in[0], in[1], in[2], in[3], in[4], false)
			},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				z := b.Add("", graph.MatMul{}, b.Add("", graph.MatMul{}, in[1], in[2]), in[3])
				z = b.Add("", graph.Add{}, z, b.Add("", graph.Broadcast{Dims: []int{width}}, in[4]))
				return b.Add("", graph.Add{}, b.Add("", graph.Mul{}, in[0], z), in[1])
			}},
	}
}
