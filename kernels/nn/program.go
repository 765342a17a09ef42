// Package nn compiles a graph for this processor: products by kernels/gemm, the rest by loops over
// samples, on the threads of a kernels/par pool.
//
// Who trains or scores compiles once, and runs the Program as often as there are batches: each time
// with a Lane (a pool and memory, one run at a time), a version of the weights (which all lanes
// share) and a batch of any size. A run allocates nothing once its lane has seen the size.
//
// Bits depend on the graph, the weights, the batch and gemm's back end, not on threads, lanes or what
// ran before.
package nn

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/kernels/graph"
)

// Port is an input, a variable or an output of a program.
type Port struct {
	Name  string
	Shape graph.Shape
}

// Options are how to compile.
type Options struct {
	// Unfused leaves each node an operation of its own, with memory of its own: what the program is
	// otherwise compared with. Bits are the same.
	Unfused bool
}

// Program is what is done for a batch, in order. It is immutable and safe for concurrent use, each
// goroutine with its [Lane].
type Program struct {
	inputs, weights, outputs []Port
	steps                    []step
	places                   []place // of nodes, where they have one
	sizes                    []int   // of nodes that are fixed
	at                       []int   // of buffers in the arena
	samples, fixed           int     // floats of the arena, by sample and in all
	readsInput, readsWeight  []bool
	flows                    []flow // of nodes, in order
}

// step is one operation.
type step struct {
	node   graph.Node
	shapes []graph.Shape // of in
	in     []int         // places
	out    int
	aside  int // what the kernel has beside its result, or -1
	weight int // the variable that is the second operand, or -1
	kernel kernel
}

// kernel is how an operation is computed.
type kernel interface {
	run(l *Lane, s *step) error
}

// scratch is a kernel that needs so many floats a sample while it runs.
type scratch interface{ aside() int }

// Compile makes a program of what g's outputs depend on. It returns an error, naming the node, for an
// operation that it has no kernel for.
func Compile(g *graph.Graph, o Options) (*Program, error) {
	c := &compiler{nodes: slices.Clone(g.Nodes()), outputs: g.Outputs(), p: &Program{}}
	c.prune()
	if !o.Unfused {
		c.fuse()
	}
	for i, id := range g.Inputs() {
		n := g.Nodes()[id]
		c.p.inputs = append(c.p.inputs, Port{n.Name, n.Shape})
		c.leaf(id, place{root: inputRoot, index: i})
		c.p.readsInput = append(c.p.readsInput, c.used[id])
	}
	for i, id := range g.Weights() {
		n := g.Nodes()[id]
		c.p.weights = append(c.p.weights, Port{n.Name, n.Shape})
		c.leaf(id, place{root: weightRoot, index: i})
		c.p.readsWeight = append(c.p.readsWeight, c.used[id])
	}
	for _, out := range g.Outputs() {
		c.p.outputs = append(c.p.outputs, Port{out.Name, g.Nodes()[out.ID].Shape})
	}
	c.place(!o.Unfused)
	c.flows()
	if err := c.lower(); err != nil {
		return nil, err
	}
	c.colour()
	return c.p, nil
}

// Inputs are what a run takes with the batch, in order.
func (p *Program) Inputs() []Port { return slices.Clone(p.inputs) }

// Weights are the variables, in order.
func (p *Program) Weights() []Port { return slices.Clone(p.weights) }

// Outputs are what a run gives, in order.
func (p *Program) Outputs() []Port { return slices.Clone(p.outputs) }

// Reads says whether the outputs depend on input i; one that is not read may be nil in a run.
func (p *Program) Reads(i int) bool { return p.readsInput[i] }

// Memory is the floats that a run needs in its lane for n samples, weights packed and what gemm packs
// aside.
func (p *Program) Memory(n int) int { return p.samples*n + p.fixed }

// Steps lists what a run does, an operation a line, with its cost for n samples.
func (p *Program) Steps(n int) []Step {
	out := make([]Step, len(p.steps))
	for i, s := range p.steps {
		out[i] = Step{s.node.Name, s.node.Op, s.node.Op.Cost(n, s.shapes, s.node.Shape)}
	}
	return out
}

// Step is one operation of a program.
type Step struct {
	Name string
	Op   graph.Op
	Cost graph.Cost
}

// String is like "deep/0: matmul, 16.8 MFLOP".
func (s Step) String() string {
	return fmt.Sprintf("%s: %s, %.3g MFLOP, %.3g MB", s.Name, s.Op.Name(), s.Cost.FLOPs/1e6, s.Cost.Bytes/1e6)
}
