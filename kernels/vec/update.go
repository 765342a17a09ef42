package vec

import "math"

// The loops of the usual optimizers. Each operation below is rounded to float32 by
// itself, in every backend, so all of them give the same bits; where a NaN comes from
// two NaNs, its payload is not promised.

// SGD subtracts rate*g[i] from w[i].
func SGD(w, g []float32, rate float32) {
	n := min(len(w), len(g))
	if n == 0 {
		return
	}
	chosen.sgd(w[:n], g[:n], rate)
}

// Adagrad is, with d = g[i] + decay*w[i],
//
//	n[i] += d*d
//	w[i] -= rate / sqrt(n[i]) * d
//
// A weight whose n is not above zero afterwards, or is NaN, stays as it is.
func Adagrad(w, n, g []float32, rate, decay float32) {
	k := min(len(w), len(n), len(g))
	if k == 0 {
		return
	}
	chosen.adagrad(w[:k], n[:k], g[:k], rate, decay)
}

// Adam is, with d = g[i] + decay*w[i],
//
//	m[i] += (d - m[i]) * c1
//	v[i] += (d*d - v[i]) * c2
//	w[i] -= m[i]*rate / (sqrt(v[i]) + epsilon)
//
// c1 and c2 are 1-beta1 and 1-beta2; rate has its bias corrected.
func Adam(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32) {
	n := min(len(w), len(m), len(v), len(g))
	if n == 0 {
		return
	}
	chosen.adam(w[:n], m[:n], v[:n], g[:n], rate, c1, c2, epsilon, decay)
}

func sgdGo(w, g []float32, rate float32) {
	g = g[:len(w)]
	for i, x := range w {
		w[i] = x - float32(rate*g[i])
	}
}

func adagradGo(w, n, g []float32, rate, decay float32) {
	n, g = n[:len(w)], g[:len(w)]
	for i, x := range w {
		d := g[i] + float32(decay*x)
		a := n[i] + float32(d*d)
		n[i] = a
		if a > 0 {
			w[i] = x - float32(float32(rate/sqrt(a))*d)
		}
	}
}

func adamGo(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32) {
	m, v, g = m[:len(w)], v[:len(w)], g[:len(w)]
	for i, x := range w {
		d := g[i] + float32(decay*x)
		a := m[i] + float32(float32(d-m[i])*c1)
		b := v[i] + float32(float32(float32(d*d)-v[i])*c2)
		m[i], v[i] = a, b
		w[i] = x - float32(a*rate)/(sqrt(b)+epsilon)
	}
}

// sqrt is correctly rounded: 53 bits are more than twice 24 and two.
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
