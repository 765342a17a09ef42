package ref

// ffm is the sum of the products two by two, in float32 in any order.
func (a *at) ffm() {
	fields, dim := a.shapes[0].Dims[0], a.shapes[0].Dims[2]
	a.each(func(n int) (float64, float64) {
		s := chain{}
		for i := range fields {
			for j := range i {
				for k := range dim {
					p, q := ((n*fields+i)*fields+j)*dim+k, ((n*fields+j)*fields+i)*dim+k
					s.add(a.in[0].V[p], a.in[0].V[q], a.in[0].E[p], a.in[0].E[q])
				}
			}
		}
		return s.sum, s.bound()
	})
}

func (a *at) ffmGrad() {
	fields, dim := a.shapes[0].Dims[0], a.shapes[0].Dims[2]
	a.each(func(at int) (float64, float64) {
		n, i, j, k := at/(fields*fields*dim), at/(fields*dim)%fields, at/dim%fields, at%dim
		if i == j {
			return 0, 0
		}
		return a.in[1].of(n).mul(a.in[0].of(((n*fields+j)*fields+i)*dim + k)).round().both()
	})
}
