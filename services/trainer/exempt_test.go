package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// keepAnswer is what the chief answers to keep and release.
type keepAnswer struct {
	Checkpoint int64
	Kept       []int64
	Seq        uint64
}

func (w *world) keep(endpoint string, id int64) (a keepAnswer, err error) {
	reply, err := w.command(endpoint, fmt.Sprintf(`{"checkpoint":%d,"reason":"before the campaign"}`, id))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(reply, &a)
}

// A checkpoint that is kept, on command or by a request, stays on disk with its export until it is
// released, under whoever is the chief; one that is gone cannot be kept.
func TestKeptCheckpointsStayUntilReleased(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.Keep = 2
	save := func(n int) {
		t.Helper()
		for range n {
			if _, err := w.command("checkpoint", `{"export":true}`); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := func() (ids []string) {
		t.Helper()
		all, err := os.ReadDir(filepath.Join(w.dir, cut.ExportsDir, "entry"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if _, err := os.Stat(filepath.Join(w.dir, "model.ckpt-"+e.Name())); err != nil {
				t.Errorf("export %s has no checkpoint: %v", e.Name(), err)
			}
			ids = append(ids, e.Name())
		}
		return ids
	}
	a := w.run(cfg)
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Exports) == 1 })
	if got, err := w.keep("keep", 1); err != nil || !slices.Equal(got.Kept, []int64{1}) || got.Seq == 0 {
		t.Fatalf("kept: %+v, %v", got, err)
	}
	if got, err := w.keep("keep", 1); err != nil || !slices.Equal(got.Kept, []int64{1}) || got.Seq != 0 {
		t.Errorf("kept again: %+v, %v", got, err)
	}
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: "for good", Export: true, Keep: true}}})
	j := w.until("the second checkpoint is kept", func(j lineage.Job) bool { return len(j.Kept) == 2 && j.Seq > 0 })
	if !j.Exempt(2) {
		t.Errorf("kept are %v", j.Kept)
	}
	a.stop(t)
	cfg = w.config("b", 1)
	cfg.Keep = 2
	b := w.run(cfg)
	w.until("the next chief answers", func(lineage.Job) bool { _, err := w.command("status", "{}"); return err == nil })
	save(4)
	if got := there(); !slices.Equal(got, []string{"1", "2", "5", "6"}) {
		t.Errorf("there are %v, want two that are kept and the newest two", got)
	}
	var refused *bus.CommandError
	if got, err := w.keep("keep", 3); !errors.As(err, &refused) || refused.Code != bus.CodeNotFound {
		t.Errorf("one that is gone is kept: %+v, %v", got, err)
	}
	if got, err := w.keep("keep", 4); !errors.As(err, &refused) || refused.Code != bus.CodeNotFound { // no fact says yet that it is gone
		t.Errorf("one that is gone is kept: %+v, %v", got, err)
	}
	if got, err := w.keep("release", 5); !errors.As(err, &refused) || refused.Code != bus.CodeNotFound || !strings.Contains(err.Error(), "[1 2]") {
		t.Errorf("one that is not kept is released: %+v, %v", got, err)
	}
	if got, err := w.keep("release", 1); err != nil || !slices.Equal(got.Kept, []int64{2}) {
		t.Errorf("released: %+v, %v", got, err)
	}
	if st := w.status("status", "{}"); !slices.Equal(st.Kept, []int64{2}) {
		t.Errorf("the status has %v kept", st.Kept)
	}
	if _, err := w.command("checkpoint", `{"export":true,"keep":true}`); err != nil {
		t.Fatal(err)
	}
	if got := there(); !slices.Equal(got, []string{"2", "5", "6", "7"}) {
		t.Errorf("behind the release there are %v", got)
	}
	b.stop(t)
}

// Of the checkpoints of some hours one is kept, by the log's clock, whoever is the chief; at the bound of
// exemptions no more are, and that is said.
func TestOneCheckpointOfSomeHoursIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		cfg := w.alone()
		cfg.KeepEvery, cfg.Group = time.Hour, "none"
		s := w.view(cfg)
		log := &trainertest.Lines{}
		s.log = log.Logger()
		w.started(s.started())
		w.ready(0, 1, 1, 0, "h:1")
		one := &trainertest.Scripted{State: shardcmd.State{Next: map[int32]int64{0: 5}}}
		trainertest.Commands(t, w.b, 1, func(_ int, endpoint string, payload []byte) (any, error) { return one.Command(endpoint, payload) })
		w.caughtUp(s)
		save := func(why requests.Request) {
			t.Helper()
			if _, _, err := s.chief().Term(1).Checkpoint(t.Context(), why); err != nil { // a new chief each time
				t.Fatal(err)
			}
			w.caughtUp(s)
		}
		for range 9 { // at 0, 25, 50, 75, ... 200 minutes
			save(requests.Request{Reason: "by the clock"})
			time.Sleep(25 * time.Minute)
		}
		if got := s.job().Kept; !slices.Equal(got, []int64{4, 7}) { // at 75 and at 150 minutes: an hour behind the first, and behind the fourth
			t.Errorf("kept are %v", got)
		}
		for len(s.job().Kept) < lineage.MaxExempt {
			save(requests.Request{Reason: "r", Keep: true})
		}
		said := func() (n int) {
			for _, line := range log.All() {
				if strings.Contains(line, "release some") {
					n++
				}
			}
			return n
		}
		if said() != 0 {
			t.Error("the bound is told before it is reached")
		}
		save(requests.Request{Reason: "r", Keep: true})
		if said() != 1 || len(s.job().Kept) != lineage.MaxExempt {
			t.Errorf("told %d times, %d are kept", said(), len(s.job().Kept))
		}
	})
}
