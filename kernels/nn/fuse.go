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

// fuse puts an activation, or a derivative's mask, into the product that alone feeds it. The node of
// the activation becomes the product: all that both read comes before it.
func (c *compiler) fuse() {
	for i, n := range c.nodes {
		if !c.used[i] || len(n.In) == 0 {
			continue
		}
		from := c.nodes[n.In[0]]
		mul, ok := from.Op.(graph.MatMul)
		if !ok || c.readers[from.ID] != 1 || mul.Finish != graph.Keep {
			continue
		}
		in := slices.Clone(from.In)
		switch n.Op.(type) {
		case graph.ReLU:
			if mul.Kind != graph.NN {
				continue
			}
			mul.Finish = graph.ToReLU
		case graph.Mask:
			if mul.Kind == graph.TN || n.In[1] == from.ID {
				continue
			}
			mul.Finish = graph.ToMask
			in = append(in, n.In[1])
		default:
			continue
		}
		c.used[from.ID] = false
		c.nodes[i] = graph.Node{ID: n.ID, Name: from.Name, Op: mul, In: in, Shape: n.Shape}
	}
}
