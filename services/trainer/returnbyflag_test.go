package trainer

import (
	"testing"

	"github.com/monolith-go/monolith/projections/lineage"
)

// TestReturnByFlag: --restore-ckpt without another job's folder sends the job back to its own checkpoint, once: a
// trainer that starts again with the flag goes on.
func TestReturnByFlag(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.restoreAsAsked()
	w.write(50)
	a := w.run(w.config("a", 0))
	w.learnt(0, 100)
	w.learnt(1, 100)
	w.checkpointNow(2)
	w.write(50)
	w.learnt(0, 200)
	w.learnt(1, 200)
	a.stop(t)

	cfg := w.config("a", 0)
	cfg.Restore.Checkpoint = "model.ckpt-2"
	a = w.run(cfg)
	first := w.until("the job returns", func(j lineage.Job) bool { return j.Restored.Checkpoint == 2 }).Restored
	w.returns(first.Seq)
	w.learnt(0, 200)
	w.learnt(1, 200)
	for _, s := range w.shards {
		s.checkBooks([]int64{100, 100})
	}
	a.stop(t)

	newest := w.until("the job is known", func(lineage.Job) bool { return true }).LastID
	a = w.run(cfg)
	j := w.until("the job goes on", func(j lineage.Job) bool { return j.LastID > newest })
	if j.Restored != first {
		t.Errorf("the job returned once more: %+v, %+v", first, j.Restored)
	}
	a.stop(t)
}
