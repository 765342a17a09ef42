package graph

// Mix adds the sum of experts' values, [n u] each, by the softmax of gate, [n experts]: a task's input in MMoE. In
// PLE a task has a gate of its own for each level, over its own experts and the shared ones.
func (b *Builder) Mix(name string, gate ID, experts ...ID) ID {
	all := b.Add("", Concat{}, experts...)
	if b.err != nil {
		return None
	}
	stack := b.Add("", Reshape{[]int{len(experts), b.Node(experts[0]).Shape.Size()}}, all)
	return b.Weigh(name, b.Add("", Softmax{}, gate), stack)
}
