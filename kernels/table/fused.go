package table

import (
	"unsafe"

	"github.com/monolith-go/monolith/kernels/optim"
)

// fused is an updater that does all rows of a burst in one go, for the optimizers that
// have one; nil for the others.
func (t *Table) fused(p *plan, grads []float32, unixSec uint32, at optim.Step) func([]slot, int) {
	if t.backend != avx512 || len(t.parts) != 1 || t.aware || len(grads) == 0 {
		return nil
	}
	rate := func(own float32) float32 {
		if at.LearningRate != 0 {
			return at.LearningRate
		}
		return own
	}
	var update func(*stage)
	var r, decay float32
	switch o := t.parts[0].Optimizer.(type) {
	case optim.Adagrad:
		update, r, decay = adagradStageAVX512, rate(o.LearningRate), o.WeightDecay
	case optim.SGD:
		update, r = sgdStageAVX512, rate(o.LearningRate)
	default:
		return nil
	}
	p.staged = true
	return func(slots []slot, from int) {
		s := &p.pipe.stage
		s.slots, s.n, s.from, s.sum = address(&slots[0]), len(slots), address(&p.from[from]), address(&p.sum[from])
		s.grads, s.sums, s.dim, s.rate, s.decay = &grads[0], unsafe.SliceData(p.sums), t.dim, r, decay
		s.times = unsafe.Pointer(unsafe.SliceData(t.times.Chunks())) // there may be new rows
		s.shift, s.mask, s.second = uint64(t.times.Shift()), 1<<t.times.Shift()-1, uint64(unixSec)
		update(s)
	}
}
