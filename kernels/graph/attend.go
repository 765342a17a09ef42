package graph

// Attend adds the first layer of DIN's attention of a query q, [n d], to each step of a history k, [n t d]:
// q·wq + k·wk + (q⊙k)·wqk + bias, [n t u], of three [d u] and a [u]. That is [q, k, q−k, q⊙k]·w, its second block
// being less the third's, and the first more; what q alone gives is computed once a sample.
func (b *Builder) Attend(name string, q, k, wq, wk, wqk, bias ID, p Precision) ID {
	once := b.Dense("", q, wq, bias, p)
	keys := b.Add("", MatMul{Precision: p}, k, wk)
	both := b.Add("", MatMul{Precision: p}, b.Add("", MulEach{}, k, q), wqk)
	return b.Add(name, AddEach{}, b.Add("", Add{}, keys, both), once)
}

// Weigh adds a history's steps, [n t d], times their weights, [n t] or [n t 1]: [n d].
func (b *Builder) Weigh(name string, weights, k ID) ID {
	if b.err != nil {
		return None
	}
	row := b.Add("", Reshape{[]int{1, b.Node(weights).Shape.Size()}}, weights)
	y := b.Add("", BatchMatMul{}, row, k)
	return b.Add(name, Reshape{[]int{b.Node(k).Shape.Last()}}, y)
}
