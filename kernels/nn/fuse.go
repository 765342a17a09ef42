package nn

import (
	"slices"

	"github.com/monolith-go/monolith/kernels/graph"
)

// compiler is a program that is being made. Nodes keep their numbers; used says which are left.
type compiler struct {
	nodes   []graph.Node
	outputs []graph.Output
	used    []bool
	readers []int // how often a node is read, or wanted
	places  []place
	buffers int    // of the arena
	viewed  []bool // a node is columns of what it reads, and nothing is to be done
	p       *Program
}

// prune finds what the outputs depend on.
func (c *compiler) prune() {
	c.used, c.readers = make([]bool, len(c.nodes)), make([]int, len(c.nodes))
	for _, o := range c.outputs {
		c.used[o.ID] = true
		c.readers[o.ID]++
	}
	for i := len(c.nodes) - 1; i >= 0; i-- {
		if !c.used[i] {
			continue
		}
		for _, in := range c.nodes[i].In {
			c.used[in] = true
			c.readers[in]++
		}
	}
}

// fuse makes one node of two where the second alone reads the first. The second becomes that node: all
// that both read comes before it.
func (c *compiler) fuse() {
	for i, n := range c.nodes {
		if c.used[i] && !c.intoProduct(n) {
			c.mulAdd(n)
		}
	}
}

// intoProduct puts an activation, or a derivative's mask, into the product that alone feeds it.
func (c *compiler) intoProduct(n graph.Node) bool {
	if len(n.In) == 0 {
		return false
	}
	from := c.nodes[n.In[0]]
	mul, ok := from.Op.(graph.MatMul)
	if !ok || c.readers[from.ID] != 1 || mul.Finish != graph.Keep {
		return false
	}
	in := slices.Clone(from.In)
	switch n.Op.(type) {
	case graph.ReLU:
		if mul.Kind != graph.NN {
			return false
		}
		mul.Finish = graph.ToReLU
	case graph.Mask:
		if mul.Kind == graph.TN || mul.Precision == graph.INT8 || n.In[1] == from.ID {
			return false
		}
		mul.Finish = graph.ToMask
		in = append(in, n.In[1])
	default:
		return false
	}
	c.used[from.ID] = false
	c.nodes[n.ID] = graph.Node{ID: n.ID, Name: from.Name, Op: mul, In: in, Shape: n.Shape}
	return true
}

// mulAdd puts a product by element into the sum that alone reads it.
func (c *compiler) mulAdd(n graph.Node) {
	if _, ok := n.Op.(graph.Add); !ok {
		return
	}
	for k, id := range n.In {
		from := c.nodes[id]
		if _, ok := from.Op.(graph.Mul); ok && c.readers[id] == 1 {
			c.used[id] = false
			c.nodes[n.ID] = graph.Node{ID: n.ID, Name: n.Name, Op: graph.MulAdd{}, In: []graph.ID{from.In[0], from.In[1], n.In[1-k]}, Shape: n.Shape}
			return
		}
	}
}
