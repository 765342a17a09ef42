package step

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
)

// Train computes the gradients as shards are to get them.
func (s *Step) Train(lane *runtime.Lane, w *runtime.Weights) (runtime.Result, error) {
	res, err := s.Engine.Train(lane, s.Batch, w)
	if err != nil {
		return res, err
	}
	clip(s.Batch.Dense, s.Engine.Spec().GetClipNorm())
	return res, s.takeable()
}

// takeable is an ErrGradients unless every gradient is finite and within what shards take.
func (s *Step) takeable() error {
	check := func(what, name string, grads []float32) error {
		if most := vec.MaxAbs(grads); !(most <= table.MaxGradient) { // written so that NaN fails
			return fmt.Errorf("%w: one of %s %s is %g, not finite or beyond %g", ErrGradients, what, name, most, float32(table.MaxGradient))
		}
		return nil
	}
	for i, v := range s.Engine.Variables() {
		if err := check("variable", v.Name, s.Batch.Dense[i]); err != nil {
			return err
		}
	}
	for shard := range s.Engine.Shards() {
		for _, b := range s.Batch.Blocks(shard) {
			if err := check("table", b.Table, b.Grads); err != nil {
				return err
			}
		}
	}
	return nil
}
