package runtime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// A sample of one id of each feature is the same whichever way it is added, among whatever others, and so is what is
// refused.
func TestSamplesOfSingleIDs(t *testing.T) {
	crossed := wide()
	crossed.Features = append(crossed.Features, &model.Feature{Name: "both", Slot: 50, Table: crossed.Tables[0].Name, Cross: []string{"y", "x"}})
	for name, spec := range map[string]*model.ModelSpec{"one table": narrow(), "three tables": wide(), "crossed": crossed} {
		e := engineOf(t, spec, 2, 8)
		rng := rand.New(rand.NewPCG(7, uint64(len(name))))
		for range 300 {
			quick, plain := e.NewBatch(), e.NewBatch()
			for range 12 {
				s := Sample{IDs: make([][]int64, len(spec.Features)), Labels: []float32{rng.Float32()}}
				ids := make([]int64, len(spec.Features))
				for f, declared := range spec.Features {
					if len(declared.Cross) > 0 {
						continue
					}
					slot := declared.Slot
					if rng.IntN(60) == 0 {
						slot++
					}
					ids[f] = modelspec.FID(slot, rng.Int64N(100))
					s.IDs[f] = []int64{ids[f]}
				}
				if rng.IntN(30) == 0 {
					s.Labels = nil
				}
				want := plain.Add(s)
				var got error
				if rng.IntN(6) == 0 {
					got = quick.Add(s)
				} else {
					got = quick.AddSingle(ids, nil, s.Labels, nil)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("%s: %v; Add says %v", name, got, want)
				}
				if rng.IntN(8) == 0 {
					n := rng.IntN(plain.Len() + 1)
					quick.Truncate(n)
					plain.Truncate(n)
				}
				if several := rng.IntN(10) == 0; several && s.Labels != nil {
					s.IDs[0] = append(s.IDs[0], s.IDs[0]...)
					if a, b := quick.Add(s), plain.Add(s); fmt.Sprint(a) != fmt.Sprint(b) {
						t.Fatalf("%s: %v, and %v", name, a, b)
					}
				}
			}
			if quick.Len() != plain.Len() || !slices.Equal(quick.Labels(0), plain.Labels(0)) {
				t.Fatalf("%s: %d samples, Add makes %d", name, quick.Len(), plain.Len())
			}
			for i := range plain.Len() {
				for f := range spec.Features {
					if !slices.Equal(quick.IDs(f, i), plain.IDs(f, i)) {
						t.Fatalf("%s: sample %d, feature %d: %v, Add makes %v", name, i, f, quick.IDs(f, i), plain.IDs(f, i))
					}
				}
			}
		}
	}
}
