package ps

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// factOf is what a fact says of a part.
func factOf(f *training.ShardFile) shardcmd.Part {
	return shardcmd.Part{Shard: f.GetShard(), Path: f.GetPath(), Hash: f.GetHash(), Rows: f.GetRows(), Bytes: f.GetBytes()}
}

// TestAShardChecksItsPart damages a part in every way, and the shard that has it on its disk says so.
func TestAShardChecksItsPart(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	c := w.checkpoint(1, 1, 0)
	part := factOf(c.GetShards()[0])
	if part.Bytes == 0 || part.Rows != 2 || len(c.GetShards()[0].GetManifest()) != 64 {
		t.Fatalf("the shard says that it wrote %v", c.GetShards()[0])
	}
	verdict := func(part shardcmd.Part, deep bool) shardcmd.Verdict {
		t.Helper()
		a := must[shardcmd.CheckResponse](w, 0, shardcmd.Check, shardcmd.CheckRequest{Checkpoint: 1, Dir: w.dir, Deep: deep, Parts: []shardcmd.Part{part}})
		if len(a.Parts) != 1 {
			t.Fatalf("verdicts: %+v", a)
		}
		return a.Parts[0]
	}
	sound := func() {
		t.Helper()
		for _, deep := range []bool{false, true} {
			if v := verdict(part, deep); v.Fault != "" || v.Offsets[0] != 10 {
				t.Errorf("of a sound part, deep %t: %+v", deep, v)
			}
		}
	}
	sound()
	for fault, change := range map[string]func(*shardcmd.Part){
		"from another attempt": func(p *shardcmd.Part) { p.Hash = "h" },
		"3 were written":       func(p *shardcmd.Part) { p.Rows = 3 },
		"9 were written":       func(p *shardcmd.Part) { p.Bytes = 9 },
		"is shard 0":           func(p *shardcmd.Part) { p.Shard = 1 },
		"not on this machine":  func(p *shardcmd.Part) { p.Path = "model.ckpt-9/ps_0" },
		"leads out of":         func(p *shardcmd.Part) { p.Path = "../elsewhere" },
	} {
		other := part
		if change(&other); !strings.Contains(verdict(other, false).Fault, fault) {
			t.Errorf("want %q, got %+v", fault, verdict(other, false))
		}
	}
	dir := filepath.Join(w.dir, part.Path)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) {
			t.Helper()
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if put(append(slices.Clip(text), 'x')); verdict(part, false).Fault == "" {
			t.Errorf("%s is longer, and nobody notices", f.Name())
		}
		if len(text) > 0 {
			if put(text[:len(text)-1]); verdict(part, false).Fault == "" {
				t.Errorf("%s is cut short, and nobody notices", f.Name())
			}
			flipped := slices.Clone(text)
			flipped[len(flipped)/2] ^= 1
			if put(flipped); verdict(part, true).Fault == "" {
				t.Errorf("a bit of %s differs, and nobody notices", f.Name())
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if verdict(part, false).Fault == "" {
			t.Errorf("%s is gone, and nobody notices", f.Name())
		}
		put(text)
	}
	sound()
}

// TestACheckFetchesWhatIsDamaged before a job returns to a checkpoint: cut short or gone, a file of the part that
// another host has is brought back. A deep check only tells.
func TestACheckFetchesWhatIsDamaged(t *testing.T) {
	w, shards, c, away := lost(t)
	part := factOf(c.GetShards()[0])
	w.otherHost("a", away)
	shards[0].awaitSources(1)
	check := func(deep bool) (shardcmd.CheckResponse, error) {
		t.Helper()
		return call[shardcmd.CheckResponse](w, 0, shardcmd.Check, shardcmd.CheckRequest{Checkpoint: 1, Dir: w.dir, Deep: deep, Parts: []shardcmd.Part{part}})
	}
	mended := func(what string) {
		t.Helper()
		for _, deep := range []bool{false, true} {
			if a, err := check(deep); err != nil || a.Parts[0].Fault != "" || a.Parts[0].Offsets[0] != 10 {
				t.Fatalf("%s, and another host has it; deep %t: %+v, %v", what, deep, a, err)
			}
		}
	}
	mended("the part is gone")
	dir := filepath.Join(w.dir, part.Path)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if err := os.Truncate(path, 3); err != nil {
			t.Fatal(err)
		}
		if a, err := check(true); err != nil || a.Parts[0].Fault == "" {
			t.Errorf("%s is cut short, and a deep check says %+v, %v", f.Name(), a, err)
		}
		mended(f.Name() + " is cut short")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("ps_0", dir); err != nil { // which opens as little as a disk that gives no answer
		t.Fatal(err)
	}
	for _, deep := range []bool{false, true} {
		if a, err := check(deep); err == nil || !strings.Contains(err.Error(), "could not be looked at") {
			t.Errorf("in a place that cannot be looked at there is a verdict, deep %t: %+v, %v", deep, a, err)
		}
	}
}

// TestChecksThatAreRefused: a check in another folder, or of no part, is none.
func TestChecksThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.start(w.config())
	part := shardcmd.Part{Path: "model.ckpt-1/ps_0"}
	var refused *bus.CommandError
	if _, err := call[shardcmd.CheckResponse](w, 0, shardcmd.Check, shardcmd.CheckRequest{Checkpoint: 1, Dir: "/elsewhere", Parts: []shardcmd.Part{part}}); !errors.As(err, &refused) || refused.Code != bus.CodeInvalid {
		t.Errorf("in another folder: %v", err)
	}
	if _, err := call[shardcmd.CheckResponse](w, 0, shardcmd.Check, shardcmd.CheckRequest{Checkpoint: 1}); !errors.As(err, &refused) || refused.Code != bus.CodeInvalid {
		t.Errorf("of no part: %v", err)
	}
}

// TestAShardDiscardsItsParts: a shard deletes what its chief says from its own disk, and nothing that is
// kept or that a chief names who was succeeded.
func TestAShardDiscardsItsParts(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	for id := int64(1); id <= 3; id++ {
		p.teach(pstest.Teach(0, 0, 10*(id-1), 10*id, 1, 1))
		w.save(w.checkpoint(1, id, 0))
	}
	w.append("training", job, &training.Event{Body: &training.Event_CheckpointKept{CheckpointKept: &training.CheckpointKept{Id: 2, Reason: "test"}}})
	must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "of 7", Chief: 7})
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "of 7"})
	there := func(id int64) (n int) {
		for _, dir := range []string{p.cfg.checkpointPath(id), p.cfg.exportPath(id)} {
			if _, err := os.Stat(filepath.Join(w.dir, dir)); err == nil {
				n++
			}
		}
		return n
	}
	for name, r := range map[string]shardcmd.DiscardRequest{
		"a kept checkpoint": {Chief: 7, Checkpoints: []int64{1, 2}},
		"its export":        {Chief: 7, Exports: []int64{2}},
		"of a chief before": {Chief: 6, Checkpoints: []int64{1}},
		"in another folder": {Chief: 7, Dir: "/elsewhere", Checkpoints: []int64{1}},
		"no checkpoint":     {Chief: 7, Checkpoints: []int64{0}},
	} {
		if _, err := call[struct{}](w, 0, shardcmd.Discard, r); err == nil {
			t.Errorf("%s is deleted", name)
		}
	}
	if there(1)+there(2)+there(3) != 6 {
		t.Fatal("what was refused is deleted")
	}
	for range 2 { // what is gone is deleted
		must[struct{}](w, 0, shardcmd.Discard, shardcmd.DiscardRequest{Chief: 7, Dir: w.dir, Checkpoints: []int64{1}, Exports: []int64{3}})
	}
	if there(1) != 1 || there(2) != 2 || there(3) != 1 {
		t.Errorf("left are %d, %d and %d folders", there(1), there(2), there(3))
	}
	if _, err := os.Stat(filepath.Join(w.dir, "model.ckpt-1")); err == nil {
		t.Error("an empty folder is left of the checkpoint")
	}
}

// TestAShardKeepsWhatItRestoresNext: a shard deletes neither the checkpoint that its job returned to, which it restores
// at its next start, nor the newest one, whatever a chief has decided before the return.
func TestAShardKeepsWhatItRestoresNext(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	for id := int64(1); id <= 3; id++ {
		p.teach(pstest.Teach(0, 0, 10*(id-1), 10*id, 1, 1))
		w.save(w.checkpoint(1, id, 0))
	}
	p.follows(w.back(2, 0))
	discard := func(ids ...int64) error {
		_, err := call[struct{}](w, 0, shardcmd.Discard, shardcmd.DiscardRequest{Dir: w.dir, Checkpoints: ids})
		return err
	}
	var refused *bus.CommandError
	for _, ids := range [][]int64{{1, 2}, {1, 3}} {
		if err := discard(ids...); !errors.As(err, &refused) || refused.Code != bus.CodeConflict {
			t.Errorf("checkpoints %v are deleted: %v", ids, err)
		}
	}
	for id := int64(1); id <= 3; id++ {
		if _, err := os.Stat(filepath.Join(w.dir, p.cfg.checkpointPath(id))); err != nil {
			t.Errorf("what was refused is deleted: %v", err)
		}
	}
	if err := discard(1); err != nil {
		t.Errorf("an old checkpoint stays: %v", err)
	}
	p.teach(pstest.Teach(0, 0, 20, 30, 1, 1))
	w.save(w.checkpoint(1, 4, 0))
	if err := discard(2, 3); err != nil { // the shard has not been waited for: it asks the log
		t.Errorf("behind a newer checkpoint old ones stay: %v", err)
	}
}
