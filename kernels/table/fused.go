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
	sums := unsafe.SliceData(p.sums)
	switch o := t.parts[0].Optimizer.(type) {
	case optim.Adagrad:
		r := rate(o.LearningRate)
		p.late = true
		return func(slots []slot, from int) {
			adagradRowsAVX512(&slots[0], len(slots), &p.from[from], &p.sum[from], &grads[0], sums, t.dim, r, o.WeightDecay, p.pipe.ahead, p.pipe.late)
			t.stampAll(slots, unixSec)
		}
	case optim.SGD:
		r := rate(o.LearningRate)
		p.late = true
		return func(slots []slot, from int) {
			sgdRowsAVX512(&slots[0], len(slots), &p.from[from], &p.sum[from], &grads[0], sums, t.dim, r, p.pipe.ahead, p.pipe.late)
			t.stampAll(slots, unixSec)
		}
	}
	return nil
}

func (t *Table) stampAll(slots []slot, unixSec uint32) {
	chunks, shift := *t.times.chunks.Load(), t.times.shift
	for i := range slots {
		if slots[i].at != 0 {
			row := uint32(slots[i].key)
			// What has not changed need not go back to memory.
			if at := (*uint32)(unsafe.Add(chunks[row>>shift], uintptr(row&(1<<shift-1))*4)); *at != unixSec {
				*at = unixSec
			}
		}
	}
}
