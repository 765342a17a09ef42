package nn

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/graph"
)

// leadingLeast is from how many samples on a product's common part is computed apart.
const leadingLeast = 8

// flow is how many of a node's leading floats all samples have in common, by those of what it reads.
type flow struct {
	op   graph.Op
	out  int
	in   []int
	view bool // nothing computes it: its floats are those of what it reads
}

// flows notes the nodes of the batch, each after those that it reads.
func (c *compiler) flows() {
	for i, n := range c.nodes {
		if i >= len(c.used) || !c.used[i] || !n.Shape.Batch {
			continue
		}
		f := flow{op: n.Op, out: i, view: c.viewed[i]}
		for _, in := range n.In {
			if c.nodes[in].Shape.Batch {
				f.in = append(f.in, int(in))
			}
		}
		c.p.flows = append(c.p.flows, f)
	}
}

// RunShared is Run where of input i the first shared[i] floats are the same in each sample; where they are all
// floats, in may have one sample's alone. What depends on these alone is computed for one sample, and the part of
// a product that they are the leading factors of once, as what the rest starts from. No bit differs from Run's.
func (p *Program) RunShared(l *Lane, n int, in [][]float32, shared []int, w *Weights, out *Outputs) error {
	if len(shared) != len(p.inputs) {
		return fmt.Errorf("nn: %d numbers of common floats: the program has %d inputs", len(shared), len(p.inputs))
	}
	if n < 2 {
		return p.Run(l, n, in, w, out)
	}
	if err := p.begin(l, n, in, shared, w, out); err != nil {
		return err
	}
	defer l.release()
	l.places, l.in = p.places, in
	l.spread(p, shared)
	for i := range p.steps {
		if err := l.once(&p.steps[i]); err != nil {
			return p.steps[i].failed(err)
		}
	}
	return nil
}

// spread finds what all samples have in common of each place.
func (l *Lane) spread(p *Program, shared []int) {
	if cap(l.same) < len(p.places) {
		l.same = make([]int, len(p.places))
	}
	l.same = l.same[:len(p.places)]
	clear(l.same)
	for i := range p.flows {
		f := &p.flows[i]
		l.same[f.out] = l.common(f, shared)
		if _, leaf := f.op.(graph.Input); (leaf || f.view) && l.full(f.out) {
			l.views[f.out].stride = 0
		}
	}
}

// full says whether all of a place is the same in all samples. Its stride is then 0, so that each row is
// the first, but where a kernel needs the rows as they lie.
func (l *Lane) full(at int) bool { return l.views[at].width > 0 && l.same[at] == l.views[at].width }

func (l *Lane) common(f *flow, shared []int) int {
	switch op := f.op.(type) {
	case graph.Input:
		return min(shared[l.places[f.out].index], l.views[f.out].width)
	case graph.Slice:
		return max(min(l.same[f.in[0]], op.To)-op.From, 0)
	case graph.Reshape:
		return l.same[f.in[0]]
	case graph.Concat:
		sum := 0
		for _, in := range f.in {
			if sum += l.same[in]; !l.full(in) {
				break
			}
		}
		return sum
	case graph.CrossEntropyGrad, graph.MSEGrad, graph.InBatchSoftmaxGrad, graph.InBatchAUCGrad, graph.PenaltyGrad:
		return 0 // of the batch, not of a sample
	}
	for _, in := range f.in {
		if !l.full(in) {
			return 0
		}
	}
	return l.views[f.out].width
}

// once runs a step, for one sample alone where all would come to the same.
func (l *Lane) once(s *step) error {
	if !l.places[s.out].batch || !l.full(s.out) {
		l.rejoin(s)
		return s.kernel.run(l, s)
	}
	n := l.n
	l.narrow(s, 1)
	err := s.kernel.run(l, s)
	l.narrow(s, n)
	if at := l.places[s.out]; at.root == outputRoot || !at.whole() {
		l.repeat(s.out) // others read these rows as they lie
	}
	return err
}

// narrow lets a step see n samples: one, whose rows lie as any, or all again, of which those that are
// one are as one.
func (l *Lane) narrow(s *step, n int) {
	l.n = n
	for _, in := range s.in {
		l.narrowPlace(in, n)
	}
	l.narrowPlace(s.out, n)
	if s.aside >= 0 {
		l.narrowPlace(s.aside, n)
	}
}

func (l *Lane) narrowPlace(at, n int) {
	v := &l.views[at]
	if !l.places[at].batch {
		return
	}
	if v.n, v.stride = n, l.places[at].stride; n > 1 && l.full(at) {
		v.stride = 0
	}
}

// rejoin gives each sample a row again of what a kernel reads as a matrix, or sums up.
func (l *Lane) rejoin(s *step) {
	switch s.kernel.(type) {
	case matMul, *gruGrad:
	default:
		if l.places[s.out].batch {
			return
		}
	}
	for _, in := range s.in {
		if l.places[in].batch && l.views[in].stride == 0 {
			l.repeat(in)
		}
	}
}

// repeat copies a place's first row to the others.
func (l *Lane) repeat(at int) {
	v := &l.views[at]
	v.stride = l.places[at].stride
	if p := l.places[at]; p.root == inputRoot {
		v.v = l.rowsOf(p.index, p.stride)[p.col:] // a kernel that reads an input as a matrix: nearly none does
		return
	}
	for i := 1; i < v.n; i++ {
		copy(v.row(i), v.row(0))
	}
}

// rowsOf is an input with a row for each sample: the caller's, or copies of the only one it gave.
func (l *Lane) rowsOf(input, stride int) []float32 {
	given := l.in[input]
	if len(given) == l.n*stride {
		return given
	}
	for len(l.copies) <= input {
		l.copies = append(l.copies, nil)
	}
	l.copies[input] = aligned(l.copies[input], l.n*stride)
	for rest := l.copies[input]; len(rest) > 0; rest = rest[stride:] {
		copy(rest, given[:stride])
	}
	return l.copies[input]
}

// leading is how many columns of a product's left factor are computed apart, 0 for none. In int8 none are: the scale
// of a row is by all of its columns.
func (l *Lane) leading(s *step, w *gemm.Packed) int {
	if len(l.same) == 0 || l.n < leadingLeast || len(s.shapes[0].Dims) != 1 {
		return 0
	}
	k := l.same[s.in[0]] / w.Grain() * w.Grain()
	if k >= l.views[s.in[0]].width {
		return 0 // it is one row
	}
	return k
}

// start is the first k columns of a's first row times theirs of w, and the bias: what each of cols sums
// starts from.
func (l *Lane) start(a gemm.Mat, w *gemm.Packed, k, cols int, op gemm.Op) ([]float32, error) {
	l.bias = aligned(l.bias, cols)
	a.Rows, a.Cols, op.Finish, op.Mask = 1, k, gemm.Keep, gemm.Mat{}
	l.part = w.Part(0, k)
	return l.bias, l.mm.MulPacked(gemm.Of(l.bias, 1, cols), a, &l.part, op)
}
