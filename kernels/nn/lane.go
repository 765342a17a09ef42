package nn

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/par"
)

// Lane is what a run has to itself: a pool and the memory for what lies between inputs and outputs. It
// serves any program, one run at a time, and grows to the largest run, to powers of two of samples. The
// zero value is ready and computes on the caller's goroutine alone.
type Lane struct {
	// Pool may be changed between runs. Lanes may share one; the run that comes while another has
	// its threads computes on its own goroutine.
	Pool *par.Pool

	mm             gemm.Workspace
	samples, fixed []float32
	ones           []float32
	views          []view // of a program's places
	n              int
	weights        *Weights
	rows           rowJob
	time           int // the step of a sequence that is computed

	// Of a run of samples that have something in common: see shared.go.
	places []place
	same   []int       // by place: how many leading floats all samples have in common
	in     [][]float32 // the run's
	copies [][]float32 // by input: its only row for each sample
	bias   []float32   // what a product's sums start from
	part   gemm.Packed // of its right factor
}

// view is a value during a run: n rows of width floats, stride apart. A fixed value has a row for each
// float.
type view struct {
	v                []float32
	n, width, stride int
}

func (v view) row(i int) []float32 { return v.v[i*v.stride:][:v.width] }

// span is rows lo to hi of a value whose rows follow upon each other.
func (v view) span(lo, hi int) []float32 { return v.v[lo*v.width : hi*v.width] }

func (v view) whole() bool { return v.stride == v.width }

// mat is the value as a matrix of rows of last columns.
func (v view) mat(last int) gemm.Mat {
	m := gemm.Mat{V: v.v, Rows: v.n, Cols: last, Stride: v.stride}
	if last != v.width { // several rows a sample, which then lie together
		m.Rows, m.Stride = v.n*(v.width/last), last
	}
	return m
}

// Run computes n samples, 0 or more: in has n times its shape for each of Inputs, out gets what
// Outputs says, in its own memory where that is large enough. Nothing of out may be memory of in or of w.
// On an error what out holds is not to be used.
func (p *Program) Run(l *Lane, n int, in [][]float32, w *Weights, out *Outputs) error {
	if err := p.begin(l, n, in, nil, w, out); err != nil {
		return err
	}
	defer l.release()
	for i := range p.steps {
		s := &p.steps[i]
		if err := s.kernel.run(l, s); err != nil {
			return s.failed(err)
		}
	}
	return nil
}

func (s *step) failed(err error) error {
	return fmt.Errorf("nn: node %q (%s): %w", s.node.Name, s.node.Op.Name(), err)
}

// begin makes room for a run.
func (p *Program) begin(l *Lane, n int, in [][]float32, shared []int, w *Weights, out *Outputs) error {
	if err := p.check(n, in, shared, w); err != nil {
		return err
	}
	if p.samples > 0 {
		l.samples = arena(l.samples, p.samples, n)
	}
	l.fixed = aligned(l.fixed, p.fixed)
	for len(out.Values) < len(p.outputs) {
		out.Values = append(out.Values, nil)
	}
	out.Values = out.Values[:len(p.outputs)]
	for i, o := range p.outputs {
		size := o.Shape.Floats(n)
		if cap(out.Values[i]) < size {
			out.Values[i] = make([]float32, size)
		}
		out.Values[i] = out.Values[i][:size]
	}
	if cap(l.views) < len(p.places) {
		l.views = make([]view, len(p.places))
	}
	l.views = l.views[:len(p.places)]
	for i, at := range p.places {
		l.views[i] = p.view(l, at, n, i, in, w, out)
	}
	l.n, l.weights, l.mm.Pool = n, w, l.Pool
	return nil
}

// release forgets what belongs to others.
func (l *Lane) release() {
	clear(l.views)
	l.weights, l.rows, l.places, l.in, l.same, l.part = nil, rowJob{}, nil, nil, l.same[:0], gemm.Packed{}
}

// Outputs are a run's results, in the order of [Program.Outputs].
type Outputs struct{ Values [][]float32 }

func (p *Program) check(n int, in [][]float32, shared []int, w *Weights) error {
	if n < 0 || len(in) != len(p.inputs) || len(w.Values) != len(p.weights) {
		return fmt.Errorf("nn: %d samples with %d inputs and %d weights: give 0 samples or more, %d inputs and %d weights", n, len(in), len(w.Values), len(p.inputs), len(p.weights))
	}
	for i, port := range p.inputs {
		if size := port.Shape.Size(); shared != nil && shared[i] >= size && len(in[i]) == size {
			continue // one row for all
		}
		if p.readsInput[i] && len(in[i]) != port.Shape.Floats(n) {
			return fmt.Errorf("nn: input %q has %d floats: %d samples of %v have %d", port.Name, len(in[i]), n, port.Shape, port.Shape.Floats(n))
		}
	}
	for i, port := range p.weights {
		if p.readsWeight[i] && len(w.Values[i]) != port.Shape.Size() {
			return fmt.Errorf("nn: weight %q has %d floats: its shape %v has %d", port.Name, len(w.Values[i]), port.Shape, port.Shape.Size())
		}
	}
	return nil
}

func (p *Program) view(l *Lane, at place, n, i int, in [][]float32, w *Weights, out *Outputs) view {
	v := view{n: n, width: at.width, stride: at.stride}
	var root []float32
	switch at.root {
	case nowhere:
		return view{}
	case inputRoot:
		root = in[at.index]
	case weightRoot:
		root = w.Values[at.index]
	case outputRoot:
		root = out.Values[at.index]
	case arenaRoot:
		if from := p.at[at.index]; at.batch {
			root = l.samples[from*n:][:at.stride*n]
		} else {
			root = l.fixed[from:][:p.sizes[i]]
		}
	}
	if !at.batch {
		v.n = len(root)
	}
	v.v = root[min(at.col, len(root)):]
	return v
}

// arena is memory for n samples of size floats; it grows to powers of two of samples.
func arena(old []float32, size, n int) []float32 {
	if cap(old) >= size*n {
		return old[:size*n]
	}
	return aligned(old, size<<bits.Len(uint(n-1)))[:size*n]
}

// aligned returns n floats that begin on a cache line, in old's memory if it suffices.
func aligned(old []float32, n int) []float32 {
	if cap(old) >= n {
		return old[:n]
	}
	s := make([]float32, n+15)
	skip := int(-uintptr(unsafe.Pointer(&s[0]))%64) / 4
	return s[skip : skip+n]
}
