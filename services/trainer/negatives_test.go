package trainer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// drawing is a small model of which samples that are liked have negatives.
func drawing(n *model.SampleRule_Negatives) *model.ModelSpec {
	spec := trainertest.SmallSpec()
	n.Item = []string{"movie"}
	spec.SampleRules = []*model.SampleRule{{
		Name: "liked", Where: []*model.Condition{{Field: "rating", AtLeast: proto.Float64(4)}},
		Action: &model.SampleRule_Negatives_{Negatives: n},
	}}
	return spec
}

// drawnMovies are the movies whose rows a job with negatives changes, by partition and offset: it learns each record
// by itself, and is stopped and begun again by another trainer as often as is said.
func drawnMovies(t *testing.T, deterministic bool, stops int) map[[2]int64][]int64 {
	w := newWorld(t, 2, 1)
	spec := drawing(&model.SampleRule_Negatives{Count: 3, Records: proto.Uint64(30), Start: proto.Uint32(5)})
	w.append(events.Join(bzid, "model", spec.GetName()), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	var mu sync.Mutex // guards drawn
	drawn := map[[2]int64][]int64{}
	w.shards[0].truth = nil
	w.shards[0].took = func(r *rowwire.ApplyRequest) {
		mu.Lock()
		defer mu.Unlock()
		for _, table := range r.Tables {
			if table.Table == "movie" {
				drawn[[2]int64{int64(r.Partition), r.From}] = slices.Sorted(slices.Values(table.IDs))
			}
		}
	}
	const records = 160
	cfg := w.config("a", 0)
	cfg.Deterministic, cfg.Batch, cfg.CheckpointEvery = deterministic, 1, time.Hour
	for part := range stops + 1 {
		from, to := records*part/(stops+1), records*(part+1)/(stops+1)
		var recs []kafka.Record
		for i := from; i < to; i++ {
			for p := range int32(2) {
				recs = append(recs, kafka.Record{Topic: "ratings", Partition: p, Value: fmt.Appendf(nil, `{"userId":%d,"movieId":%d,"rating":%d}`, i, 1+(i*37+int(p))%101, 3+i%3)})
			}
		}
		if _, err := w.writer.Write(t.Context(), recs...); err != nil {
			t.Fatal(err)
		}
		cfg.Name = fmt.Sprintf("trainer-%d", part)
		run := w.run(cfg)
		w.learnt(0, int64(2*to))
		run.stop(t)
	}
	return drawn
}

// Whoever goes on with a partition draws for each record what the one before would have drawn: the pool is read
// again from the records before.
func TestNegativesOfATopic(t *testing.T) {
	want := drawnMovies(t, true, 0)
	several := 0
	for _, movies := range want {
		if len(movies) > 1 {
			several++
		}
	}
	if several < 150 {
		t.Fatalf("%d of %d records have negatives", several, len(want))
	}
	for name, got := range map[string]map[[2]int64][]int64{"again": drawnMovies(t, true, 3), "out of order": drawnMovies(t, false, 2)} {
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: the negatives are others", name)
			for at, movies := range want {
				if !slices.Equal(got[at], movies) {
					t.Errorf("at %v: %v, want %v", at, got[at], movies)
				}
			}
		}
	}
}

// A partition that is learnt to its end needs none of the records before, which retention may have removed.
func TestNothingIsReadForAPartitionAtItsEnd(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(100)
	l := w.learning(func(c *Config) { c.Deterministic, c.Batch = true, 20 })
	var err error
	if l.s.engine, err = step.New(drawing(&model.SampleRule_Negatives{Count: 1, Records: proto.Uint64(30)}), 1, 20); err != nil {
		t.Fatal(err)
	}
	l.ring = newRing(l.s.engine)
	l.bounded(w, 80)
	w.deleteBelow(0, 90)
	for from, want := range map[int64]error{60: nil, 80: errDone, 100: errDone} {
		err := l.learnFrom(t.Context(), t.Context(), shards.Position{From: from, Level: true})
		if want != nil && !errors.Is(err, want) || want == nil && !strings.Contains(fmt.Sprint(err), "keep records longer") {
			t.Errorf("at %d of 80: %v", from, err)
		}
	}
}

// What there is of the records before begins behind a hole, or is one.
func TestAPoolOfHoles(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(20)
	w.transaction(w.transactional(), 0, 5, kgo.TryAbort) // to 26, with the marker
	w.write(10)
	for reach, saw := range map[uint64]bool{5: false, 30: true} {
		l := w.learning(func(c *Config) { c.Deterministic, c.Batch = true, 20 })
		var err error
		if l.s.engine, err = step.New(drawing(&model.SampleRule_Negatives{Count: 1, Records: proto.Uint64(reach)}), 1, 20); err != nil {
			t.Fatal(err)
		}
		l.ring = newRing(l.s.engine)
		l.bounded(w, 36)
		if err := l.fill(t.Context(), shards.Position{From: 26}); err != nil || l.ring.pool.Saw(19) != saw || l.ring.pool.Saw(26) {
			t.Errorf("back over %d records: %v; the last before the hole is in the pool: %v, the first behind it: %v", reach, err, l.ring.pool.Saw(19), l.ring.pool.Saw(26))
		}
	}
}
