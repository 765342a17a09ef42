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

// packs are a variable's layouts: as it is and transposed, in float32 and in bfloat16.
type packs [4]pack

type pack struct {
	ready atomic.Pointer[gemm.Packed]
	mu    sync.Mutex   // who packs
	spare *gemm.Packed // memory of an earlier version's
}

// Reset makes w another version, in the memory of the old one. Nobody may use w meanwhile, and values
// must have the old ones' shapes.
func (w *Weights) Reset(step uint64, values [][]float32) {
	w.Step, w.Values = step, values
	for i := range w.packs {
		for k := range w.packs[i] {
			if p := &w.packs[i][k]; p.ready.Load() != nil {
				p.spare = p.ready.Swap(nil)
			}
		}
	}
}

// packed is variable i, a matrix of rows by cols, or its transposed, laid out for products.
func (w *Weights) packed(mm *gemm.Workspace, i, rows, cols int, transposed, bf16 bool) (*gemm.Packed, error) {
	w.once.Do(func() { w.packs = make([]packs, len(w.Values)) })
	m, k := gemm.Of(w.Values[i], rows, cols), 0
	if transposed {
		m, k = m.T(), 1
	}
	if bf16 {
		k += 2
	}
	p := &w.packs[i][k]
	if done := p.ready.Load(); done != nil {
		return done, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if done := p.ready.Load(); done != nil {
		return done, nil
	}
	done, err := mm.Pack(p.spare, m, bf16)
	if err != nil {
		return nil, err
	}
	p.spare = nil
	p.ready.Store(done)
	return done, nil
}
