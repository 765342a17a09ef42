package compress

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// FixedR8 keeps multiples of Range/128 in a signed byte: from -Range to Range*127/128,
// which is where larger numbers end. Within, the error is half a step at most. NaN
// becomes 0. It is also how training sees a row: Look quantizes, and the gradient passes
// through.
type FixedR8 struct{ r, step float32 }

// NewFixedR8 refuses a range that is not positive and finite, or whose steps are not
// normal float32. The original's default is 1.
func NewFixedR8(r float32) (FixedR8, error) {
	step := r / 128
	if !(step >= 0x1p-126) || !finite(r) {
		return FixedR8{}, fmt.Errorf("compress: the range of fixed_r8 is %g: give a positive number, such as 1", r)
	}
	return FixedR8{r, step}, nil
}

// Name is "fixed_r8".
func (FixedR8) Name() string { return "fixed_r8" }

// Range is the greatest absolute value.
func (c FixedR8) Range() float32 { return c.r }

// Step is the distance between two numbers that can be kept, Range/128.
func (c FixedR8) Step() float32 { return c.step }

// Size is dim.
func (FixedR8) Size(dim int) int { return dim }

// Encode rounds to the nearest step, ties away from zero.
func (c FixedR8) Encode(dst []byte, values []float32) {
	check(c, len(dst), len(values))
	for i, x := range values {
		dst[i] = byte(c.quantum(x))
	}
}

func (c FixedR8) quantum(x float32) int8 {
	away := c.step / 2
	if x < 0 {
		away = -away
	}
	switch q := (x + away) / c.step; {
	case q >= 127:
		return 127
	case q <= -128:
		return -128
	case q != q:
		return 0
	default:
		return int8(q)
	}
}

// Decode multiplies by the step.
func (c FixedR8) Decode(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	vec.FromInt8Scaled(dst, signed(src), c.step)
}

// Add adds the decoded numbers.
func (c FixedR8) Add(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	vec.AddInt8Scaled(dst, signed(src), c.step)
}

// Look gives what Encode and Decode would make of values.
func (c FixedR8) Look(dst, values []float32, _ int64) {
	for i, x := range values {
		dst[i] = float32(c.quantum(x)) * c.step
	}
}

// Grade leaves g as it is: rounding has no useful slope.
func (FixedR8) Grade(_, _ []float32, _ int64) {}

// OneBit keeps the sign alone, as a byte of 1 or -1 (0xff), worth ±Amplitude. Training
// sees Amplitude*tanh(scale*w), which comes nearer to that as the scale grows:
//
//	scale = min(InitScale * sqrt(1 + 0.005*s), MaxScale)
//
// with s the last multiple of StepSize that the global step has reached. The original
// forgets its scale at a restart; here it is a function of the step.
type OneBit struct {
	StepSize                       int64   // the original's default: 200
	InitScale, MaxScale, Amplitude float32 // the original's defaults: 1, 10000, 0.1
}

// NewOneBit refuses numbers that are not positive and finite, and a MaxScale below
// InitScale.
func NewOneBit(stepSize int64, initScale, maxScale, amplitude float32) (OneBit, error) {
	switch {
	case stepSize < 1:
		return OneBit{}, fmt.Errorf("compress: the step size of one_bit is %d: give 1 or more, such as 200", stepSize)
	case !(initScale > 0) || !finite(initScale):
		return OneBit{}, fmt.Errorf("compress: the first scale of one_bit is %g: give a positive number, such as 1", initScale)
	case !(maxScale >= initScale) || !finite(maxScale):
		return OneBit{}, fmt.Errorf("compress: the greatest scale of one_bit is %g, the first is %g: give a number from there on, such as 10000", maxScale, initScale)
	case !(amplitude > 0) || !finite(amplitude):
		return OneBit{}, fmt.Errorf("compress: the amplitude of one_bit is %g: give a positive number, such as 0.1", amplitude)
	}
	return OneBit{stepSize, initScale, maxScale, amplitude}, nil
}

// Name is "one_bit".
func (OneBit) Name() string { return "one_bit" }

// Size is dim: the byte of the original, not a bit.
func (OneBit) Size(dim int) int { return dim }

// Encode writes 1 for a positive number, -1 for every other, zero and NaN among them.
func (c OneBit) Encode(dst []byte, values []float32) {
	check(c, len(dst), len(values))
	for i, x := range values {
		dst[i] = 0xff
		if x > 0 {
			dst[i] = 1
		}
	}
}

// Decode multiplies by the amplitude.
func (c OneBit) Decode(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	vec.FromInt8Scaled(dst, signed(src), c.Amplitude)
}

// Add adds the decoded numbers.
func (c OneBit) Add(dst []float32, src []byte) {
	check(c, len(src), len(dst))
	vec.AddInt8Scaled(dst, signed(src), c.Amplitude)
}

// Scale is that of a global step; steps below 0 count as 0.
func (c OneBit) Scale(step int64) float32 {
	s := max(step, 0) / c.StepSize * c.StepSize
	return float32(math.Min(float64(c.InitScale)*math.Sqrt(1+0.005*float64(s)), float64(c.MaxScale)))
}

// Look sets dst to Amplitude*tanh(scale*w). NaN stays NaN.
func (c OneBit) Look(dst, values []float32, step int64) {
	scale := float64(c.Scale(step))
	for i, x := range values {
		dst[i] = float32(float64(c.Amplitude) * math.Tanh(scale*float64(x)))
	}
}

// Grade multiplies g by Amplitude*scale*(1 - tanh²(scale*w)), the slope of Look.
func (c OneBit) Grade(g, values []float32, step int64) {
	scale := float64(c.Scale(step))
	for i, x := range values {
		t := math.Tanh(scale * float64(x))
		g[i] = float32(float64(g[i]) * float64(c.Amplitude) * scale * (1 - t*t))
	}
}
