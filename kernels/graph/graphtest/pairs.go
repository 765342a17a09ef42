package graphtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

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

// sizes are those of the pairs' operands.
type sizes struct{ fields, dim, width, rank, steps, units int }

// Pairs are all of them, of a few floats each, or of as many as models have.
func Pairs(big bool) []Pair {
	s := sizes{3, 4, 5, 2, 3, 5}
	if big {
		s = sizes{26, 16, 416, 64, 50, 80}
	}
	return slices.Concat(s.terms(), s.norms(), s.sequences())
}

// terms are what crosses fields.
func (s sizes) terms() []Pair {
	per, fixed := graph.PerSample, graph.Fixed
	fields, dim, width, rank := s.fields, s.dim, s.width, s.rank
	return []Pair{
		{"fm", []graph.Shape{per(fields, dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Add("", graph.FM{}, in[0]) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				x := flat(b, in[0])
				all := b.Add("", graph.Sum{}, in[0])
				square, squares := sum(b, b.Add("", graph.Mul{}, all, all)), sum(b, b.Add("", graph.Mul{}, x, x))
				y := b.Add("", graph.Add{}, square, b.Add("", graph.Scale{Factor: -1}, squares))
				return b.Add("", graph.Scale{Factor: 0.5}, y)
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
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.Cross("", in[0], in[1], in[2], in[3], graph.FP32)
			},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				z := b.Add("", graph.Add{}, b.Add("", graph.MatMul{}, in[1], in[2]), b.Add("", graph.Broadcast{Dims: []int{width}}, in[3]))
				return b.Add("", graph.Add{}, b.Add("", graph.Mul{}, in[0], z), in[1])
			}},
		{"cross of low rank", []graph.Shape{per(width), per(width), fixed(width, rank), fixed(rank, width), fixed(width)},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.CrossLowRank("", in[0], in[1], in[2], in[3], in[4], graph.FP32)
			},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				z := b.Add("", graph.MatMul{}, b.Add("", graph.MatMul{}, in[1], in[2]), in[3])
				z = b.Add("", graph.Add{}, z, b.Add("", graph.Broadcast{Dims: []int{width}}, in[4]))
				return b.Add("", graph.Add{}, b.Add("", graph.Mul{}, in[0], z), in[1])
			}},
	}
}

// norms are along rows.
func (s sizes) norms() []Pair {
	per, fixed := graph.PerSample, graph.Fixed
	fields, dim := s.fields, s.dim
	return []Pair{
		{"softmax", []graph.Shape{per(fields, dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Add("", graph.Softmax{}, in[0]) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				e := b.Add("", graph.Exp{}, in[0])
				over := b.Add("", graph.Reciprocal{}, b.Add("", graph.Sum{Axis: 1}, e))
				return b.Add("", graph.Mul{}, e, b.Add("", graph.Repeat{Axis: 1, Count: dim}, over))
			}},
		{"softmax by lengths", []graph.Shape{per(dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.Add("", graph.Softmax{Lengths: true}, in[0], b.Const(1.5, per(1)))
			},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.Add("", graph.Pad{Width: dim}, b.Add("", graph.Softmax{}, b.Add("", graph.Slice{To: 2}, in[0])))
			}},
		{"layer norm", []graph.Shape{per(fields, dim), fixed(dim), fixed(dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.LayerNorm("", in[0], in[1], in[2], 1e-3) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				row := func(x graph.ID) graph.ID { return b.Add("", graph.Repeat{Axis: 1, Count: dim}, x) }
				all := func(x graph.ID) graph.ID {
					return b.Add("", graph.Broadcast{Dims: []int{fields, dim}}, x)
				}
				mean := b.Add("", graph.Scale{Factor: -1}, b.Mean("", 1, in[0]))
				d := b.Add("", graph.Add{}, in[0], row(mean))
				variance := b.Mean("", 1, b.Add("", graph.Mul{}, d, d))
				root := b.Add("", graph.Sqrt{}, b.Add("", graph.Scale{Factor: 1, Shift: 1e-3}, variance))
				y := b.Add("", graph.Mul{}, d, row(b.Add("", graph.Reciprocal{}, root)))
				return b.Add("", graph.Add{}, b.Add("", graph.Mul{}, y, all(in[1])), all(in[2]))
			}},
		{"l2 norm", []graph.Shape{per(fields, dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.Add("", graph.L2Norm{Epsilon: 1e-12}, in[0])
			},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				root := b.Add("", graph.Sqrt{}, b.Add("", graph.Sum{Axis: 1}, b.Add("", graph.Mul{}, in[0], in[0])))
				return b.Add("", graph.Mul{}, in[0], b.Add("", graph.Repeat{Axis: 1, Count: dim}, b.Add("", graph.Reciprocal{}, root)))
			}},
	}
}

// sequences are what attends, mixes and goes step by step.
func (s sizes) sequences() []Pair {
	per, fixed := graph.PerSample, graph.Fixed
	dim, width, steps, units := s.dim, s.width, s.steps, s.units
	return []Pair{
		{"dot", []graph.Shape{per(width), per(width)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Dot("", in[0], in[1]) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return sum(b, b.Add("", graph.Mul{}, in[0], in[1]))
			}},
		{"attend", []graph.Shape{per(dim), per(steps, dim), fixed(dim, units), fixed(dim, units), fixed(dim, units), fixed(units)},
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.Attend("", in[0], in[1], in[2], in[3], in[4], in[5], graph.FP32)
			},
			func(b *graph.Builder, in []graph.ID) graph.ID { // [q, k, q⊙k]·w, step by step
				q, k, y := in[0], flat(b, in[1]), []graph.ID{}
				for t := range steps {
					k := columns(b, k, t, dim)
					z := b.Dense("", q, in[2], in[5], graph.FP32)
					z = b.Add("", graph.Add{}, z, b.Add("", graph.MatMul{}, k, in[3]))
					y = append(y, b.Add("", graph.Add{}, z, b.Add("", graph.MatMul{}, b.Add("", graph.Mul{}, q, k), in[4])))
				}
				return shaped(b, b.Add("", graph.Concat{}, y...), steps, units)
			}},
		{"weigh", []graph.Shape{per(steps, 1), per(steps, dim)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Weigh("", in[0], in[1]) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				w := b.Add("", graph.Repeat{Axis: 1, Count: dim}, flat(b, in[0]))
				return b.Add("", graph.Sum{}, b.Add("", graph.Mul{}, w, in[1]))
			}},
		{"mix", []graph.Shape{per(3), per(units), per(units), per(units)},
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Mix("", in[0], in[1:]...) },
			func(b *graph.Builder, in []graph.ID) graph.ID {
				e := b.Add("", graph.Exp{}, in[0])
				over, y := b.Add("", graph.Reciprocal{}, sum(b, e)), graph.None
				for i, expert := range in[1:] {
					w := b.Add("", graph.Mul{}, columns(b, e, i, 1), over)
					w = b.Add("", graph.MatMul{}, w, b.Const(1, fixed(1, units)))
					if w = b.Add("", graph.Mul{}, w, expert); y == graph.None {
						y = w
					} else {
						y = b.Add("", graph.Add{}, y, w)
					}
				}
				return y
			}},
		{"gru", gruShapes(steps, dim, false),
			func(b *graph.Builder, in []graph.ID) graph.ID { return b.Add("", graph.GRU{}, in...) },
			func(b *graph.Builder, in []graph.ID) graph.ID { return unrolled(b, in, steps, steps) }},
		{"augru", gruShapes(steps, dim, true),
			func(b *graph.Builder, in []graph.ID) graph.ID {
				return b.Add("", graph.GRU{Attention: true, Lengths: true}, append(in, b.Const(1.5, per(1)))...)
			},
			func(b *graph.Builder, in []graph.ID) graph.ID { return unrolled(b, in, steps, 2) }},
	}
}

func gruShapes(t, h int, attention bool) []graph.Shape {
	s := []graph.Shape{graph.PerSample(t, 2*h), graph.PerSample(t, h), graph.Fixed(h, 2*h), graph.Fixed(h, h)}
	if attention {
		s = append(s, graph.PerSample(t, 1))
	}
	return s
}

// unrolled is a GRU step by step, of which count do.
func unrolled(b *graph.Builder, in []graph.ID, steps, count int) graph.ID {
	add := func(op graph.Op, x, y graph.ID) graph.ID { return b.Add("", op, x, y) }
	less := func(x graph.ID) graph.ID { return b.Add("", graph.Scale{Factor: -1, Shift: 1}, x) }
	h := b.Node(in[1]).Shape.Last()
	state := b.Const(0, graph.PerSample(h))
	var states []graph.ID
	for t := range steps {
		if t >= count {
			states = append(states, state)
			continue
		}
		gates := columns(b, flat(b, in[0]), t, 2*h)
		gates = b.Add("", graph.Sigmoid{}, add(graph.Add{}, gates, add(graph.MatMul{}, state, in[2])))
		r, u := columns(b, gates, 0, h), columns(b, gates, 1, h)
		c := add(graph.MatMul{}, add(graph.Mul{}, r, state), in[3])
		c = b.Add("", graph.Tanh{}, add(graph.Add{}, columns(b, flat(b, in[1]), t, h), c))
		if len(in) > 4 {
			rest := less(columns(b, flat(b, in[4]), t, 1))
			u = add(graph.Mul{}, u, add(graph.MatMul{}, rest, b.Const(1, graph.Fixed(1, h))))
		}
		state = add(graph.Add{}, add(graph.Mul{}, u, state), add(graph.Mul{}, less(u), c))
		states = append(states, state)
	}
	return shaped(b, b.Add("", graph.Concat{}, states...), steps, h)
}
