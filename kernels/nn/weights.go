package nn

import (
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/kernels/gemm"
)

// Weights are one version of a model's variables, in the order of [Program.Weights]. It is shared by all
// lanes and all programs of one graph's variables, and does not change: what products need of it is laid
// out once, by whoever needs it first. It may not be copied.
type Weights struct {
	Step   uint64 // the version's
	Values [][]float32

	once  sync.Once
	packs []packs // by variable
}

// packs are a variable's layouts: as it is and transposed, in float32 and in bfloat16, and as it is in int8.
type packs struct {
	floats [4]pack[gemm.Packed]
	int8   pack[gemm.PackedInt8]
}

type pack[T any] struct {
	ready atomic.Pointer[T]
	mu    sync.Mutex // who packs
	spare *T         // memory of an earlier version's
}

// get is what is packed, by make in the memory of the version before if that is not done yet.
func (p *pack[T]) get(make func(spare *T) (*T, error)) (*T, error) {
	if done := p.ready.Load(); done != nil {
		return done, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if done := p.ready.Load(); done != nil {
		return done, nil
	}
	done, err := make(p.spare)
	if err != nil {
		return nil, err
	}
	p.spare = nil
	p.ready.Store(done)
	return done, nil
}

// again keeps the memory of what is packed for another version.
func (p *pack[T]) again() {
	if p.ready.Load() != nil {
		p.spare = p.ready.Swap(nil)
	}
}

// Reset makes w another version, in the memory of the old one. Nobody may use w meanwhile, and values
// must have the old ones' shapes.
func (w *Weights) Reset(step uint64, values [][]float32) {
	w.Step, w.Values = step, values
	for i := range w.packs {
		for k := range w.packs[i].floats {
			w.packs[i].floats[k].again()
		}
		w.packs[i].int8.again()
	}
}

// packed is variable i, a matrix of rows by cols, or its transposed, laid out for products.
func (w *Weights) packed(mm *gemm.Workspace, i, rows, cols int, transposed, bf16 bool) (*gemm.Packed, error) {
	m, k := gemm.Of(w.Values[i], rows, cols), 0
	if transposed {
		m, k = m.T(), 1
	}
	if bf16 {
		k += 2
	}
	return w.of(i).floats[k].get(func(spare *gemm.Packed) (*gemm.Packed, error) { return mm.Pack(spare, m, bf16) })
}

// int8 is variable i, a matrix of rows by cols, quantised.
func (w *Weights) int8(mm *gemm.Workspace, i, rows, cols int) (*gemm.PackedInt8, error) {
	return w.of(i).int8.get(func(spare *gemm.PackedInt8) (*gemm.PackedInt8, error) {
		return mm.PackInt8(spare, gemm.Of(w.Values[i], rows, cols))
	})
}

func (w *Weights) of(i int) *packs {
	w.once.Do(func() { w.packs = make([]packs, len(w.Values)) })
	return &w.packs[i]
}
