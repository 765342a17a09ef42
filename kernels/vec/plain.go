package vec

import "math"

// backend is one implementation of the loops that are worth several. Slices arrive with
// equal lengths, at least 1.
type backend struct {
	name     string
	dot      func(a, b []float32) float32
	axpy     func(alpha float32, x, y []float32)
	axpy4    func(a0, a1, a2, a3 float32, x0, x1, x2, x3, y []float32)
	add      func(x, y []float32)
	maxBits  func(x []float32) uint32
	fromFP16 func(dst []float32, src []uint16)
	addFP16  func(dst []float32, src []uint16)
	toFP16   func(dst []uint16, src []float32)
	fromInt8 func(dst []float32, src []int8, scale float32)
	addInt8  func(dst []float32, src []int8, scale float32)
	sgd      func(w, g []float32, rate float32)
	adagrad  func(w, n, g []float32, rate, decay float32)
	adam     func(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32)
}

// plain is the meaning of the others.
var plain = backend{
	name: "plain",
	dot:  dotGo, axpy: axpyGo, axpy4: axpy4Go, add: addGo, maxBits: maxBitsGo,
	fromFP16: fromFP16Go, addFP16: addFP16Go, toFP16: toFP16Go,
	fromInt8: fromInt8Go, addInt8: addInt8Go,
	sgd: sgdGo, adagrad: adagradGo, adam: adamGo,
}

// chosen is the fastest of the backends that this processor runs and nobody switched
// off. It never changes, so a process always rounds the same way.
var chosen = fastest()

// dotGo keeps four partial sums, so that additions need not wait for one another.
func dotGo(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func axpyGo(alpha float32, x, y []float32) {
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s, d := x[i:i+4:i+4], y[i:i+4:i+4]
		d[0] += alpha * s[0]
		d[1] += alpha * s[1]
		d[2] += alpha * s[2]
		d[3] += alpha * s[3]
	}
	for ; i < len(x); i++ {
		y[i] += alpha * x[i]
	}
}

func axpy4Go(a0, a1, a2, a3 float32, x0, x1, x2, x3, y []float32) {
	n := len(y)
	x0, x1, x2, x3 = x0[:n], x1[:n], x2[:n], x3[:n]
	for i := range y {
		v := y[i]
		v += a0 * x0[i]
		v += a1 * x1[i]
		v += a2 * x2[i]
		v += a3 * x3[i]
		y[i] = v
	}
}

func addGo(x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += v
	}
}

// maxBitsGo is the greatest absolute value as bits, which are in the order of the numbers:
// infinity comes out above every finite one, and NaN above infinity. Comparing integers
// leaves nothing to predict.
func maxBitsGo(x []float32) (most uint32) {
	for _, v := range x {
		most = max(most, math.Float32bits(v)&^(1<<31))
	}
	return most
}
