// Package graph says what a model computes, as data: nodes, each an operation on nodes before it.
//
// An operation knows its shapes, its cost and its derivative; it does not know how it is computed.
// A derivative adds nodes to the graph (there is no tape), so what goes backward is data like what
// goes forward: package ref computes a graph in float64 and bounds the error of float32,
// kernels/nn compiles it for the processor, and another back end is one more table from operations
// to its kernels.
//
// Shapes are fixed but for the batch, whose size n is known when a graph is run. The only sums over
// the batch are MatMul's of kind TN and SumRows, which are gemm's chains, and the losses', in float64
// and in order. Everything else belongs to a sample. So bits depend neither on threads nor on how
// a batch is laid out, and a sample's values not on its batch.
//
// An operation is one file here, one function in ref and one in nn.
package graph

// ID is a node's number in its graph. Nodes read nodes of smaller numbers only.
type ID int

// None is the ID of no node.
const None ID = -1

// Op is one operation. Its values are immutable and hold all that shapes do not say.
type Op interface {
	// Name is the operation's name in messages and listings.
	Name() string

	// Shape is the result's for operands of the shapes in, or what is wrong with them.
	Shape(in []Shape) (Shape, error)

	// Backward adds the nodes of the derivative: for each operand that is wanted the gradient by
	// it, given dy, the gradient by the node. The others are None. It reports with [Builder.Fail].
	Backward(b *Builder, at Node, dy ID, want []bool) []ID

	// Cost is what n samples take.
	Cost(n int, in []Shape, out Shape) Cost
}

// Node is an operation and what it reads.
type Node struct {
	ID    ID
	Name  string
	Op    Op
	In    []ID
	Shape Shape
}

// Output is a value that a graph is for.
type Output struct {
	Name string
	ID   ID
}

// Graph is complete and does not change. What its methods return is not to be changed.
type Graph struct {
	nodes           []Node
	inputs, weights []ID
	outputs         []Output
}

// Nodes are all nodes, each after those that it reads.
func (g *Graph) Nodes() []Node { return g.nodes }

// Inputs are the nodes that come with a batch, in the order in which they were added.
func (g *Graph) Inputs() []ID { return g.inputs }

// Weights are the variables, in the order in which they were added.
func (g *Graph) Weights() []ID { return g.weights }

// Outputs are in the order in which they were added.
func (g *Graph) Outputs() []Output { return g.outputs }

// Operands are the shapes of what node n reads.
func (g *Graph) Operands(n Node) []Shape { return shapes(g.nodes, n.In) }

func shapes(nodes []Node, in []ID) []Shape {
	s := make([]Shape, len(in))
	for i, id := range in {
		s[i] = nodes[id].Shape
	}
	return s
}
