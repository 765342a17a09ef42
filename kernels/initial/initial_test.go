package initial_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/initial"
)

func TestConstant(t *testing.T) {
	for _, x := range []float32{0, 1, -2.5} {
		c, err := initial.NewConstant(x)
		if err != nil {
			t.Fatal(err)
		}
		values := []float32{9, 9, 9}
		if c.Init(values, 77); !slices.Equal(values, []float32{x, x, x}) {
			t.Errorf("%g: %v", x, values)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := initial.NewConstant(float32(x)); err == nil {
			t.Errorf("took %g", x)
		}
	}
}
