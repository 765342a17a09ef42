package trainer

import (
	"testing"

	"github.com/monolith-go/monolith/projections/lineage"
)

// A checkpoint is made once so many steps are learnt since the last one, and none before.
func TestCheckpointsBySteps(t *testing.T) {
	w := newWorld(t, 1, 2)
	cfg := w.config("a", 0)
	cfg.CheckpointSteps = 5
	a := w.run(cfg)
	w.until("the job's first checkpoint is there", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	for n := 2; n <= 4; n++ {
		w.write(16 * 6) // six steps, or more where a batch did not wait for the rest
		w.until("another one is there", func(j lineage.Job) bool { return len(j.Checkpoints) >= n })
	}
	a.stop(t)
	facts, _ := w.facts(jobSubject())
	last, regular := uint64(0), 0
	for _, f := range facts {
		saved := f.GetCheckpointSaved()
		if saved == nil {
			continue
		}
		step := saved.GetCheckpoint().Step()
		if saved.GetReason() == "every 5 steps" {
			if regular++; step < last+5 {
				t.Errorf("a checkpoint at step %d follows one at step %d", step, last)
			}
		}
		last = step
	}
	if regular < 3 {
		t.Errorf("%d checkpoints by steps", regular)
	}
}
