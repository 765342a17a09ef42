package trainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// TestReturnByFlag: --restore-ckpt without another job's folder sends the job back to its own checkpoint, once: a
// trainer that starts again with the flag goes on.
func TestReturnByFlag(t *testing.T) {
	w, a := learntBehind2(t)
	a.stop(t)

	cfg := w.config("a", 0)
	cfg.Restore.Checkpoint = "model.ckpt-2"
	var lines trainertest.Lines
	logged := func(env *services.Env) { env.Log = lines.Logger() }
	told := func() int { return strings.Count(strings.Join(lines.All(), ""), "the job returns to a checkpoint") }
	a = w.start(cfg, logged, func(*Server) {})
	first := w.until("the job returns", func(j lineage.Job) bool { return j.Restored.Checkpoint == 2 }).Restored
	w.returns(first.Seq)
	w.learnt(0, 200)
	w.learnt(1, 200)
	for _, s := range w.shards {
		s.checkBooks([]int64{100, 100})
	}
	a.stop(t)
	if n := told(); n != 1 {
		t.Errorf("the return is logged %d times: %s", n, strings.Join(lines.All(), ""))
	}

	a = w.start(cfg, logged, func(*Server) {})
	w.write(5)
	w.learnt(0, 210)
	w.learnt(1, 210)
	j := w.now()
	a.stop(t)
	if n := told(); j.Restored != first || n != 1 {
		t.Errorf("the job returned once more: %+v, %+v, and it is logged %d times", first, j.Restored, n)
	}
	if all := strings.Join(lines.All(), ""); strings.Count(all, "has been sent back to checkpoint 2 before, and goes on from where it stands") != 1 {
		t.Errorf("it is not said once that the flag did nothing: %s", all)
	}
}

// TestReturnByFlagToWhatIsDeleted: a checkpoint that the last sweep deleted, which no fact says yet, is not returned to:
// no shard could restore it.
func TestReturnByFlagToWhatIsDeleted(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.Keep = 2
	a := w.run(cfg)
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	for id := int64(2); id <= 4; id++ {
		w.checkpointNow(id)
	}
	a.stop(t)
	if _, err := os.Stat(filepath.Join(w.dir, "model.ckpt-2")); err == nil {
		t.Fatal("the checkpoint is not deleted")
	}
	j := w.until("the log has it", func(j lineage.Job) bool { return j.Checkpoint(2) != nil })

	cfg.Restore.Checkpoint = "model.ckpt-2"
	var lines trainertest.Lines
	a = w.start(cfg, func(env *services.Env) { env.Log = lines.Logger() }, func(*Server) {})
	said := func() bool { return strings.Contains(strings.Join(lines.All(), "\n"), "cannot return to checkpoint 2") }
	wait.For(t, "the return is refused", func() bool {
		j = w.until("a view", func(lineage.Job) bool { return true })
		return said() || j.Restored.Seq > 0
	})
	if j.Restored.Seq > 0 {
		t.Error("the job returns to a checkpoint that is deleted")
	}
	a.stop(t)
}
