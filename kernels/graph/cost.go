package graph

// Cost is what a node takes: floating point operations, a multiply-add counting two, and the bytes
// of its operands and its result, each once. What a function such as exp takes counts as 10.
type Cost struct{ FLOPs, Bytes float64 }

// Cost is that of node n with a batch of size samples.
func (g *Graph) Cost(n Node, samples int) Cost { return n.Op.Cost(samples, g.Operands(n), n.Shape) }

// Add is both.
func (c Cost) Add(d Cost) Cost { return Cost{c.FLOPs + d.FLOPs, c.Bytes + d.Bytes} }

// moved is the bytes of values.
func moved(n int, values ...Shape) float64 {
	sum := 0.0
	for _, s := range values {
		sum += 4 * float64(s.Floats(n))
	}
	return sum
}

// each is the cost of so many operations for each float of the result.
func each(ops float64, n int, in []Shape, out Shape) Cost {
	return Cost{ops * float64(out.Floats(n)), moved(n, in...) + moved(n, out)}
}
