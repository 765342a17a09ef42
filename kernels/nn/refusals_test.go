package nn_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
)

// cube is an operation that nobody has a kernel for.
type cube struct{ graph.ReLU }

func (cube) Name() string { return "cube" }

func TestCompileNamesTheNode(t *testing.T) {
	b := &graph.Builder{}
	b.Output("y", b.Add("interest", cube{}, b.Input("x", 3)))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nn.Compile(g, nn.Options{}); err == nil || !strings.Contains(err.Error(), `node "interest": there is no kernel for the operation cube`) {
		t.Errorf("%v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	b := &graph.Builder{}
	b.Output("y", b.Add("y", graph.MatMul{}, b.Input("x", 3), b.Weight("w", 3, 2)))
	p := compile(t, b, nn.Options{})
	x, w := [][]float32{make([]float32, 6)}, &nn.Weights{Values: [][]float32{make([]float32, 6)}}
	for says, run := range map[string]func(out *nn.Outputs) error{
		"-1 samples":      func(out *nn.Outputs) error { return p.Run(&nn.Lane{}, -1, x, w, out) },
		"with 0 inputs":   func(out *nn.Outputs) error { return p.Run(&nn.Lane{}, 2, nil, w, out) },
		"and 0 weights":   func(out *nn.Outputs) error { return p.Run(&nn.Lane{}, 2, x, &nn.Weights{}, out) },
		`input "x" has 6`: func(out *nn.Outputs) error { return p.Run(&nn.Lane{}, 3, x, w, out) },
		`weight "w" has 5 floats: its shape [3 2] has 6`: func(out *nn.Outputs) error {
			return p.Run(&nn.Lane{}, 2, x, &nn.Weights{Values: [][]float32{make([]float32, 5)}}, out)
		},
	} {
		out := &nn.Outputs{Values: [][]float32{{7, 7, 7, 7, 7, 7}}}
		if err := run(out); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
		for _, v := range out.Values[0] {
			if v != 7 {
				t.Errorf("%q: a refused run wrote %v", says, out.Values)
			}
		}
	}
}
