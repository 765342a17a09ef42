package trainer

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/feed"
)

// learnInTurns is the order in which a deterministic job of three partitions has learnt, with what disturbs it, which
// returns the trainers that are to end by themselves.
func learnInTurns(t *testing.T, disturb func(w *world, cfg Config) []*running) ([]learntRange, *world) {
	t.Helper()
	w := newWorld(t, 3, 2)
	w.write(90)
	for p, more := range []int{40, 0, 11} { // partitions of different length
		if more > 0 {
			var recs []kafka.Record
			for range more {
				w.fids[p] = append(w.fids[p], []int64{modelspec.FID(1, 5), modelspec.FID(2, 6)})
				recs = append(recs, kafka.Record{Topic: "ratings", Partition: int32(p), Value: []byte(`{"userId":5,"movieId":6,"rating":5}`)})
			}
			if _, err := w.writer.Write(t.Context(), recs...); err != nil {
				t.Fatal(err)
			}
			w.ends[p] += int64(more)
		}
	}
	for _, s := range w.shards {
		s.inOrder = true
	}
	cfg := w.config("a", 0)
	cfg.Deterministic, cfg.StopAtEnd, cfg.CheckpointEvery = true, true, 50*time.Millisecond
	for _, r := range disturb(w, cfg) {
		r.wait(t)
	}
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	if !slices.Equal(w.shards[0].now.ranges, w.shards[1].now.ranges) {
		t.Errorf("the shards learnt in different orders")
	}
	w.checkLetters()
	t.Logf("rolled back %d and %d times", w.shards[0].rolled, w.shards[1].rolled)
	return w.shards[0].now.ranges, w
}

// failed is how many checkpoints were begun in vain.
func (w *world) failed() (n int) {
	facts, _ := w.facts(jobSubject())
	for _, e := range facts {
		if e.GetCheckpointFailed() != nil {
			n++
		}
	}
	return n
}

// A deterministic job that loses shards must learn in the very order of its twin.
func TestDeterministic(t *testing.T) {
	want, w := learnInTurns(t, func(w *world, cfg Config) []*running { return []*running{w.run(cfg)} })
	for i, r := range want {
		tu := feed.Turns{Size: 16, N: 3, Ends: w.ends}
		if k := tu.Turn(r.Partition, r.From/16); k != uint64(i) {
			t.Errorf("turn %d learnt %+v, whose turn is %d", i, r, k)
		}
	}
	for what, disturb := range map[string]func(w *world, cfg Config) []*running{
		"lost answers and crashes": func(w *world, cfg Config) []*running {
			for _, s := range w.shards {
				s.flaky = 0.02
			}
			a := w.run(cfg)
			cfg.Name, cfg.Index = "b", 1
			b := w.run(cfg)
			w.learnt(1, 100)
			w.shards[1].crash()
			w.learnt(0, 180)
			w.shards[0].crash()
			return []*running{a, b}
		},
		"a pause": func(w *world, cfg Config) []*running {
			a := w.run(cfg)
			cfg.Name, cfg.Index = "b", 1
			b := w.run(cfg)
			w.learnt(1, 60)
			w.pause("b", "a")
			w.shards[1].crash() // the newest checkpoint is where the others go back to
			a.stop(t)
			cfg.Name, cfg.Index = "c", 0
			c := w.run(cfg)
			w.pausedBy("b", "c")
			w.resume()
			return []*running{b, c}
		},
		"a snapshot of one shard alone": func(w *world, cfg Config) []*running {
			a := w.run(cfg)
			w.learnt(0, 60)
			before := w.failed()
			w.shards[1].fails(errors.New("disk full"))
			w.until("a checkpoint fails", func(lineage.Job) bool { return w.failed() > before })
			w.shards[1].fails(nil)
			w.shards[1].crash() // nobody goes back to half a checkpoint
			return []*running{a}
		},
	} {
		t.Run(what, func(t *testing.T) {
			if got, _ := learnInTurns(t, disturb); !slices.Equal(got, want) {
				t.Errorf("the disturbed job learnt\n%v\nits twin\n%v", got, want)
			}
		})
	}
}

// With one partition nobody but its own learner can find out that a turn was lost.
func TestDeterministicAlone(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.write(400)
	for _, s := range w.shards {
		s.inOrder = true
	}
	cfg := w.config("a", 0)
	cfg.Deterministic, cfg.StopAtEnd, cfg.Batch = true, true, 4
	a := w.run(cfg)
	w.learnt(1, 40)
	w.shards[1].crash()
	w.learnt(1, 120)
	w.shards[0].crash()
	a.wait(t)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	if w.shards[0].rolled == 0 {
		t.Error("a shard lost what the other had learnt, and nothing was rolled back")
	}
}
