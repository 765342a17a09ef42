package lineage_test

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/projections/lineage"
)

// A job's returns are known as long as their checkpoints are there.
func TestReturned(t *testing.T) {
	f := &fold{s: lineage.New()}
	f.saved(1)
	f.saved(2)
	f.restored(2)
	f.restored(1)
	f.restored(1)
	f.restored(7) // which nobody has saved
	before := f.s.Jobs["j"]
	if !slices.Equal(before.Returned, []int64{1, 2}) {
		t.Errorf("returned to %v", before.Returned)
	}
	f.saved(3, 1)
	if got := f.s.Jobs["j"].Returned; !slices.Equal(got, []int64{2}) || !slices.Equal(before.Returned, []int64{1, 2}) {
		t.Errorf("returned to %v once 1 is deleted; a reader has %v", got, before.Returned)
	}
}
