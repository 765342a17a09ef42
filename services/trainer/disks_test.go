package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/cut"
)

// TestShardsWithDisksOfTheirOwn has no folder that anybody shares: the chief makes checkpoints and exports,
// keeps them, returns to them and has old ones deleted by what the shards say of their own disks.
func TestShardsWithDisksOfTheirOwn(t *testing.T) {
	w := newWorld(t, 1, 2)
	for _, s := range w.shards {
		s.disk = t.TempDir()
	}
	cfg := w.config("a", 0)
	cfg.Keep = 2
	a := w.run(cfg)
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Exports) == 1 })
	save := func() {
		t.Helper()
		if _, err := w.command("checkpoint", `{"export":true}`); err != nil {
			t.Fatal(err)
		}
	}
	there := func(shard int) (ids []int) {
		for id := range 9 {
			if _, err := os.Stat(filepath.Join(w.shards[shard].disk, fmt.Sprintf("model.ckpt-%d", id))); err == nil {
				ids = append(ids, id)
			}
		}
		return ids
	}
	full := func(is bool) {
		w.shards[1].mu.Lock()
		defer w.shards[1].mu.Unlock()
		w.shards[1].full = is
	}
	save()
	full(true)
	save()
	save()
	j := w.until("the fourth checkpoint is saved", func(j lineage.Job) bool { return j.Checkpoint(4) != nil })
	if len(j.Checkpoints) != 4 {
		t.Errorf("what a shard has not deleted is said to be gone: left are %v", j.IDs())
	}
	full(false)
	save()
	save()
	j = w.until("the sixth checkpoint is saved", func(j lineage.Job) bool { return j.Checkpoint(6) != nil })
	if got := j.IDs(); !slices.Equal(got, []int64{4, 5, 6}) { // the next one says that 4 is gone
		t.Errorf("the log has checkpoints %v", got)
	}
	for i := range w.shards {
		if got := there(i); !slices.Equal(got, []int{5, 6}) {
			t.Errorf("shard %d has checkpoints %v", i, got)
		}
	}
	for _, c := range j.Checkpoints {
		for _, f := range c.V.GetShards() {
			if !f.GetVerified() || f.GetBytes() == 0 {
				t.Errorf("checkpoint %d has a part that nobody has read back: %v", c.V.GetId(), f)
			}
		}
	}
	if parts, err := filepath.Glob(filepath.Join(w.dir, "*", "ps_*")); err != nil || len(parts) != 0 {
		t.Errorf("in the chief's folder lie %v, %v", parts, err)
	}
	entry, err := checkpoint.ReadEntry(filepath.Join(w.dir, cut.ExportsDir, "entry", "6"))
	if err != nil || len(entry.Dense) == 0 {
		t.Errorf("the entry: %v, %v", entry, err)
	}
	if got, err := w.keep("keep", 5); err != nil || !slices.Equal(got.Kept, []int64{5}) {
		t.Errorf("kept: %+v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(w.shards[1].disk, "model.ckpt-6", "ps_1")); err != nil {
		t.Fatal(err)
	}
	var refused *bus.CommandError
	if _, err := w.keep("keep", 6); !errors.As(err, &refused) || refused.Code != bus.CodeNotFound || !strings.Contains(err.Error(), "shard 1 says") {
		t.Errorf("what a shard has lost is kept: %v", err)
	}
	if _, err := w.restore(`{"checkpoint":6}`); !errors.As(err, &refused) || refused.Code != bus.CodeConflict || !strings.Contains(err.Error(), "shard 1 says") {
		t.Errorf("the job returns to what a shard has lost: %v", err)
	}
	if j := w.until("a view", func(lineage.Job) bool { return true }); j.Restored.Seq != 0 {
		t.Error("the refusal left a fact")
	}
	a.stop(t)
}

// TestNoReturnToWhatIsBeingDeleted: a return that is asked for while its checkpoint is deleted waits for that, and is
// refused then; so is one to a checkpoint that somebody has brought back, since the next fact says that it is gone.
func TestNoReturnToWhatIsBeingDeleted(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.shards[0].disk = t.TempDir()
	cfg := w.config("a", 0)
	cfg.Keep = 2
	a := w.run(cfg)
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	w.checkpointNow(2)
	answered := make(chan error, 1)
	w.shards[0].mu.Lock()
	w.shards[0].deletes = sync.OnceFunc(func() {
		answer := make(chan error, 1)
		go func() { _, err := w.command("restore", `{"checkpoint":1}`); answer <- err }()
		select {
		case err := <-answer:
			answered <- err
		case <-time.After(500 * time.Millisecond): // it waits, or the shards are awaited
			go func() { answered <- <-answer }()
		}
	})
	w.shards[0].mu.Unlock()
	part := filepath.Join(w.shards[0].disk, "model.ckpt-1")
	saved := t.TempDir()
	if err := os.CopyFS(saved, os.DirFS(part)); err != nil {
		t.Fatal(err)
	}
	w.checkpointNow(3)
	var refused *bus.CommandError
	if err := <-answered; !errors.As(err, &refused) || refused.Code == bus.CodeUnavailable {
		t.Errorf("the return: %v", err)
	}
	if err := os.CopyFS(part, os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.restore(`{"checkpoint":1}`); !errors.As(err, &refused) || refused.Code != bus.CodeNotFound {
		t.Errorf("the return to one that the next fact says is gone: %v", err)
	}
	if got, err := w.keep("keep", 1); !errors.As(err, &refused) || refused.Code != bus.CodeNotFound {
		t.Errorf("one that the next fact says is gone is kept: %+v, %v", got, err)
	}
	if j := w.until("a view", func(lineage.Job) bool { return true }); j.Restored.Seq != 0 || len(j.Kept) != 0 {
		t.Errorf("the refusals left facts: %+v, %v", j.Restored, j.Kept)
	}
	a.stop(t)
}

// TestADamagedPartIsNoCheckpoint: a shard whose disk loses what it was given says so when it reads its part back,
// and the attempt ends with that reason.
func TestADamagedPartIsNoCheckpoint(t *testing.T) {
	w := newWorld(t, 1, 1)
	a := w.run(w.config("a", 0))
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Exports) == 1 })
	w.shards[0].mu.Lock()
	w.shards[0].lies = true
	w.shards[0].mu.Unlock()
	if _, err := w.command("checkpoint", `{}`); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("the command: %v", err)
	}
	var failed *training.CheckpointFailed
	last, err := w.b.Log().Last(t.Context())
	if err == nil {
		err = w.b.Log().Follow(t.Context(), 1, last, func(r events.Recorded) error {
			if e, ok := r.Event.(*training.Event); ok && e.GetCheckpointFailed() != nil {
				failed = e.GetCheckpointFailed()
			}
			return nil
		})
	}
	if err != nil || failed.GetId() != 2 || !strings.Contains(failed.GetReason(), "shard 0 says of part 0") {
		t.Errorf("the fact says %v, %v", failed, err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "model.ckpt-2")); err == nil {
		t.Error("the damaged part is left")
	}
	a.stop(t)
}
