package trainer

import (
	"errors"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
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

// While checkpoints by steps fail they are tried ever more rarely, and none that failed counts for the exports.
func TestCheckpointsByStepsThatFail(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.CheckpointSteps, cfg.ExportEvery = 5, 2
	a := w.run(cfg)
	w.until("the job's first checkpoint is there", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	w.shards[0].fails(errors.New("disk full"))
	w.write(16 * 6)
	var failed []time.Time
	w.until("three attempts have failed", func(lineage.Job) bool { failed = w.failedAt(); return len(failed) >= 3 })
	for i, least := range []time.Duration{chief.PauseAfterError / 2, chief.PauseAfterError} {
		if pause := failed[i+1].Sub(failed[i]); pause < least {
			t.Errorf("attempt %d comes %v behind the one before it, want %v at least", i+2, pause, least)
		}
	}
	w.shards[0].fails(nil)
	w.until("the fourth succeeds", func(j lineage.Job) bool { return len(j.Checkpoints) == 2 })
	w.write(16 * 6)
	j := w.until("so does the next", func(j lineage.Job) bool { return len(j.Checkpoints) == 3 && len(j.Exports) > 1 })
	a.stop(t)
	if second := j.Exports[1].V.GetVersion(); second != j.Checkpoints[2].V.GetId() {
		t.Errorf("the export is of checkpoint %d, want the second by steps, %d", second, j.Checkpoints[2].V.GetId())
	}
}

// A job that has returned to a checkpoint counts its steps from there, not from what it has left.
func TestCheckpointsByStepsAfterAReturn(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.restoreAsAsked()
	cfg := w.config("a", 0)
	cfg.CheckpointSteps = 5
	a := w.run(cfg)
	w.until("the job's first checkpoint is there", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	w.write(16 * 6)
	before := w.until("one by steps is there", func(j lineage.Job) bool { return len(j.Checkpoints) == 2 })
	w.learnt(0, 16*6)
	w.append(jobSubject(), restored())
	j := w.until("the steps learnt again make one, too", func(j lineage.Job) bool {
		return j.Restored.Seq > 0 && j.LastID > before.LastID && len(j.Checkpoints) == 3
	})
	a.stop(t)
	if again, left := j.Checkpoints[2].V.Step(), before.Checkpoints[1].V.Step(); again >= left+5 {
		t.Errorf("it is of step %d, and that of the timeline left of %d", again, left)
	}
}

// failedAt is when the job's checkpoints failed.
func (w *world) failedAt() (at []time.Time) {
	w.t.Helper()
	last, err := w.b.Log().Last(w.t.Context())
	if err == nil {
		err = w.b.Log().Follow(w.t.Context(), 1, last, func(r events.Recorded) error {
			if e, ok := r.Event.(*training.Event); ok && e.GetCheckpointFailed() != nil {
				at = append(at, r.Time)
			}
			return nil
		})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}
