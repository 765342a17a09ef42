package nn

import (
	"cmp"
	"slices"

	"github.com/monolith-go/monolith/kernels/graph"
)

// rootKind says whose memory a value lies in.
type rootKind int

const (
	nowhere    rootKind = iota
	arenaRoot           // the lane's, index being a buffer
	inputRoot           // the caller's
	weightRoot          // the version's
	outputRoot          // the caller's
)

// place is where a value lies: some columns of the rows of a root, a row being a sample's. A fixed value is
// a row of its own for each float.
type place struct {
	root   rootKind
	index  int
	col    int // first column
	stride int // floats of a row of the root
	width  int // columns
	batch  bool
}

// whole says that the value's rows follow upon each other.
func (p place) whole() bool { return p.stride == p.width }

// buffer is memory of the arena: from is the first step that writes it, to the last that uses it.
type buffer struct {
	size     int // floats, by sample where batch
	batch    bool
	from, to int
	at       int
}

func (c *compiler) at(id graph.ID, p place) {
	s := c.nodes[id].Shape
	p.batch, p.width, p.stride = s.Batch, 1, 1
	if s.Batch {
		p.width, p.stride = s.Size(), s.Size()
	}
	c.places[id] = p
}

// fresh puts a value into a buffer of its own.
func (c *compiler) fresh(id graph.ID) {
	c.at(id, place{root: arenaRoot, index: c.buffers})
	c.buffers++
}

func (c *compiler) leaf(id graph.ID, p place) {
	if c.places == nil {
		c.places = make([]place, len(c.nodes))
	}
	if c.used[id] {
		c.at(id, p)
	}
}

// place decides where values lie: outputs in the caller's memory, the operands of Concat
// beside one another in its own, Slice in its operand's. Whatever cannot lie there is copied.
func (c *compiler) place(views bool) {
	if c.places == nil {
		c.places = make([]place, len(c.nodes))
	}
	c.viewed = make([]bool, len(c.nodes))
	for i, o := range c.outputs {
		if c.places[o.ID].root == nowhere {
			c.at(o.ID, place{root: outputRoot, index: i})
		}
	}
	// From the last: a Concat within another one lies in that one's rows.
	for i := len(c.nodes) - 1; i >= 0 && views; i-- {
		n := c.nodes[i]
		if _, ok := n.Op.(graph.Concat); !ok || !c.used[i] {
			continue
		}
		if c.places[i].root == nowhere {
			c.fresh(n.ID)
		}
		p := c.places[i]
		for _, in := range n.In {
			width := c.nodes[in].Shape.Size()
			if _, slice := c.nodes[in].Op.(graph.Slice); !slice && c.places[in].root == nowhere {
				c.places[in] = place{p.root, p.index, p.col, p.stride, width, true}
			}
			p.col += width
		}
	}
	for i, n := range c.nodes {
		if !c.used[i] || c.places[i].root != nowhere {
			continue
		}
		switch op := n.Op.(type) {
		case graph.Slice:
			if views {
				c.places[i], c.viewed[i] = c.places[n.In[0]], true
				c.places[i].col += op.From
				c.places[i].width = op.To - op.From
				continue
			}
		case graph.Reshape:
			if p := c.places[n.In[0]]; views && p.whole() {
				c.places[i], c.viewed[i] = p, true
				continue
			}
		}
		c.fresh(n.ID)
	}
}

// colour gives each buffer of the arena memory that nobody else uses meanwhile, the largest first.
func (c *compiler) colour() {
	var buffers []buffer
	touch := func(p place, size, step int) {
		if p.root != arenaRoot {
			return
		}
		for len(buffers) <= p.index {
			buffers = append(buffers, buffer{from: len(c.p.steps)})
		}
		b := &buffers[p.index]
		b.batch, b.size = p.batch, max(b.size, size)
		b.from, b.to = min(b.from, step), max(b.to, step)
	}
	for i, s := range c.p.steps {
		for _, at := range append(slices.Clone(s.in), s.out, s.aside) {
			if at < 0 {
				continue
			}
			p := c.p.places[at]
			size := p.stride
			if !p.batch {
				size = c.nodes[at].Shape.Size()
			}
			touch(p, (size+15)/16*16, i) // so that each begins on a cache line
		}
	}
	order := make([]int, len(buffers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(buffers[b].size, buffers[a].size) })
	var placed []buffer
	for _, i := range order {
		b := &buffers[i]
		total := &c.p.fixed
		if b.batch {
			total = &c.p.samples
		}
		b.at = gap(placed, *b)
		*total = max(*total, b.at+b.size)
		placed = append(placed, *b)
		slices.SortFunc(placed, func(a, b buffer) int { return cmp.Compare(a.at, b.at) })
	}
	c.p.at = make([]int, len(buffers))
	for i, b := range buffers {
		c.p.at[i] = b.at
	}
}

// gap is the first place for b between buffers of its kind that live when it does; they are in order.
func gap(placed []buffer, b buffer) int {
	at := 0
	for _, o := range placed {
		if o.batch != b.batch || o.to < b.from || b.to < o.from {
			continue
		}
		if at+b.size <= o.at {
			break
		}
		at = max(at, o.at+o.size)
	}
	return at
}
