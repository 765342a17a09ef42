package lineage_test

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/projections/lineage"
)

// A job's returns are known for good, also once their checkpoints are gone, and of very many those to the newest.
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
	if got := f.s.Jobs["j"].Returned; !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("returned to %v once 1 is deleted", got)
	}
	f.restored(3)
	if got := f.s.Jobs["j"].Returned; !slices.Equal(got, []int64{1, 2, 3}) || !slices.Equal(before.Returned, []int64{1, 2}) {
		t.Errorf("returned to %v; a reader has %v", got, before.Returned)
	}
	for id := int64(4); id <= lineage.MaxReturned+10; id++ {
		f.saved(id, id-1)
		f.restored(id)
	}
	got := f.s.Jobs["j"].Returned
	if len(got) != lineage.MaxReturned || got[0] != 11 || got[len(got)-1] != lineage.MaxReturned+10 {
		t.Errorf("%d returns are known, %d to %d", len(got), got[0], got[len(got)-1])
	}
}

// The last return is known also where it is to the oldest of very many checkpoints, so that it is not made again and again.
func TestReturnedToTheOldest(t *testing.T) {
	f := &fold{s: lineage.New()}
	f.saved(1)
	for id := int64(2); id <= lineage.MaxReturned+1; id++ {
		f.saved(id)
		f.restored(id)
	}
	f.restored(1)
	if got := f.s.Jobs["j"].Returned; len(got) != lineage.MaxReturned || got[0] != 1 || got[1] != 3 {
		t.Errorf("%d returns are known, the first to %v", len(got), got[:2])
	}
}
