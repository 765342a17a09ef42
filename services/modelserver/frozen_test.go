package modelserver

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/kernels/dense"
)

// The tower is packed once for each set of variables, not in every Predict, and scores
// to the bit what it would unpacked.
func TestATowerIsPackedOnceForItsVariables(t *testing.T) {
	m := newEntry(t)
	x := make([]float32, 3*m.width)
	for i := range x {
		x[i] = float32(i%7)/4 - 0.5
	}
	check := func() *dense.Frozen {
		t.Helper()
		p := m.params.Load()
		first, err := p.frozen()
		if err != nil {
			t.Fatal(err)
		}
		var a, b dense.Workspace
		got, err := first.Forward(x, 3, &a)
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.tower.Forward(p.tensors, x, 3, &b)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("packed %v, unpacked %v, %v", got, want, err)
		}
		if again, err := p.frozen(); err != nil || again != first {
			t.Errorf("packed anew for the same variables: %v", err)
		}
		return first
	}
	before := check()
	v := m.vars[0]
	values := make([]byte, 4*v.Size)
	if err := m.apply(&delta.Delta{Chunks: 1, Dense: []*delta.Variable{{Name: v.Name, Shape: v.Shape, Values: values}}}, 5); err != nil {
		t.Fatal(err)
	}
	if after := check(); after == before {
		t.Error("a delta's variables are not packed")
	}
	n := testing.AllocsPerRun(100, func() {
		if _, err := m.params.Load().frozen(); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations to get at the packed tower", n)
	}
}
