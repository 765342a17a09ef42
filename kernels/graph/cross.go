package graph

// Cross adds a cross layer of DCN-v2, x0 ⊙ (x·w + bias) + x, of [n m], [n m], [m m] and [m]. The next layer has
// the same x0, and this one for x.
func (b *Builder) Cross(name string, x0, x, w, bias ID, p Precision) ID {
	return b.Add(name, MulAdd{}, x0, b.Dense("", x, w, bias, p), x)
}

// CrossLowRank is Cross with u·v, of [m r] and [r m], for w.
func (b *Builder) CrossLowRank(name string, x0, x, u, v, bias ID, p Precision) ID {
	low := b.Add("", MatMul{Precision: p}, x, u)
	return b.Add(name, MulAdd{}, x0, b.Dense("", low, v, bias, p), x)
}
