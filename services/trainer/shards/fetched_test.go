package shards

import (
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// Variables come together from the bands of however many shards.
func TestVariablesAreFetchedInBands(t *testing.T) {
	for _, shards := range []int{1, 3} {
		w := setOf(t, shards)
		spec := trainertest.WideSpec()
		all := w.serve(spec)
		e, err := step.New(spec, shards, 8)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FetchDense(t.Context(), w.set, e, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range e.Variables() {
			if !slices.Equal(got.Values[i], modelspec.InitVariable(spec, v)) {
				t.Errorf("of %d shards, %s is another", shards, v.Name)
			}
		}
		all[0].spec = trainertest.SmallSpec() // as a shard of another build
		if _, err := FetchDense(t.Context(), w.set, e, 0, 0); err == nil {
			t.Errorf("%d shards: what one answers of another model is taken", shards)
		}
	}
}
