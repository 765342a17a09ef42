package ref

import "github.com/monolith-go/monolith/kernels/graph"

func (a *at) concat() {
	width, from := a.node.Shape.Size(), 0
	for k, v := range a.in {
		w := a.shapes[k].Size()
		for i := range a.n {
			copy(a.out[i*width+from:][:w], v.V[i*w:])
			copy(a.e[i*width+from:][:w], v.E[i*w:])
		}
		from += w
	}
}

func (a *at) slice(op graph.Slice) {
	width, w := a.node.Shape.Size(), a.shapes[0].Size()
	a.each(func(i int) (float64, float64) {
		j := i/width*w + op.From + i%width
		return a.in[0].V[j], a.in[0].E[j]
	})
}

func (a *at) pad(op graph.Pad) {
	width, w := a.node.Shape.Size(), a.shapes[0].Size()
	a.each(func(i int) (float64, float64) {
		c := i%width - op.From
		if c < 0 || c >= w {
			return 0, 0
		}
		j := i/width*w + c
		return a.in[0].V[j], a.in[0].E[j]
	})
}
