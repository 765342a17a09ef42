package ref

func (a *at) sum(axis int) {
	_, count, inner := a.shapes[0].Around(axis)
	a.each(func(at int) (float64, float64) {
		s := chain{}
		for k := range count {
			i := (at/inner*count+k)*inner + at%inner
			s.add(a.in[0].V[i], 1, a.in[0].E[i], 0)
		}
		return s.sum, s.bound()
	})
}

func (a *at) repeat(axis int) {
	_, count, inner := a.node.Shape.Around(axis)
	a.each(func(at int) (float64, float64) {
		return a.in[0].of(at/(count*inner)*inner + at%inner).both()
	})
}
