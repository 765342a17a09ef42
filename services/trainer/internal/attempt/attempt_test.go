package attempt

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// Which failures in a row people are told of, and how soon the next attempt is made.
func TestFailuresInARow(t *testing.T) {
	broken, moved := errors.New("broken"), fmt.Errorf("x: %w", shards.ErrMoved)
	gap, overlap, generation := rowwire.Errorf(rowwire.Gap, "x"), rowwire.Errorf(rowwire.Overlap, "x"), rowwire.Errorf(rowwire.WrongGeneration, "x")
	for name, tc := range map[string]struct {
		errs   []error
		urgent bool
		told   []int // which of them
		soon   bool  // each is tried again soon
	}{
		"failures":                  {slices.Repeat([]error{broken}, 5), false, []int{2, 3, 4}, false},
		"a shard comes back":        {slices.Repeat([]error{moved}, 50), false, nil, true},
		"a gap":                     {slices.Repeat([]error{gap}, unsettled+3), false, []int{unsettled + 1, unsettled + 2}, true},
		"an overlap":                {slices.Repeat([]error{overlap}, unsettled+2), false, []int{unsettled + 1}, true},
		"another generation":        {slices.Repeat([]error{generation}, unsettled+2), false, []int{unsettled + 1}, true},
		"another refusal":           {slices.Repeat([]error{error(rowwire.Errorf(rowwire.Invalid, "x"))}, 3), false, []int{2}, false},
		"a model that diverges":     {[]error{broken}, true, []int{0}, false},
		"failures around a restart": {[]error{broken, moved, broken, gap, broken}, false, []int{4}, false},
	} {
		tr := New()
		for round := range 2 {
			var told []int
			soon := true
			for i, err := range tc.errs {
				wait, tell := tr.Failed(err, tc.urgent)
				if tell {
					told = append(told, i)
				}
				soon = soon && wait == tr.settling
			}
			if !slices.Equal(told, tc.told) || soon != tc.soon {
				t.Errorf("%s, round %d: told of %v, want %v; soon %v", name, round, told, tc.told, soon)
			}
			for range 20 {
				tr.pauses.Next()
				tr.settling.Next()
			}
			if tr.Well(); tr.pauses.Next() > 2*Settle || tr.settling.Next() > 2*Settle {
				t.Errorf("%s: the pauses stay long after a success", name)
			}
			tr.Well()
		}
	}
}
