package warm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

func checkpoints(c ...*training.Checkpoint) (all []events.JSON[*training.Checkpoint]) {
	for _, c := range c {
		all = append(all, events.JSON[*training.Checkpoint]{V: c})
	}
	return all
}

// beginning is a job about to begin from checkpoint 4 of another, and what it has stated.
func beginning(t *testing.T, parent string, said *[]*training.Event) (*Config, *Job) {
	t.Helper()
	dir := t.TempDir()
	return &Config{Dir: parent, Optimizer: true}, &Job{
		Name: "new", Dir: dir, Spec: trainertest.SmallSpec(),
		Now: func() lineage.Job { return lineage.Job{LastID: 2} },
		Append: func(_ context.Context, decide func(lineage.Job) []*training.Event) (seqs []uint64, err error) {
			*said = decide(lineage.Job{LastID: 2})
			for i := range *said {
				seqs = append(seqs, uint64(30+i))
			}
			return seqs, nil
		},
		Claim:      func(context.Context) (int64, error) { return 2, nil },
		Deltas:     func(context.Context) (uint64, error) { return 77, nil },
		Holds:      func(context.Context, int64) error { return nil },
		Generation: func() uint64 { return 5 },
	}
}

// A job that has nothing yet begins with the parent's cut: the checkpoint and the return of its
// shards to it are stated together, once it lies there.
func TestBegin(t *testing.T) {
	parent := t.TempDir()
	saved(t, parent, 4, nil)
	var said []*training.Event
	c, j := beginning(t, parent, &said)
	seq, err := c.Begin(t.Context(), *j)
	if err != nil || seq != 31 || len(said) != 2 {
		t.Fatalf("at %d, %v: %v", seq, err, said)
	}
	cut, back := said[0].GetCheckpointSaved().GetCheckpoint(), said[1].GetJobRestored()
	if cut.GetId() != 2 || cut.GetParent().GetCheckpoint() != 4 || back.GetCheckpoint() != 2 || back.GetGeneration() != 5 || back.GetSyncSeq() != 77 {
		t.Errorf("said: %v", said)
	}
	if _, err := checkpoint.ReadShardIn(j.Dir, filepath.FromSlash(cut.Shards[1].Path)); err != nil {
		t.Error(err)
	}
}

// A job that has begun, or that nobody names a parent for, begins nothing.
func TestBeginNothing(t *testing.T) {
	parent := t.TempDir()
	saved(t, parent, 4, nil)
	for name, change := range map[string]func(*Config, *Job){
		"no parent": func(c *Config, _ *Job) { c.Dir = "" },
		"a checkpoint of its own": func(_ *Config, j *Job) {
			j.Now = func() lineage.Job { return lineage.Job{Checkpoints: checkpoints(&training.Checkpoint{Id: 1})} }
		},
		"started": func(_ *Config, j *Job) {
			j.Now = func() lineage.Job {
				return lineage.Job{Started: events.JSON[*training.JobStarted]{V: &training.JobStarted{}}}
			}
		},
	} {
		var said []*training.Event
		c, j := beginning(t, parent, &said)
		change(c, j)
		if seq, err := c.Begin(t.Context(), *j); seq != 0 || err != nil || said != nil {
			t.Errorf("%s: begun at %d, %v: %v", name, seq, err, said)
		}
	}
}

// What keeps a job from beginning is told, and nothing is stated.
func TestBeginRefused(t *testing.T) {
	parent := t.TempDir()
	saved(t, parent, 4, nil)
	broken := errors.New("broken")
	decides := func(now lineage.Job) func(*Job) {
		return func(j *Job) {
			j.Append = func(_ context.Context, decide func(lineage.Job) []*training.Event) ([]uint64, error) {
				if said := decide(now); said != nil {
					t.Errorf("%+v: said %v", now, said)
				}
				return nil, nil
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*Job)
		says   string
	}{
		"another model": {func(j *Job) {
			j.Spec.Tables[0].Name, j.Spec.Features[0].Table = "x", "x"
			j.Claim = func(context.Context) (int64, error) {
				t.Error("an id was claimed for a parent that does not fit")
				return 0, broken
			}
		}, `table "user" is not declared`},
		"no end of the deltas": {func(j *Job) { j.Deltas = func(context.Context) (uint64, error) { return 0, broken } }, "find the end of the deltas: broken"},
		"no id":                {func(j *Job) { j.Claim = func(context.Context) (int64, error) { return 0, broken } }, "claim a checkpoint's id: broken"},
		"a folder in the way":  {func(j *Job) { j.Dir = filepath.Join(parent, "model.ckpt-4", "ps_0", "manifest.json") }, "take over checkpoint 4 of job old"},
		"facts not stored": {func(j *Job) {
			j.Append = func(context.Context, func(lineage.Job) []*training.Event) ([]uint64, error) {
				return []uint64{1, 2}, broken
			}
		}, "broken"},
		"another chief claimed": {decides(lineage.Job{LastID: 3}), "another chief has begun"},
		"another chief saved":   {decides(lineage.Job{LastID: 2, Checkpoints: checkpoints(&training.Checkpoint{Id: 2})}), "another chief has begun"},
	} {
		var said []*training.Event
		c, j := beginning(t, parent, &said)
		tc.change(j)
		if seq, err := c.Begin(t.Context(), *j); seq != 0 || err == nil || !strings.Contains(err.Error(), tc.says) || said != nil {
			t.Errorf("%s: at %d, %v, want %q; said %v", name, seq, err, tc.says, said)
		}
	}
}

// A job's parent is what its start names, or else its oldest checkpoint that has one.
func TestParentOf(t *testing.T) {
	a, b := &training.Parent{Job: "a"}, &training.Parent{Job: "b"}
	started := func(p *training.Parent) events.JSON[*training.JobStarted] {
		return events.JSON[*training.JobStarted]{V: &training.JobStarted{Parent: p}}
	}
	for name, tc := range map[string]struct {
		job  lineage.Job
		want *training.Parent
	}{
		"untrained":         {lineage.Job{}, nil},
		"started untrained": {lineage.Job{Started: started(nil), Checkpoints: checkpoints(&training.Checkpoint{})}, nil},
		"started":           {lineage.Job{Started: started(a), Checkpoints: checkpoints(&training.Checkpoint{Parent: b})}, a},
		"not started yet":   {lineage.Job{Checkpoints: checkpoints(&training.Checkpoint{}, &training.Checkpoint{Parent: b})}, b},
	} {
		if got := ParentOf(tc.job); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Parts that differ in what a cut shares are of no one cut.
func TestPartsOfOneCut(t *testing.T) {
	for name, change := range map[string]func(i int, m *checkpoint.Manifest){
		"job":        func(i int, m *checkpoint.Manifest) { m.Job = fmt.Sprint("old", i) },
		"checkpoint": func(_ int, m *checkpoint.Manifest) { m.Checkpoint = 5 },
		"shard":      func(_ int, m *checkpoint.Manifest) { m.Shard = 0 },
		"shards":     func(i int, m *checkpoint.Manifest) { m.Shards = uint32(2 + i) },
		"turn":       func(i int, m *checkpoint.Manifest) { m.Turn = uint64(i) },
		"generation": func(i int, m *checkpoint.Manifest) { m.Generation = uint64(i) },
		"offsets":    func(i int, m *checkpoint.Manifest) { m.Offsets = map[int32]int64{0: int64(i)} },
	} {
		dir := t.TempDir()
		saved(t, dir, 4, func(i int, s *checkpoint.Shard) { change(i, &s.Manifest) })
		if p, err := (&Config{Dir: dir}).Find(); err == nil || !strings.Contains(err.Error(), "they are of no one cut") {
			t.Errorf("another %s: %v, %v", name, p, err)
		}
	}
}

// Another job's checkpoint without that job is no wish; with it, it has a number, and the flags
// hand it on.
func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		says string
	}{
		{Config{}, ""}, {Config{Optimizer: true}, ""}, {Config{Dir: "d", Checkpoint: "model.ckpt-1", Offsets: true}, ""},
		{Config{Checkpoint: "1"}, ""}, {Config{Checkpoint: "x"}, "is no checkpoint"}, {Config{Offsets: true}, "name its folder with restore-dir"},
		{Config{Dir: "d", Checkpoint: "0"}, "is no checkpoint"}, {Config{Dir: "d", Checkpoint: "x"}, "is no checkpoint"},
	} {
		if err := tc.cfg.Validate(); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.says)
		}
	}
	if args := (&Config{Optimizer: true}).Args(); args != nil {
		t.Errorf("without anything: %q", args)
	}
	if args := (&Config{Checkpoint: "1", Optimizer: true}).Args(); !slices.Equal(args, []string{"--restore-ckpt", "1"}) {
		t.Errorf("without a job: %q", args)
	}
	want := []string{"--restore-dir", "d", "--restore-ckpt", "3", "--restore-optimizer=true", "--restore-offsets=false"}
	if args := (&Config{Dir: "d", Checkpoint: "3", Optimizer: true}).Args(); !slices.Equal(args, want) {
		t.Errorf("%q, want %q", args, want)
	}
}

// Every table and variable that does not fit is named, not the first alone.
func TestAllThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, 4, nil)
	p, err := (&Config{Dir: dir, Optimizer: true}).Find()
	if err != nil {
		t.Fatal(err)
	}
	spec := trainertest.SmallSpec()
	spec.Tables[0].Dim++
	spec.Tables[1].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
	err = p.Fits(spec)
	for _, want := range []string{`table "user" has rows of 4, declared are 5`, `table "movie" was learnt by [adagrad]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
