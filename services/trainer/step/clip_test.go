package step

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

func TestClip(t *testing.T) {
	for name, tc := range map[string]struct {
		most       float32
		give, want [][]float32
	}{
		"none":         {0, [][]float32{{3e30}, {4e30}}, [][]float32{{3e30}, {4e30}}},
		"within":       {5, [][]float32{{3}, {-4}}, [][]float32{{3}, {-4}}},
		"beyond":       {2.5, [][]float32{{3, 0}, {-4}}, [][]float32{{1.5, 0}, {-2}}},
		"squares big":  {1, [][]float32{{3e30}, {4e30}}, [][]float32{{0.6}, {0.8}}},
		"no gradients": {1, [][]float32{{}, {0}}, [][]float32{{}, {0}}},
	} {
		clip(tc.give, tc.most)
		for i := range tc.want {
			if !slices.EqualFunc(tc.give[i], tc.want[i], func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*math.Abs(float64(b)) }) {
				t.Errorf("%s: %v, want %v", name, tc.give, tc.want)
			}
		}
	}
}

// The gradients of all variables together are clipped before any is sent, those of rows are not; what is no number is
// still found.
func TestDenseGradientsAreClipped(t *testing.T) {
	spec := trainertest.SmallSpec()
	e, err := New(spec, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	norm := func(s *Step) float64 {
		sum := 0.0
		for _, v := range s.Batch.Dense {
			for _, g := range v {
				sum += float64(g) * float64(g)
			}
		}
		return math.Sqrt(sum)
	}
	free := learnt(t, e)
	whole := norm(free)
	spec.ClipNorm = float32(whole / 4)
	clipped := learnt(t, e)
	if got := norm(clipped); math.Abs(got/whole-0.25) > 1e-5 || !slices.Equal(free.Batch.Blocks(0)[0].Grads, clipped.Batch.Blocks(0)[0].Grads) {
		t.Errorf("a norm of %g was clipped to %g", whole, got)
	}
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		s := learnt(t, e)
		s.Batch.Dense[0][0] = x
		if clip(s.Batch.Dense, 1); !errors.Is(s.takeable(), ErrGradients) {
			t.Errorf("%v was clipped to what is taken", x)
		}
	}
}
