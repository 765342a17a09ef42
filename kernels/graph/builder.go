package graph

import (
	"errors"
	"fmt"
	"slices"
)

// Builder makes a graph, node by node. The first error stays: what is added afterwards is None, and
// [Builder.Graph] returns the error. The zero value is ready.
type Builder struct {
	g     Graph
	names map[string]bool
	err   error
}

// Add adds a node. A name of "" is made up; names are unique. The Graph's error names the node.
func (b *Builder) Add(name string, op Op, in ...ID) ID {
	if b.err != nil {
		return None
	}
	if name == "" {
		name = fmt.Sprintf("%s_%d", op.Name(), len(b.g.nodes))
	}
	if b.names == nil {
		b.names = map[string]bool{}
	}
	if b.names[name] {
		b.Fail("graph: two nodes are called %q: give each a name of its own", name)
		return None
	}
	b.names[name] = true
	for i, id := range in {
		if id < 0 || int(id) >= len(b.g.nodes) {
			b.Fail("graph: node %q (%s): operand %d is no node of this graph", name, op.Name(), i)
			return None
		}
	}
	s, err := op.Shape(shapes(b.g.nodes, in))
	if err == nil {
		err = s.check()
	}
	if err != nil {
		b.Fail("graph: node %q (%s): %w", name, op.Name(), err)
		return None
	}
	id := ID(len(b.g.nodes))
	b.g.nodes = append(b.g.nodes, Node{id, name, op, slices.Clone(in), s})
	switch op.(type) {
	case Input:
		b.g.inputs = append(b.g.inputs, id)
	case Weight:
		b.g.weights = append(b.g.weights, id)
	}
	return id
}

// Fail notes an error unless there is one.
func (b *Builder) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// Node is the node with that number, which Add has returned.
func (b *Builder) Node(id ID) Node { return b.g.nodes[id] }

// Output says that a value is wanted, and calls it by name, which is unique among outputs.
func (b *Builder) Output(name string, id ID) {
	switch {
	case b.err != nil:
	case id < 0 || int(id) >= len(b.g.nodes):
		b.Fail("graph: output %q is no node of this graph", name)
	case slices.ContainsFunc(b.g.outputs, func(o Output) bool { return o.Name == name }):
		b.Fail("graph: two outputs are called %q: give each a name of its own", name)
	default:
		b.g.outputs = append(b.g.outputs, Output{name, id})
	}
}

// Graph is what has been added, with at least one output. The builder cannot be used afterwards.
func (b *Builder) Graph() (*Graph, error) {
	if b.err == nil && len(b.g.outputs) == 0 {
		b.Fail("graph: it has no output, so nothing of it would be computed: name one")
	}
	if b.err != nil {
		return nil, b.err
	}
	b.err = errors.New("graph: the builder has returned its graph: start with another one")
	g := b.g
	return &g, nil
}
