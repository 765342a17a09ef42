package trainer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/services"
)

// poisoned makes every shard answer infinite rows for those fids.
func (w *world) poisoned(which func(fid int64) bool) {
	for _, s := range w.shards {
		s.mu.Lock()
		s.poison = which
		s.mu.Unlock()
	}
}

// rate writes a rating of each user to partition 0.
func (w *world) rate(users ...int64) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var recs []kafka.Record
	for _, u := range users {
		w.fids[0] = append(w.fids[0], []int64{modelspec.FID(1, u), modelspec.FID(2, 1)})
		recs = append(recs, kafka.Record{Topic: "ratings", Value: fmt.Appendf(nil, `{"userId":%d,"movieId":1,"rating":4}`, u)})
	}
	w.ends[0] += int64(len(users))
	if _, err := w.writer.Write(w.t.Context(), recs...); err != nil {
		w.t.Fatal(err)
	}
}

// A record that cannot be learnt is found by halving its batch and parked with the
// reason; the others of the batch are learnt, each once.
func TestRecordThatCannotBeLearntIsParked(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("deterministic ", inOrder), func(t *testing.T) {
			w := newWorld(t, 1, 2)
			for _, s := range w.shards {
				s.inOrder = inOrder
			}
			bad := modelspec.FID(1, 666)
			w.poisoned(func(fid int64) bool { return fid == bad })
			var users []int64
			for i := range int64(64) {
				if i == 0 || i == 21 || i == 22 || i == 63 {
					users = append(users, 666)
					w.broken[fmt.Sprintf("kafka:ratings/0 %d", i)] = true
				} else {
					users = append(users, i)
				}
			}
			w.rate(users...)
			for i, u := range users {
				if u == 666 {
					w.fids[0][i] = nil
				}
			}
			cfg := w.config("a", 0)
			cfg.Deterministic, cfg.StopAtEnd = inOrder, true
			w.run(cfg).wait(t)
			for _, s := range w.shards {
				s.checkBooks(w.ends)
			}
			w.checkLetters()
			letters, err := w.b.DeadLetters().List(t.Context())
			if err != nil || !strings.Contains(letters[0].Reason, "the gradients cannot be applied") {
				t.Errorf("letters %+v, %v", letters, err)
			}
		})
	}
}

// A model that takes no record any more is a fact and a health state. Its records are
// not parked by the thousand but wait until a better model is there.
func TestDivergedModelIsAFact(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("deterministic ", inOrder), func(t *testing.T) {
			w := newWorld(t, 1, 2)
			for _, s := range w.shards {
				s.inOrder, s.truth = inOrder, nil // which records are parked is found out below
			}
			var users []int64
			for i := range int64(64) {
				users = append(users, i)
			}
			w.rate(users...)
			cfg := w.config("a", 0)
			cfg.Deterministic, cfg.Batch = inOrder, 32
			if inOrder {
				cfg.Batch = oddInARow // a turn of just as many
			}
			well := health.New()
			a := w.start(cfg, func(e *services.Env) { e.Health = well }, func(*Server) {})
			w.learnt(0, 64)
			w.learnt(1, 64)
			w.poisoned(func(int64) bool { return true })
			w.rate(users...)
			problem(t, well, "learning ratings/0", "the model is at fault")
			parked := 0
			letters, err := w.b.DeadLetters().List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			for _, l := range letters {
				w.broken[fmt.Sprintf("%s %d", l.Stream, l.StreamSeq)] = true
				parked++
			}
			w.mu.Unlock()
			if parked >= oddInARow {
				t.Errorf("%d records were parked before the model was found to be at fault", parked)
			}
			facts, _ := w.facts(events.Join(bzid, "training", theJob+"/a"))
			var failed []*training.HealthFailed
			for _, f := range facts {
				if h := f.GetHealthFailed(); h != nil {
					failed = append(failed, h)
				}
			}
			if len(failed) != 1 || failed[0].GetFrom() < 64 || failed[0].GetTo() > 128 || !strings.Contains(failed[0].GetReason(), "earlier checkpoint") {
				t.Errorf("healthFailed: %v", failed)
			}
			w.poisoned(nil) // as the rows of an earlier checkpoint
			w.learnt(0, 128)
			w.learnt(1, 128)
			healthy(t, well)
			a.stop(t)
			for _, s := range w.shards {
				s.checkBooks(w.ends)
			}
			w.checkLetters()
		})
	}
}
