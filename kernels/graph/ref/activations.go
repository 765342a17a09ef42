package ref

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// activation computes those that have one operand, and their derivatives of dy and it.
func (a *at) activation() bool {
	var f func(x number) number
	switch a.node.Op.(type) {
	case graph.SiLU:
		f = smooth(func(x float64) float64 { return x / (1 + math.Exp(-x)) }, 1.1)
	case graph.GELU:
		f = smooth(func(x float64) float64 { return x * phi(x) }, 1.13)
	case graph.SiLUGrad:
		f = smooth(func(x float64) float64 { s := sigmoid(x); return s * (1 + x*(1-s)) }, 0.5)
	case graph.GELUGrad:
		f = smooth(func(x float64) float64 { return phi(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi) }, 0.8)
	case graph.Exp:
		f = func(x number) number { return x.through(math.Exp) }
	case graph.Log1p:
		f = func(x number) number { return x.through(math.Log1p) }
	case graph.Sqrt:
		f = func(x number) number { return x.through(math.Sqrt) }
	case graph.Reciprocal:
		f = number.inverse
	default:
		return false
	}
	a.each(func(i int) (float64, float64) {
		if len(a.in) > 1 {
			return a.in[0].of(i).mul(f(a.in[1].of(i))).round().both()
		}
		return f(a.in[0].of(i)).round().both()
	})
	return true
}

// phi is the normal distribution.
func phi(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

// smooth is a function whose slope is nowhere above steep.
func smooth(f func(x float64) float64, steep float64) func(x number) number {
	return func(x number) number {
		v := f(x.v)
		return number{v, steep*x.e + 0x1p-48*(math.Abs(x.v)+1)*math.Abs(v)}
	}
}

func (a *at) preLU() {
	m := a.node.Shape.Last()
	a.each(func(i int) (float64, float64) {
		x, slope := a.in[0].of(i), a.in[1].of(i%m)
		below := slope.mul(x).round()
		switch {
		case math.Abs(x.v) <= x.e: // either, and both are near 0
			return x.v, math.Max(x.largest(), below.largest()) + x.largest()
		case x.v <= 0:
			return below.both()
		}
		return x.both()
	})
}

func (a *at) preLUGrad() {
	m := a.node.Shape.Last()
	a.each(func(i int) (float64, float64) {
		dy, x, slope := a.in[0].of(i), a.in[1].of(i), a.in[2].of(i%m)
		below := slope.mul(dy).round()
		switch {
		case math.Abs(x.v) <= x.e && x.e > 0: // either
			return dy.v, math.Max(dy.e, math.Abs(dy.v-below.v)+below.e)
		case x.v <= 0:
			return below.both()
		}
		return dy.both()
	})
}
