package shards

import (
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
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
		got, err := FetchDense(t.Context(), w.set, e, 0, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range e.Variables() {
			if !slices.Equal(got.Values[i], modelspec.InitVariable(spec, v)) {
				t.Errorf("of %d shards, %s is another", shards, v.Name)
			}
		}
		memory := &got.Values[0][0]
		clear(got.Values[0])
		if got, err = FetchDense(t.Context(), w.set, e, 7, 0, got); err != nil || &got.Values[0][0] != memory || !slices.Equal(got.Values[0], modelspec.InitVariable(spec, e.Variables()[0])) || got.Version != 7 {
			t.Errorf("of %d shards, version %d came into memory of an earlier one: %v", shards, got.Version, err)
		}
		all[0].spec = trainertest.SmallSpec() // as a shard of another build
		if _, err := FetchDense(t.Context(), w.set, e, 0, 0, nil); err == nil {
			t.Errorf("%d shards: what one answers of another model is taken", shards)
		}
	}
}

// A shard of another build may answer another variable, place or size than was asked for: none of it
// is taken for what was asked.
func TestWhatIsNoAnswerIsNotTaken(t *testing.T) {
	w := setOf(t, 1)
	shard := w.serve(trainertest.SmallSpec())[0]
	e, err := step.New(trainertest.SmallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*rowwire.NamedTensor){
		"another name":  func(r *rowwire.NamedTensor) { r.Name += "x" },
		"another place": func(r *rowwire.NamedTensor) { r.At++ },
		"a number more": func(r *rowwire.NamedTensor) { r.Values = append(slices.Clone(r.Values), 1) },
	} {
		shard.change = change
		if _, err := FetchDense(t.Context(), w.set, e, 0, 0, nil); err == nil || !strings.Contains(err.Error(), "were asked for") {
			t.Errorf("%s is taken: %v", what, err)
		}
	}
	shard.change = nil
	if _, err := FetchDense(t.Context(), w.set, e, 0, 0, nil); err != nil {
		t.Errorf("the answer itself: %v", err)
	}
}

// One request asks for as many bands as its answer may hold, in bytes and in number.
func TestHowManyBandsAreAskedForAtOnce(t *testing.T) {
	bands := func(n, size int) []modelspec.Band {
		return slices.Repeat([]modelspec.Band{{Size: size}}, n)
	}
	const half = modelspec.MaxStepBytes / 4 / 2
	for _, tc := range []struct {
		bands []modelspec.Band
		want  int
	}{
		{bands(1, half), 1}, {bands(2, half), 2}, {bands(3, half), 2}, {append(bands(1, half), bands(1, half+1)...), 1},
		{bands(rowwire.MaxTensors, 1), rowwire.MaxTensors}, {bands(rowwire.MaxTensors+1, 1), rowwire.MaxTensors},
	} {
		if got := atOnce(tc.bands); got != tc.want {
			t.Errorf("%d of %d bands of %d numbers are asked for, want %d", got, len(tc.bands), tc.bands[0].Size, tc.want)
		}
	}
}
