// Package vec holds the few float32 loops that everything numeric here is made of.
//
// Lengths: every function works on the shortest of its slices. NaN and Inf follow IEEE
// 754; no term is skipped because a factor is zero. Results depend on the inputs and on
// the backend only, never on alignment, call order or goroutines. Plain Go states the
// meaning; other backends may only round differently (fused multiply-add, another order
// of partial sums).
package vec

import "math"

// Dot returns the sum of a[i]*b[i]. With no elements it is 0.
func Dot(a, b []float32) float32 {
	n := min(len(a), len(b))
	if n == 0 {
		return 0
	}
	return chosen.dot(a[:n], b[:n])
}

// Axpy adds alpha*x[i] to y[i].
func Axpy(alpha float32, x, y []float32) {
	n := min(len(x), len(y))
	if n == 0 {
		return
	}
	chosen.axpy(alpha, x[:n], y[:n])
}

// Axpy4 adds a0*x0[i] + a1*x1[i] + a2*x2[i] + a3*x3[i] to y[i], in that order: it is
// four calls of Axpy that load and store y once.
func Axpy4(a0, a1, a2, a3 float32, x0, x1, x2, x3, y []float32) {
	n := min(len(x0), len(x1), len(x2), len(x3), len(y))
	if n == 0 {
		return
	}
	chosen.axpy4(a0, a1, a2, a3, x0[:n], x1[:n], x2[:n], x3[:n], y[:n])
}

// Add adds x[i] to y[i].
func Add(x, y []float32) {
	n := min(len(x), len(y))
	if n == 0 {
		return
	}
	chosen.add(x[:n], y[:n])
}

// Fill sets every x[i] to v.
func Fill(v float32, x []float32) {
	for i := range x {
		x[i] = v
	}
}

// MaxAbs returns the greatest absolute value: NaN if an element is NaN, otherwise +Inf if
// one is infinite. With no elements it is 0. All backends give the same bits.
func MaxAbs(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return math.Float32frombits(chosen.maxBits(x))
}
