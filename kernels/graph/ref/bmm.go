package ref

import "github.com/monolith-go/monolith/kernels/graph"

func (a *at) batchMatMul(kind graph.Kind) {
	x, y := a.in[0], a.in[1]
	rows, cols := a.node.Shape.Dims[0], a.node.Shape.Dims[1]
	k := a.shapes[0].Size() / rows
	a.each(func(at int) (float64, float64) {
		n, i, j := at/(rows*cols), at/cols%rows, at%cols
		s := chain{}
		for c := range k {
			p, q := (n*rows+i)*k+c, (n*k+c)*cols+j
			switch kind {
			case graph.NT:
				q = (n*cols+j)*k + c
			case graph.TN:
				p = (n*k+c)*rows + i
			}
			s.add(x.V[p], y.V[q], x.E[p], y.E[q])
		}
		return s.sum, s.bound()
	})
}

// byStep is an operation of each step's row and its sample's.
func (a *at) byStep(f func(x, row number) number) {
	t, m := a.node.Shape.Dims[0], a.node.Shape.Dims[1]
	a.each(func(at int) (float64, float64) {
		return f(a.in[0].of(at), a.in[1].of(at/(t*m)*m+at%m)).round().both()
	})
}

func (a *at) sumProducts() {
	t, m := a.shapes[0].Dims[0], a.shapes[0].Dims[1]
	a.each(func(at int) (float64, float64) {
		s := chain{}
		for k := range t {
			i := (at/m*t+k)*m + at%m
			s.add(a.in[0].V[i], a.in[1].V[i], a.in[0].E[i], a.in[1].E[i])
		}
		return s.sum, s.bound()
	})
}
