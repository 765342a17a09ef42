package table

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/vec"
)

// Rates says when an Optimize happens and how fast it learns.
type Rates struct {
	// LearningRates replace the optimizers' own, one per segment; nil, or 0 for a
	// segment, leaves them.
	LearningRates []float32
	// GlobalStep counts the updates of the model so far, from 0.
	GlobalStep int64
}

// Optimize applies the gradient grads[i*Dim:(i+1)*Dim] to each ids[i]. Gradients of the
// same id are summed first, in the order given. A missing row is initialised first, if
// it is admitted; otherwise its gradient is dropped. An error (wrong length, a gradient
// that is NaN, infinite or beyond MaxGradient, NoID, limits) leaves the table unchanged.
// Calls at the same time wait for each other for some dozen rows at most; see [Part].
func (t *Table) Optimize(ids []int64, grads []float32, unixSec uint32) error {
	return t.OptimizeAt(ids, grads, unixSec, Rates{})
}

// OptimizeAt is Optimize at other learning rates than those configured.
func (t *Table) OptimizeAt(ids []int64, grads []float32, unixSec uint32, at Rates) error {
	if t.serving {
		return fmt.Errorf("table %s: optimize: this is a serving table, its rows have no optimizer slots: make a training table for it", t.cfg.Name)
	}
	if err := t.checkBlock("optimize", ids, grads); err != nil {
		return err
	}
	if n := len(at.LearningRates); n != 0 && n != len(t.parts) {
		return fmt.Errorf("table %s: optimize with %d learning rates: give one for each of the %d segments, or none", t.cfg.Name, n, len(t.parts))
	}
	for i, r := range at.LearningRates {
		if !(r >= 0) || math.IsInf(float64(r), 0) {
			return fmt.Errorf("table %s: optimize: the learning rate of segment %d is %g: give a positive number, or 0 for the configured one; nothing was applied", t.cfg.Name, i, r)
		}
	}
	p := plans.Get().(*plan)
	defer plans.Put(p)
	if err := t.plan("optimize", p, ids, grads); err != nil {
		return err
	}
	if err := t.checkGradients(p, grads); err != nil {
		return err
	}
	t.cut.RLock()
	defer t.cut.RUnlock()
	err := t.write(p, true, t.updater(p, grads, unixSec, at))
	if err == nil {
		t.seen(unixSec)
		t.reached(at.GlobalStep)
	}
	return err
}

// updater returns what write shall do with the rows.
func (t *Table) updater(p *plan, grads []float32, unixSec uint32, at Rates) func([]slot, int) {
	step := func(i int) optim.Step {
		s := optim.Step{GlobalStep: at.GlobalStep}
		if len(at.LearningRates) > 0 {
			s.LearningRate = at.LearningRates[i]
		}
		return s
	}
	if fused := t.fused(p, grads, unixSec, step(0)); fused != nil {
		return fused
	}
	var scratch []float32
	if t.aware {
		scratch = make([]float32, t.dim)
	}
	return func(slots []slot, from int) {
		for i := range slots {
			if slots[i].at == 0 {
				continue
			}
			row := uint32(slots[i].key)
			w, state, g := t.values(row), t.slotsOf(row), p.row(grads, t.dim, from+i)
			if t.aware {
				copy(scratch, g)
				g = scratch
			}
			for j := range t.parts {
				part := &t.parts[j]
				v, g := w[part.at:part.to:part.to], g[part.at:part.to:part.to]
				if part.aware != nil {
					part.aware.Grade(g, v, at.GlobalStep)
				}
				part.Optimizer.Update(v, state[part.slotAt:part.slotTo:part.slotTo], g, step(j))
			}
			t.stamp(row, unixSec)
		}
	}
}

// checkGradients refuses sums that are not finite or too great.
func (t *Table) checkGradients(p *plan, grads []float32) error {
	// In the usual case the greatest of all gradients, as often as an id occurs, is
	// small enough: no sum needs a look.
	if vec.MaxAbs(grads)*float32(p.most) <= MaxGradient/2 { // room for the rounding of a sum
		return nil
	}
	for i := range p.hash {
		for j, g := range p.row(grads, t.dim, i) {
			if !(g >= -MaxGradient && g <= MaxGradient) {
				return fmt.Errorf("table %s: gradient of id %d is %g at position %d: it must be finite and within ±%g; nothing was applied", t.cfg.Name, p.id(i), g, j, float32(MaxGradient))
			}
		}
	}
	return nil
}
