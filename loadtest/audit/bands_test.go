package audit

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

// Bands of a variable are compared one by one, from whichever shard's delta they come.
func TestBandsAreCompared(t *testing.T) {
	shape := []uint32{2, 2}
	saved := NewRows()
	for at, values := range map[int][]float32{0: {1, 2}, 2: {3, 4}} { // of two shards
		saved.AddShard(&checkpoint.Shard{Bands: []checkpoint.Band{{Name: "k", At: at, Variable: checkpoint.Variable{Shape: shape, Values: values}}}})
	}
	band := func(at uint32, values ...float32) *delta.Delta {
		v := &delta.Variable{Name: "k", Shape: shape, At: at}
		for _, x := range values {
			v.Values = binary.LittleEndian.AppendUint32(v.Values, math.Float32bits(x))
		}
		return &delta.Delta{Dense: []*delta.Variable{v}}
	}
	for name, tc := range map[string]struct {
		deltas []*delta.Delta
		says   string
	}{
		"both":            {[]*delta.Delta{band(2, 3, 4), band(0, 1, 2)}, ""},
		"an older one":    {[]*delta.Delta{band(0, 1, 2), band(2, 9, 9), band(2, 3, 4)}, ""},
		"one is missing":  {[]*delta.Delta{band(0, 1, 2)}, "variable k from 2 on is missing"},
		"one is another":  {[]*delta.Delta{band(0, 1, 2), band(2, 3, 5)}, "variable k from 2 on differs in value 1"},
		"the first one":   {[]*delta.Delta{band(0, 7, 2), band(2, 3, 4)}, "variable k differs in value 0"},
		"shorter than it": {[]*delta.Delta{band(0, 1, 2), band(2, 3)}, "variable k from 2 on differs in value 1"},
	} {
		got := NewRows()
		for _, d := range tc.deltas {
			if err := got.Fold(d); err != nil {
				t.Fatal(err)
			}
		}
		if sentence, n := saved.Diff(got, true); !strings.HasPrefix(sentence, tc.says) || (n == 0) != (tc.says == "") {
			t.Errorf("%s: %d differ, %q", name, n, sentence)
		}
	}
}
