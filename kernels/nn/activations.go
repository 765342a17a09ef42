package nn

import (
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// activation is the function of an operation by element that calls for float64, or nil.
func activation(op graph.Op) function {
	switch op.(type) {
	case graph.Sigmoid:
		return sigmoid
	case graph.Tanh:
		return tanh
	case graph.SiLU:
		return silu
	case graph.SiLUGrad:
		return siluGrad
	case graph.GELU:
		return gelu
	case graph.GELUGrad:
		return geluGrad
	case graph.Exp:
		return exp
	case graph.Log1p:
		return log1p
	case graph.Sqrt:
		return sqrt
	case graph.Reciprocal:
		return reciprocal
	}
	return nil
}

func sigmoid(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(1 / (1 + math.Exp(-float64(v))))
	}
}

func tanh(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(math.Tanh(float64(v)))
	}
}

func silu(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(float64(v) / (1 + math.Exp(-float64(v))))
	}
}

func siluGrad(dst, dy, x []float32) {
	dy = dy[:len(dst)]
	for i, v := range x[:len(dst)] {
		s := 1 / (1 + math.Exp(-float64(v)))
		dst[i] = float32(float64(dy[i]) * (s * (1 + float64(v)*(1-s))))
	}
}

// phi is the normal distribution.
func phi(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

func gelu(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(float64(v) * phi(float64(v)))
	}
}

func geluGrad(dst, dy, x []float32) {
	dy = dy[:len(dst)]
	for i, v := range x[:len(dst)] {
		x := float64(v)
		dst[i] = float32(float64(dy[i]) * (phi(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)))
	}
}

func exp(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(math.Exp(float64(v)))
	}
}

func log1p(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(math.Log1p(float64(v)))
	}
}

func sqrt(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(math.Sqrt(float64(v)))
	}
}

func reciprocal(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = 1 / v
	}
}
