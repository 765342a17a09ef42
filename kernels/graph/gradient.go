package graph

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
		for k, d := range n.Op.Backward(b, n, up[i], want) {
			if b.err != nil {
				return out
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
	for i, id := range by {
		if id > of || up[id] == None {
			out[i] = b.Const(0, b.Node(id).Shape)
		} else {
			out[i] = up[id]
		}
	}
	return out
}
