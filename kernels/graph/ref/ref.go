// Package ref computes a graph in float64, as the formulas read, and bounds how far a back end may
// be from it that computes in float32: it is what back ends are tested against.
//
// Bounds are worst cases of each operation, propagated: u is 2^-24, half a unit of the last place.
// An operation by element adds u of its result for each rounding, a product what kernels/gemm
// says, and each passes on the bounds of its operands. Moving adds nothing. Where a
// decision (ReLU's mask) lies within a bound, both outcomes do.
package ref

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/kernels/graph"
)

// Value is a node's, row by row, and how far each float of a back end may be from it.
type Value struct{ V, E []float64 }

// Holds says whether x is what float i may be: within the bound, or NaN where the value is one. No bound
// (infinite, or NaN) says that it depends on a decision within a bound whether a NaN is passed on.
func (v Value) Holds(i int, x float32) bool {
	want, e := v.V[i], v.E[i]
	switch {
	case x != x:
		return math.IsNaN(want) || math.IsNaN(e) || math.IsInf(e, 1)
	case math.IsNaN(want):
		return math.IsInf(e, 1)
	}
	return !(math.Abs(float64(x)-want) > e)
}

// Run computes all nodes of g with n samples. inputs and weights are in g's order, n times their
// dimensions and their dimensions long; otherwise it is an error, as is an operation that it does
// not know.
func Run(g *graph.Graph, n int, inputs, weights [][]float64) ([]Value, error) {
	values := make([]Value, len(g.Nodes()))
	if len(inputs) != len(g.Inputs()) || len(weights) != len(g.Weights()) {
		return nil, fmt.Errorf("ref: %d inputs and %d weights for a graph of %d and %d", len(inputs), len(weights), len(g.Inputs()), len(g.Weights()))
	}
	given := map[graph.ID][]float64{}
	for i, id := range g.Inputs() {
		given[id] = inputs[i]
	}
	for i, id := range g.Weights() {
		given[id] = weights[i]
	}
	for id, node := range g.Nodes() {
		at := at{node: node, n: n, out: make([]float64, node.Shape.Floats(n)), e: make([]float64, node.Shape.Floats(n))}
		for _, in := range node.In {
			at.in = append(at.in, values[in])
			at.shapes = append(at.shapes, g.Nodes()[in].Shape)
		}
		if v, ok := given[graph.ID(id)]; ok {
			if len(v) != len(at.out) {
				return nil, fmt.Errorf("ref: node %q got %d floats: give %d samples of %v", node.Name, len(v), n, node.Shape)
			}
			copy(at.out, v)
		} else if !at.compute() {
			return nil, fmt.Errorf("ref: node %q (%s): the reference does not know the operation", node.Name, node.Op.Name())
		}
		values[id] = Value{at.out, at.e}
	}
	return values, nil
}

// at is a node that is computed.
type at struct {
	node   graph.Node
	n      int
	in     []Value
	shapes []graph.Shape
	out, e []float64
}

func (a *at) compute() bool {
	switch op := a.node.Op.(type) {
	case graph.Const:
		a.each(func(int) (float64, float64) { return float64(op.Value), 0 })
	case graph.MatMul:
		a.matMul(op)
	case graph.SumRows:
		a.sumRows()
	case graph.Broadcast:
		a.each(func(i int) (float64, float64) { j := i % len(a.in[0].V); return a.in[0].V[j], a.in[0].E[j] })
	case graph.Concat:
		a.concat()
	case graph.Slice:
		a.slice(op)
	case graph.Pad:
		a.pad(op)
	case graph.Reshape:
		a.each(func(i int) (float64, float64) { return a.in[0].V[i], a.in[0].E[i] })
	case graph.FM:
		a.fm()
	case graph.FMGrad:
		a.fmGrad()
	case graph.FFM:
		a.ffm()
	case graph.FFMGrad:
		a.ffmGrad()
	case graph.Sum:
		a.sum(op.Axis)
	case graph.Repeat:
		a.repeat(op.Axis)
	case graph.PReLU:
		a.preLU()
	case graph.PReLUGrad:
		a.preLUGrad()
	case graph.Softmax:
		a.softmax()
	case graph.SoftmaxGrad:
		a.softmaxGrad()
	case graph.Normalize:
		a.normalize(op.Epsilon)
	case graph.NormalizeGrad:
		a.normalizeGrad(op.Epsilon)
	case graph.L2Norm:
		a.l2Norm(op.Epsilon)
	case graph.L2NormGrad:
		a.l2NormGrad(op.Epsilon)
	case graph.BatchMatMul:
		a.batchMatMul(op.Kind)
	case graph.AddEach:
		a.byStep(number.add)
	case graph.MulEach:
		a.byStep(number.mul)
	case graph.SumProducts:
		a.sumProducts()
	case graph.GRU:
		a.gruOf(op, 0).states()
	case graph.GRUGrad:
		a.gruOf(graph.GRU(op), 2).grad()
	case graph.InBatchSoftmax:
		a.inBatchSoftmax()
	case graph.InBatchSoftmaxGrad:
		a.inBatchSoftmaxGrad()
	case graph.InBatchAUC:
		a.inBatchAUC()
	case graph.InBatchAUCGrad:
		a.inBatchAUCGrad()
	case graph.Penalty:
		a.penalty(op)
	case graph.PenaltyGrad:
		a.penaltyGrad(op)
	case graph.MulAdd:
		a.each(func(i int) (float64, float64) {
			return a.in[0].of(i).mul(a.in[1].of(i)).round().add(a.in[2].of(i)).round().both()
		})
	default:
		return a.byElement() || a.activation() || a.loss()
	}
	return true
}

// each computes every float of the result, and its bound.
func (a *at) each(f func(i int) (v, e float64)) {
	for i := range a.out {
		a.out[i], a.e[i] = f(i)
	}
}

const (
	u    = 0x1p-24 * (1 + 0x1p-20) // with room for float64's own errors
	tiny = 0x1p-149                // of a result that is subnormal
)

// rounded is the bound of a float64 within e of v once it is float32.
func rounded(v, e float64) float64 { return e + (math.Abs(v)+e)*u + tiny }
