package nn_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// lossOf runs a loss of two inputs [n width] and its gradient by the first.
func lossOf(t testing.TB, op graph.Op, width int, x, y []float32) (loss float32, d []float32) {
	t.Helper()
	b := &graph.Builder{}
	in := []graph.ID{b.Input("x", width), b.Input("y", width)}
	l := b.Add("loss", op, in...)
	b.Output("loss", l)
	b.Output("dx", b.Gradients(l, in[0])[0])
	var out nn.Outputs
	if err := compile(t, b, nn.Options{}).Run(&nn.Lane{}, len(x)/width, [][]float32{x, y}, &nn.Weights{}, &out); err != nil {
		t.Fatal(err)
	}
	return out.Values[0][0], out.Values[1]
}

func near(a float32, b float64) bool { return math.Abs(float64(a)-b) <= 1e-6*(1+math.Abs(b)) }

func TestInBatchLosses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	softmax, auc := graph.InBatchSoftmax{}, graph.InBatchAUC{}
	// Logits 1·2, 1·0 and 3·2, 3·0: the second sample's own is the less likely.
	if loss, _ := lossOf(t, softmax, 1, []float32{1, 3}, []float32{2, 0}); !near(loss, (math.Log1p(math.Exp(-2))+math.Log1p(math.Exp(6)))/2) {
		t.Errorf("in-batch softmax is %g", loss)
	}
	if loss, _ := lossOf(t, softmax, 1, []float32{1, 1}, []float32{-inf, 2}); !math.IsInf(float64(loss), 1) {
		t.Errorf("of a candidate that cannot be it is %g", loss)
	}
	if loss, d := lossOf(t, softmax, 1, []float32{1, nan}, []float32{2, 0}); loss == loss || d[1] == d[1] {
		t.Errorf("of a NaN it is %g, gradients %v", loss, d)
	}
	// Two pairs, of 1 with −1 and with 3.
	x, y := []float32{-1, 1, 3}, []float32{0, 1, 0}
	if loss, d := lossOf(t, auc, 1, x, y); !near(loss, (math.Log1p(math.Exp(-2))+math.Log1p(math.Exp(2)))/2) || !near(d[1], -0.5) {
		t.Errorf("in-batch AUC is %g, gradients %v", loss, d)
	}
	if loss, d := lossOf(t, auc, 1, []float32{-1, nan, 3}, y); loss == loss || d[0] == d[0] {
		t.Errorf("of a NaN it is %g, gradients %v", loss, d)
	}
	for _, labels := range [][]float32{{0, 0, 0}, {1, 1, 1}} {
		if loss, d := lossOf(t, auc, 1, []float32{-1, nan, 3}, labels); loss != 0 || d[0] != 0 || d[1] != 0 || d[2] != 0 {
			t.Errorf("without pairs it is %g, gradients %v", loss, d)
		}
	}
	for _, op := range []graph.Op{softmax, auc} {
		if loss, d := lossOf(t, op, 1, nil, nil); loss != 0 || len(d) != 0 {
			t.Errorf("%s of no samples is %g", op.Name(), loss)
		}
	}
}

// In-batch losses take no memory either.
func TestInBatchLossesAllocateNothing(t *testing.T) {
	for _, op := range []graph.Op{graph.InBatchSoftmax{}, graph.InBatchAUC{}} {
		b := &graph.Builder{}
		in := []graph.ID{b.Input("x", 1), b.Input("y", 1)}
		l := b.Add("loss", op, in...)
		b.Output("loss", l)
		b.Output("dx", b.Gradients(l, in[0])[0])
		p, lane, w, out := compile(t, b, nn.Options{}), &nn.Lane{Pool: partest.New(t, 2)}, &nn.Weights{}, nn.Outputs{}
		r := rand.New(rand.NewPCG(1, 1))
		x := [][]float32{draw(r, 100, 1), draw(r, 100, 1)}
		if n := testing.AllocsPerRun(100, func() {
			if err := p.Run(lane, 100, x, w, &out); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a run", op.Name(), n)
		}
	}
}
