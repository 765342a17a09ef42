package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/hold"
)

// pause pauses the job, and waits until these trainers rest.
func (w *world) pause(trainers ...string) {
	w.t.Helper()
	if _, err := w.command("pause", `{"reason":"a look"}`); err != nil {
		w.t.Fatal(err)
	}
	w.pausedBy(trainers...)
}

// pausedBy waits until these trainers have said that they rest.
func (w *world) pausedBy(trainers ...string) lineage.Job {
	w.t.Helper()
	return w.until("the trainers rest", func(j lineage.Job) bool {
		for _, name := range trainers {
			if !slices.Contains(j.Paused.Resting, name) {
				return false
			}
		}
		return true
	})
}

func (w *world) resume() {
	w.t.Helper()
	if _, err := w.command("resume", `{}`); err != nil {
		w.t.Fatal(err)
	}
}

// status is what a command of the job has answered.
func (w *world) status(endpoint, body string) (st hold.Status) {
	w.t.Helper()
	reply, err := w.command(endpoint, body)
	if err == nil {
		err = json.Unmarshal(reply, &st)
	}
	if err != nil {
		w.t.Fatal(endpoint, err)
	}
	return st
}

// saved makes a checkpoint, and tells where it stands.
func (w *world) saved(what string) map[int32]int64 {
	w.t.Helper()
	reply, err := w.command("checkpoint", `{"reason":"`+what+`"}`)
	var made struct{ Checkpoint int64 }
	if err == nil {
		err = json.Unmarshal(reply, &made)
	}
	if err != nil {
		w.t.Fatal(what, err)
	}
	var at map[int32]int64
	w.until(what, func(j lineage.Job) bool {
		i := slices.IndexFunc(j.Checkpoints, func(c events.JSON[*training.Checkpoint]) bool { return c.V.GetId() == made.Checkpoint })
		if i >= 0 {
			at = j.Checkpoints[i].V.GetOffsets()
		}
		return i >= 0
	})
	return at
}

// TestPause: a paused job takes no more records whoever is killed or started meanwhile, makes
// checkpoints, says so everywhere, and each offset is learnt once when it goes on.
func TestPause(t *testing.T) {
	w := newWorld(t, 4, 2)
	w.write(100)
	state := health.New()
	cfg := w.config("a", 0)
	a := w.start(cfg, func(e *services.Env) { e.Health = state }, func(*Server) {})
	cfg.Name, cfg.Index = "b", 1
	b := w.run(cfg)
	w.learnt(0, 100)
	w.until("both trainers are known", func(j lineage.Job) bool {
		return len(w.status("status", `{}`).Unblocked) == 2
	})
	got := w.status("pause", `{"reason":"an upgrade"}`)
	if !got.Paused || !got.Running || got.Reason != "an upgrade" || !slices.Equal(got.Blocked, []int{0, 1}) || len(got.Unblocked) != 0 || got.Seq == 0 {
		t.Errorf("the answer is %+v", got)
	}
	var refused *bus.CommandError
	if _, err := w.command("pause", `{}`); !errors.As(err, &refused) || refused.Code != bus.CodeConflict || !strings.Contains(refused.Message, "an upgrade") {
		t.Errorf("a second pause: %v", err)
	}
	if told := state.Text(time.Now()); !strings.Contains(told, "an upgrade") || !strings.Contains(told, "resume") {
		t.Errorf("the health state says %q", told)
	}
	w.shards[0].mu.Lock()
	at := maps.Clone(w.shards[0].now.next)
	w.shards[0].mu.Unlock()
	w.shards[1].crash() // lost what the other one has
	w.write(100)        // which nobody takes
	b.stop(t)
	if again := w.saved("in the pause"); !maps.Equal(again, at) {
		t.Errorf("the paused job went from %v to %v", at, again)
	}
	cfg.Name, cfg.Index = "c", 2
	c := w.run(cfg)
	w.pausedBy("a", "c")
	if again := w.saved("with another trainer"); !maps.Equal(again, at) {
		t.Errorf("the paused job went from %v to %v", at, again)
	}
	a.stop(t)
	w.until("the job has another chief", func(lineage.Job) bool {
		st := w.status("status", `{}`)
		return st.Paused && slices.Equal(st.Blocked, []int{2})
	})
	if again := w.saved("by the next chief"); !maps.Equal(again, at) {
		t.Errorf("the paused job went from %v to %v", at, again)
	}
	if got := w.status("resume", `{"reason":"done"}`); got.Paused || got.Seq == 0 {
		t.Errorf("the answer is %+v", got)
	}
	if got := w.status("resume", `{}`); got.Paused || got.Seq != 0 {
		t.Errorf("a job that runs is resumed: %+v", got)
	}
	w.learnt(0, 800)
	w.learnt(1, 800)
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_PauseRequested{PauseRequested: &training.PauseRequested{Reason: "by a request"}}})
	j := w.until("the request is answered", func(j lineage.Job) bool { return j.Paused.Reason == "by a request" })
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "enough"}}})
	c.wait(t)
	if j = w.until("a paused job stops", func(j lineage.Job) bool { return j.Stopped }); j.Paused.Seq != 0 {
		t.Errorf("the stopped job is paused: %+v", j.Paused)
	}
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
}

// TestBeforeAndAfterASave: each attempt at a checkpoint is said before anything of it is written, and
// once more when it is whole, or has failed.
func TestBeforeAndAfterASave(t *testing.T) {
	w := newWorld(t, 1, 1)
	a := w.run(w.config("a", 0))
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	w.saved("a save")
	w.shards[0].fails(errors.New("disk full"))
	if _, err := w.command("checkpoint", `{"reason":"in vain"}`); err == nil {
		t.Error("a shard without room has saved")
	}
	a.stop(t)
	var heard []string
	facts, _ := w.facts(jobSubject())
	for _, f := range facts {
		switch {
		case f.GetCheckpointStarted() != nil:
			heard = append(heard, fmt.Sprint("before ", f.GetCheckpointStarted().GetId()))
		case f.GetCheckpointSaved() != nil:
			heard = append(heard, fmt.Sprint("after ", f.GetCheckpointSaved().GetCheckpoint().GetId()))
		case f.GetCheckpointFailed() != nil:
			heard = append(heard, fmt.Sprint("failed ", f.GetCheckpointFailed().GetId()))
		}
	}
	if want := []string{"before 1", "after 1", "before 2", "after 2", "before 3", "failed 3"}; !slices.Equal(heard, want) {
		t.Errorf("%q were said, want %q", heard, want)
	}
}
