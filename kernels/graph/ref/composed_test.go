package ref_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/graph/ref"
)

// A hand-written operation and its gradient are what it is composed of, and that one's.
func TestFusedIsComposed(t *testing.T) {
	for _, p := range graphtest.Pairs(false) {
		t.Run(p.Name, func(t *testing.T) {
			for n := range 4 {
				got, want := outputs(t, p, p.Fused, n), outputs(t, p, p.Composed, n)
				for i, w := range want {
					for at, w := range w.V {
						if got := got[i].V[at]; math.Abs(got-w) > 1e-9*(1+math.Abs(w)) {
							t.Errorf("%d samples: output %d[%d] is %g, composed %g", n, i, at, got, w)
						}
					}
				}
			}
		})
	}
}

func outputs(t *testing.T, p graphtest.Pair, layer graphtest.Layer, n int) []ref.Value {
	t.Helper()
	c, err := p.Case(layer, n)
	if err != nil {
		t.Fatal(err)
	}
	values, err := ref.Run(c.Graph, n, graphtest.Wide(c.Inputs), graphtest.Wide(c.Weights))
	if err != nil {
		t.Fatal(err)
	}
	var out []ref.Value
	for _, o := range c.Graph.Outputs() {
		out = append(out, values[o.ID])
	}
	return out
}
