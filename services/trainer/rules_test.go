package trainer

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// learntUsers are those of the records of a topic that a job learns by sample rules; with again, by two
// trainers, one after the other.
func learntUsers(t *testing.T, deterministic, again bool) map[int64]bool {
	w := newWorld(t, 2, 1)
	spec := trainertest.SmallSpec()
	spec.SampleRules = []*model.SampleRule{
		{Name: "half", Action: &model.SampleRule_Drop_{Drop: &model.SampleRule_Drop{Rate: proto.Float64(0.5)}}},
		{Name: "early", Where: []*model.Condition{{Field: "userId", AtLeast: proto.Float64(100)}}, Action: &model.SampleRule_Keep_{Keep: &model.SampleRule_Keep{}}},
	}
	w.append(events.Join(bzid, "model", spec.GetName()), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	var recs []kafka.Record
	for i := range 400 {
		recs = append(recs, kafka.Record{Topic: "ratings", Partition: int32(i % 2), Value: fmt.Appendf(nil, `{"userId":%d,"movieId":1,"rating":4}`, i)})
	}
	w.ends[0], w.ends[1] = 200, 200
	var mu sync.Mutex // guards users
	users := map[int64]bool{}
	w.shards[0].truth = nil
	w.shards[0].took = func(r *rowwire.ApplyRequest) {
		mu.Lock()
		defer mu.Unlock()
		for _, table := range r.Tables {
			for _, id := range table.IDs {
				if table.Table == "user" {
					users[id&modelspec.MaxID] = true
				}
			}
		}
	}
	half := recs[:200]
	if !again {
		half = recs
	}
	if _, err := w.writer.Write(t.Context(), half...); err != nil {
		t.Fatal(err)
	}
	cfg := w.config("a", 0)
	cfg.Deterministic, cfg.StopAtEnd, cfg.Batch = deterministic, !again, 10
	run := w.run(cfg)
	if !again {
		run.wait(t)
		return users
	}
	w.learnt(0, 200)
	run.stop(t)
	if _, err := w.writer.Write(t.Context(), recs[200:]...); err != nil {
		t.Fatal(err)
	}
	cfg.Name = "b"
	run = w.run(cfg)
	w.learnt(0, 400)
	run.stop(t)
	return users
}

// Whoever learns a record drops the same ones, and their offsets count as learnt.
func TestSampleRulesOfATopic(t *testing.T) {
	want := learntUsers(t, true, false)
	if n := len(want); n < 110 || n > 190 || want[99] {
		t.Fatalf("%d of 300 users are learnt", n)
	}
	for name, got := range map[string]map[int64]bool{"out of order": learntUsers(t, false, false), "by two trainers": learntUsers(t, false, true)} {
		if !maps.Equal(got, want) {
			t.Errorf("%s: %d users are learnt, want %d", name, len(got), len(want))
		}
	}
}
