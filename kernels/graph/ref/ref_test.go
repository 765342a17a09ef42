package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph/graphtest"
	"github.com/monolith-go/monolith/kernels/graph/ref"
)

// The gradients of drawn graphs are what differences of the loss say: of each operation's
// derivative, and of their composition.
func FuzzGradientsAgainstDifferences(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		c, err := graphtest.Draw(r, 1+r.IntN(4), graphtest.Options{Sums: true})
		if err != nil {
			t.Fatal(err)
		}
		inputs, weights := graphtest.Wide(c.Inputs), graphtest.Wide(c.Weights)
		given := map[int][]float64{}
		for i, id := range c.Graph.Inputs() {
			given[int(id)] = inputs[i]
		}
		for i, id := range c.Graph.Weights() {
			given[int(id)] = weights[i]
		}
		loss := func() float64 {
			v, err := ref.Run(c.Graph, c.N, inputs, weights)
			if err != nil {
				t.Fatal(err)
			}
			return v[c.Loss].V[0]
		}
		values, err := ref.Run(c.Graph, c.N, inputs, weights)
		if err != nil {
			t.Fatal(err)
		}
		at := loss()
		const h = 1e-6
		for i, id := range c.By {
			x := given[int(id)]
			for range 4 {
				k := r.IntN(len(x))
				old := x[k]
				x[k] = old + h
				up := loss()
				x[k] = old - h
				down := loss()
				x[k] = old
				right, left, got := (up-at)/h, (at-down)/h, values[c.Gradients[i]].V[k]
				tol := 1e-4 * (1 + math.Abs(got) + math.Abs(at))
				if math.Abs(right-left) > 10*tol {
					continue // a kink of ReLU between the two
				}
				if want := (up - down) / (2 * h); math.Abs(got-want) > tol && !(got <= math.Max(right, left)+tol && got >= math.Min(right, left)-tol) {
					t.Errorf("gradient %d[%d] by node %d is %g, differences say %g", i, k, id, got, want)
				}
			}
		}
	})
}
