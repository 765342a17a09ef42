package graph

// onto is an operation that adds its gradients to what later readers of its operands give (up, None
// where there is nothing) by itself, in one pass.
type onto interface {
	backwardOnto(b *Builder, at Node, dy ID, up []ID) []ID
}

// once reports that an operation which is a derivative has none itself.
func once(b *Builder, at Node) []ID {
	b.Fail("graph: node %q (%s): it is a derivative, and has none itself: a loss is derived once only", at.Name, at.Op.Name())
	out := make([]ID, len(at.In))
	for i := range out {
		out[i] = None
	}
	return out
}

// Gradients adds what computes the gradient of the single number of by each node of by, and returns
// those nodes. A node that of does not depend on gets zeros. Where a value is read more than once
// its gradients are added, that of the last reader first.
func (b *Builder) Gradients(of ID, by ...ID) []ID {
	out := make([]ID, len(by))
	for i := range out {
		out[i] = None
	}
	if b.err != nil {
		return out
	}
	for _, id := range append([]ID{of}, by...) {
		if id < 0 || int(id) >= len(b.g.nodes) {
			b.Fail("graph: a gradient is wanted of, or by, what is no node of this graph")
			return out
		}
	}
	if n := b.Node(of); n.Shape.Batch || n.Shape.Size() != 1 {
		b.Fail("graph: the gradient of node %q (%s) is wanted, whose shape is %v: only a single number has one; make a loss of it", n.Name, n.Op.Name(), n.Shape)
		return out
	}
	needs := make([]bool, len(b.g.nodes))
	for _, id := range by {
		needs[id] = true
	}
	for i, n := range b.g.nodes {
		for _, in := range n.In {
			needs[i] = needs[i] || needs[in]
		}
	}
	up := make([]ID, of+1)
	for i := range up {
		up[i] = None
	}
	up[of] = b.Const(1, Fixed(b.Node(of).Shape.Dims...))
	for i := of; i >= 0; i-- {
		n := b.g.nodes[i]
		if up[i] == None || !needs[i] || len(n.In) == 0 {
			continue
		}
		want := make([]bool, len(n.In))
		for k, in := range n.In {
			want[k] = needs[in]
		}
		b.spread(n, up, want)
		if b.err != nil {
			return out
		}
	}
	for i, id := range by {
		if id > of || up[id] == None {
			out[i] = b.Const(0, b.Node(id).Shape)
		} else {
			out[i] = up[id]
		}
	}
	return out
}

// spread gives the operands of n that are wanted their share of n's gradient.
func (b *Builder) spread(n Node, up []ID, want []bool) {
	if o, ok := n.Op.(onto); ok {
		later := make([]ID, len(n.In))
		for k, in := range n.In {
			later[k] = up[in]
		}
		for k, d := range o.backwardOnto(b, n, up[n.ID], later) {
			if want[k] && d != None {
				up[n.In[k]] = d
			}
		}
		return
	}
	for k, d := range n.Op.Backward(b, n, up[n.ID], want) {
		if b.err != nil {
			return
		}
		if !want[k] || d == None {
			continue
		}
		if in := n.In[k]; up[in] == None {
			up[in] = d
		} else {
			up[in] = b.Add("", Add{}, up[in], d)
		}
	}
}
