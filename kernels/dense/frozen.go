package dense

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/par"
)

// Frozen is a tower with parameters laid out for scoring: its kernels are packed once
// instead of in every Forward. It is immutable and safe for concurrent use, each goroutine
// with its Workspace. Logits have the bits of Tower.Forward.
type Frozen struct {
	tower  *Tower
	bf16   bool
	params [][]float32 // biases only
	packed []*gemm.Packed
}

// Freeze packs a copy of params; later changes of them are not seen. bf16 stands for
// Workspace.BF16, which Frozen does not look at. A nil pool is the calling goroutine.
func (t *Tower) Freeze(params [][]float32, bf16 bool, pool *par.Pool) (*Frozen, error) {
	if err := t.check("parameters", params); err != nil {
		return nil, err
	}
	mm := gemm.Workspace{Pool: pool}
	f := &Frozen{tower: t, bf16: bf16, params: make([][]float32, len(params)), packed: make([]*gemm.Packed, len(t.layers))}
	for l, layer := range t.layers {
		var err error
		if f.packed[l], err = mm.Pack(nil, gemm.Of(params[2*l], layer.In, layer.Out), bf16); err != nil {
			return nil, fmt.Errorf("dense: pack layer %d: %w", l, err)
		}
		f.params[2*l+1] = append([]float32(nil), params[2*l+1]...)
	}
	return f, nil
}

// Forward is Tower.Forward, except that x is not copied and that no Backward may follow.
func (f *Frozen) Forward(x []float32, batch int, ws *Workspace) (logits []float32, err error) {
	if err := f.tower.fits(x, batch); err != nil {
		return nil, err
	}
	ws.fit(f.tower, batch)
	own := ws.BF16
	ws.BF16 = f.bf16
	logits, err = f.tower.forward(f.params, f.packed, x, ws)
	ws.BF16, ws.input = own, nil
	return logits, err
}
