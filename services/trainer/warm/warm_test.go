package warm

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// saved writes checkpoint id of a job of two shards, with one row for each shard.
func saved(t *testing.T, dir string, id int64, change func(i int, s *checkpoint.Shard)) {
	t.Helper()
	spec := trainertest.SmallSpec()
	variables := modelspec.Variables(spec)
	for i := range 2 {
		s := &checkpoint.Shard{
			Manifest: checkpoint.Manifest{Job: "old", Shard: uint32(i), Shards: 2, Checkpoint: id, Epoch: 9, Step: 70, Turn: 7, Generation: 3, SyncSeq: 50, Offsets: map[int32]int64{0: 100 * id, 1: 5}, Assigned: []string{"x"}},
			Tables:   map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{}, Spec: spec,
		}
		for _, tab := range spec.GetTables() {
			dumps, err := dumpsOf(spec, tab.GetName())
			if err != nil {
				t.Fatal(err)
			}
			s.Manifest.Tables = append(s.Manifest.Tables, checkpoint.TableInfo{Name: tab.GetName(), Dim: 4, Slots: 4, Opt: dumps})
			s.Tables[tab.GetName()] = []table.Row{{ID: modelspec.FID(1, int64(2+i)), Values: []float32{1, 2, 3, float32(i)}, Slots: []float32{7, 7, 7, 7}}}
		}
		for k, v := range variables {
			if modelspec.VariableShard(k, 2) == i {
				slots := slotsOf(spec, v.Name, v.Size)
				for at := range slots {
					slots[at] += 5
				}
				s.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size), Slots: slots}
			}
		}
		if change != nil {
			change(i, s)
		}
		if _, err := checkpoint.CreateShard(filepath.Join(dir, checkpoint.Part(id, i)), s); err != nil {
			t.Fatal(err)
		}
	}
}

// The newest checkpoint that is whole is found; one that is asked for is found, or refused with what is
// wrong with it.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	job := filepath.Join(dir, "training", "old")
	saved(t, job, 1, nil)
	saved(t, job, 9, nil)
	saved(t, job, 10, func(i int, s *checkpoint.Shard) { s.Manifest.Offsets = map[int32]int64{0: int64(i)} })
	saved(t, job, 11, func(i int, s *checkpoint.Shard) { s.Manifest.Shards = 3 })
	saved(t, job, 12, nil)
	if err := os.Remove(filepath.Join(job, "model.ckpt-12", "ps_0", "manifest.json")); err != nil {
		t.Fatal(err)
	}
	for _, none := range []string{"x", "0", "-3", "99999999999999999999"} { // are no checkpoints' numbers
		if err := os.Mkdir(filepath.Join(job, "model.ckpt-"+none), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		cfg  Config
		want int64
		says string
	}{
		{Config{Dir: dir}, 9, ""},
		{Config{Dir: job}, 9, ""},
		{Config{Dir: job, Checkpoint: "1"}, 1, ""},
		{Config{Dir: job, Checkpoint: "model.ckpt-9"}, 9, ""},
		{Config{Dir: job, Checkpoint: "10"}, 0, "they are of no one cut"},
		{Config{Dir: job, Checkpoint: "11"}, 0, "2 of 3 shards"},
		{Config{Dir: job, Checkpoint: "12"}, 0, "no such file"},
		{Config{Dir: job, Checkpoint: "2"}, 0, "name one of [1 9 10 11 12]"},
		{Config{Dir: t.TempDir()}, 0, "no checkpoint lies in"},
	} {
		p, err := tc.cfg.Find()
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.says)
			}
			continue
		}
		if err != nil || p.Fact().Checkpoint != tc.want || p.Fact().Job != "old" || p.Fact().Dir != job {
			t.Errorf("%+v: %v, %v", tc.cfg, p, err)
		}
	}
}

func TestFits(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, 1, nil)
	for name, tc := range map[string]struct {
		change func(*model.ModelSpec)
		fresh  bool
		says   []string
	}{
		"the same":     {func(*model.ModelSpec) {}, false, nil},
		"other rates":  {func(s *model.ModelSpec) { s.DenseOptimizer.GetAdagrad().LearningRate = 7 }, false, nil},
		"other tables": {func(s *model.ModelSpec) { s.Tables[0].Name, s.Features[0].Table = "x", "x" }, false, []string{`table "user" is not declared`}},
		"other optimizers": {func(s *model.ModelSpec) {
			s.Tables[0].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
		}, false, []string{`table "user" was learnt by [adagrad]`, "--restore-optimizer=false"}},
		"other optimizers, fresh": {func(s *model.ModelSpec) {
			s.Tables[0].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
		}, true, nil},
		"other widths": {func(s *model.ModelSpec) { s.Layers[0].Units = 9 }, false, []string{"/kernel\" has the shape [8 8], declared is [8 9]"}},
		"other layers": {func(s *model.ModelSpec) { s.Layers[1].Name = "x" }, false, []string{`variable "x/kernel" is not in it`, "is not declared"}},
	} {
		spec := trainertest.SmallSpec()
		tc.change(spec)
		p, err := (&Config{Dir: dir, Optimizer: !tc.fresh}).Find()
		if err != nil {
			t.Fatal(err)
		}
		err = p.Fits(spec)
		if (err == nil) != (tc.says == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range tc.says {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// What is written is the parent's, under the child's name: with its slots, its step and its offsets where
// they are wanted, and with those of an untrained model where they are not.
func TestWrite(t *testing.T) {
	parent := t.TempDir()
	saved(t, parent, 4, nil)
	for _, tc := range []struct {
		cfg     Config
		step    uint64
		turn    uint64
		offsets map[int32]int64
	}{
		{Config{Dir: parent, Optimizer: true, Offsets: true}, 70, 7, map[int32]int64{0: 400, 1: 5}},
		{Config{Dir: parent, Optimizer: true}, 70, 0, map[int32]int64{}},
		{Config{Dir: parent}, 0, 0, map[int32]int64{}},
	} {
		p, err := tc.cfg.Find()
		if err != nil {
			t.Fatal(err)
		}
		dir, spec := t.TempDir(), trainertest.SmallSpec()
		child := Child{Job: "new", Spec: spec, Dir: dir, Checkpoint: 2, SyncSeq: 77}
		made, err := p.Write(t.Context(), child)
		if err != nil {
			t.Fatal(err)
		}
		if made.Id != 2 || len(made.Shards) != 2 || made.Turn != tc.turn || !maps.Equal(made.Offsets, tc.offsets) && len(tc.offsets) > 0 || made.Parent.Checkpoint != 4 || made.Parent.Optimizer != tc.cfg.Optimizer {
			t.Errorf("%+v: %v", tc.cfg, made)
		}
		for i, f := range made.Shards {
			s, err := checkpoint.ReadShardIn(dir, f.Path)
			if err != nil {
				t.Fatal(err)
			}
			m := s.Manifest
			if m.Job != "new" || m.Checkpoint != 2 || m.Shard != uint32(i) || m.SyncSeq != 77 || m.Step != tc.step || m.Turn != tc.turn || m.Generation != 0 || len(m.Assigned) != 0 || !maps.Equal(m.Offsets, tc.offsets) || m.Hash != f.Hash || f.Rows != 2 {
				t.Errorf("%+v: %+v", tc.cfg, m)
			}
			row := s.Tables["user"][0]
			if want := []float32{1, 2, 3, float32(i)}; !slices.Equal(row.Values, want) {
				t.Errorf("%+v: a row %v, want %v", tc.cfg, row.Values, want)
			}
			first := spec.Tables[0].GetOptimizer().GetAdagrad().GetInitialAccumulatorValue()
			if want := map[bool]float32{true: 7, false: first}[tc.cfg.Optimizer]; row.Slots[0] != want {
				t.Errorf("%+v: a slot %v, want %v", tc.cfg, row.Slots[0], want)
			}
			for name, v := range s.Dense {
				want := slotsOf(spec, name, len(v.Values))
				if tc.cfg.Optimizer {
					want[0] += 5
				}
				if v.Slots[0] != want[0] {
					t.Errorf("%+v: variable %s has the slot %v, want %v", tc.cfg, name, v.Slots[0], want[0])
				}
			}
		}
		if _, err := p.Write(t.Context(), child); !errors.Is(err, os.ErrExist) {
			t.Errorf("a second time: %v", err)
		}
	}
	damaged := filepath.Join(parent, "model.ckpt-4", "ps_1", "table-00000.tfrecord")
	raw, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(damaged, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := (&Config{Dir: parent, Optimizer: true}).Find()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(t.Context(), Child{Job: "new", Spec: trainertest.SmallSpec(), Dir: t.TempDir(), Checkpoint: 2}); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("of a damaged parent: %v", err)
	}
}
