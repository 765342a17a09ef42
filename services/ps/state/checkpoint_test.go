package state

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/kernels/table"
)

// A checkpoint's variables must be those of the model, each with its size and slots.
func TestVariablesOfACheckpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(map[string]checkpoint.Variable, string, int)
		ok     bool
	}{
		"the same":       {func(map[string]checkpoint.Variable, string, int) {}, true},
		"one is missing": {func(d map[string]checkpoint.Variable, v string, _ int) { delete(d, v) }, false},
		"another size": {func(d map[string]checkpoint.Variable, v string, n int) {
			d[v] = checkpoint.Variable{Values: make([]float32, n+1)}
		}, false},
		"slots of another": {func(d map[string]checkpoint.Variable, v string, n int) {
			d[v] = checkpoint.Variable{Values: make([]float32, n), Slots: make([]float32, n)}
		}, false},
	} {
		s := standing(t, Config{})
		c := &checkpoint.Shard{Tables: map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{}}
		for id, v := range s.bands {
			c.Dense[id.name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size)}
		}
		for name, kind := range s.kinds {
			c.Manifest.Tables = append(c.Manifest.Tables, checkpoint.TableInfo{Name: name, Dim: s.dims[name], Opt: kind.dumps})
			c.Tables[name] = nil
		}
		slices.SortFunc(c.Manifest.Tables, func(a, b checkpoint.TableInfo) int { return strings.Compare(a.Name, b.Name) })
		c.Manifest.Format, c.Manifest.Shards = 2, 1
		tc.change(c.Dense, s.bandIDs[0].name, s.bands[s.bandIDs[0]].Size)
		if err := s.Load(c); (err == nil) != tc.ok || !tc.ok && !errors.Is(err, ErrOtherModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A table's clock comes from the checkpoint, and where that is older than clocks from the
// newest row.
func TestClocksOfACheckpoint(t *testing.T) {
	for format, want := range map[int]uint32{1: 900, 2: 500} {
		s := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
		c := &checkpoint.Shard{Tables: map[string][]table.Row{"user": {{ID: 1, Values: []float32{1, 2}, UnixSec: 900}}}, Dense: map[string]checkpoint.Variable{}}
		c.Manifest.Format, c.Manifest.Shards = format, 1
		c.Manifest.Tables = []checkpoint.TableInfo{{Name: "movie", Dim: 3, Clock: 7}, {Name: "user", Dim: 2, Clock: 500}}
		for id, v := range s.bands {
			c.Dense[id.name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size)}
		}
		if err := s.Load(c); err != nil {
			t.Fatal(err)
		}
		if got := s.expiry["user"].clock; got != want || s.expiry["movie"] != nil {
			t.Errorf("of format %d the clock is %d, want %d", format, got, want)
		}
	}
}
