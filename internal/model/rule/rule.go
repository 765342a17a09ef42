// Package rule builds what a spec declares of a row by name: optimizers and their learning rates,
// first values, compressors, filters of admission.
package rule

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/initial"
	"github.com/monolith-go/monolith/kernels/table"
)

// Initializer builds what i declares.
func Initializer(i *model.Initializer) (table.Initializer, error) {
	switch k := i.GetKind().(type) {
	case *model.Initializer_Zeros:
		return table.Zeros{}, nil
	case *model.Initializer_Ones:
		return initial.NewConstant(1)
	case *model.Initializer_Constants:
		return initial.NewConstant(k.Constants.GetConstant())
	case *model.Initializer_RandomUniform:
		return table.NewRandomUniform(k.RandomUniform.GetMin(), k.RandomUniform.GetMax())
	}
	return nil, fmt.Errorf("no initializer: declare zeros, ones, constants or random_uniform")
}

// Compressor builds what c declares; without one, rows stay float32.
func Compressor(c *model.Compressor) (compress.Compressor, error) {
	switch k := c.GetKind().(type) {
	case *model.Compressor_Fp16:
		return compress.FP16{}, nil
	case *model.Compressor_FixedR8:
		return compress.NewFixedR8(or(given(k.FixedR8).R, 1))
	case *model.Compressor_OneBit:
		b := given(k.OneBit)
		return compress.NewOneBit(int64(min(or(b.StepSize, 200), 1<<62)), or(b.InitScale, 1), or(b.MaxScale, 10000), or(b.Amplitude, 0.1))
	}
	return compress.FP32{}, nil
}

// Filter builds the filter that a declares, whose draws key keys.
func Filter(a *model.Admission, key uint64, thresholds filter.Thresholds) (filter.Filter, error) {
	switch k := a.GetKind().(type) {
	case *model.Admission_SlidingCounter:
		c := given(k.SlidingCounter)
		return filter.NewSlidingCounter(filter.SlidingConfig{
			Capacity: or(c.Capacity, 300_000_000), Splits: int(or(c.Splits, 7)), Thresholds: thresholds,
		})
	case *model.Admission_Probabilistic:
		return filter.NewProbabilistic(k.Probabilistic.GetEqual(), key, thresholds)
	}
	return nil, fmt.Errorf("admission names no filter: declare sliding_counter or probabilistic, or leave admission out")
}

// given is m, or an empty message where a builder left it nil.
func given[M any](m *M) *M {
	if m == nil {
		return new(M)
	}
	return m
}

// or is what v points to, or the default.
func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}
