package trainer

import (
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// Records with several ids, floats and weights are learnt through the whole trainer, and those that
// cannot be are parked whole with the field named.
func TestListsFloatsAndWeightsAreLearnt(t *testing.T) {
	w := newWorld(t, 1, 2)
	spec := trainertest.ListsSpec()
	w.append(events.Join(bzid, "model", spec.GetName()), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	records := []string{
		`{"user":1,"movie":2,"genres":["Drama","War",7],"history":[2,3,"4"],"age":41.5,"stars":4,"seen":1,"w":0.5}`,
		`{"user":1,"movie":[2,9],"stars":1}`,
		`{"user":1,"movie":2,"genres":["Drama",{}],"stars":4}`,
		`{"user":1,"movie":2,"history":[5,5.5],"stars":4}`,
		`{"user":1,"movie":[],"stars":4}`,
		`{"user":1,"movie":2,"age":[1,2],"stars":4}`,
		`{"user":1,"movie":2,"stars":4,"w":-1}`,
		`{"user":2,"movie":2,"genres":null,"history":[],"age":null,"stars":"2.5","seen":0}`,
	}
	var recs []kafka.Record
	for i, r := range records {
		w.fids[0] = append(w.fids[0], []int64{modelspec.FID(1, 1)})
		if i > 1 && i < 7 {
			w.fids[0][i] = nil
			w.broken[fmt.Sprintf("kafka:ratings/0 %d", i)] = true
		}
		recs = append(recs, kafka.Record{Topic: "ratings", Value: []byte(r)})
	}
	w.ends[0] = int64(len(recs))
	var mu sync.Mutex // guards rows
	rows := map[string]map[int64]bool{}
	for _, s := range w.shards {
		s.truth, s.spec = nil, spec
		s.took = func(r *rowwire.ApplyRequest) {
			mu.Lock()
			defer mu.Unlock()
			for _, table := range r.Tables {
				if rows[table.Table] == nil {
					rows[table.Table] = map[int64]bool{}
				}
				for _, id := range table.IDs {
					if rows[table.Table][id] {
						t.Errorf("row %#x of %s is told of twice", id, table.Table)
					}
					rows[table.Table][id] = true
				}
			}
		}
	}
	if _, err := w.writer.Write(t.Context(), recs...); err != nil {
		t.Fatal(err)
	}
	cfg := w.config("a", 0)
	cfg.Deterministic, cfg.StopAtEnd, cfg.Batch = true, true, 8
	w.run(cfg).wait(t)
	w.checkLetters()
	letters, err := w.b.DeadLetters().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, l := range letters {
		reasons = append(reasons, l.Reason)
	}
	for _, want := range []string{
		`field "genres", value 2, is {}, which has no bytes to hash`, `field "history", value 2, is 5.5, not a whole number`, `field "movie" is missing`,
		`field "age" has 2 numbers, 1 are read`, `field "w" is -1: a weight is a finite number of 0 or more`,
	} {
		if !strings.Contains(strings.Join(reasons, "\n"), want) {
			t.Errorf("nothing is parked for %q: %q", want, reasons)
		}
	}
	// users 1 and 2; movies 2, 9, 3 and 4; three genres, and the pairs of users and movies.
	for table, n := range map[string]int{"user": 2, "movie": 4, "genre": 3 + 3} {
		if len(rows[table]) != n {
			t.Errorf("%d rows of %s are told of, want %d", len(rows[table]), table, n)
		}
	}
	for _, movie := range []int64{2, 3, 4, 9} {
		if !rows["movie"][modelspec.FID(2, movie)] {
			t.Errorf("movie %d is not learnt", movie)
		}
	}
}

// A record that is too large for a step by itself is parked, and those beside it are learnt, in
// either mode.
func TestARecordTooLargeIsParked(t *testing.T) {
	for _, deterministic := range []bool{false, true} {
		w := newWorld(t, 1, 1)
		spec := trainertest.ListsSpec()
		for _, table := range spec.Tables {
			table.Dim = 4096
		}
		w.append(events.Join(bzid, "model", spec.GetName()), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
		most := modelspec.MaxStepBytes/(8+4*4096) + 1
		ids := make([]string, most)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		small, large := `{"user":1,"movie":2,"stars":1}`, `{"user":1,"movie":2,"stars":1,"history":[`+strings.Join(ids, ",")+`]}`
		var recs []kafka.Record
		for i, r := range []string{small, small, large, small} {
			w.fids[0] = append(w.fids[0], []int64{1})
			if r == large {
				w.fids[0][i] = nil
				w.broken[fmt.Sprintf("kafka:ratings/0 %d", i)] = true
			}
			recs = append(recs, kafka.Record{Topic: "ratings", Value: []byte(r), Time: time.Now()})
		}
		w.ends[0] = 4
		w.shards[0].truth, w.shards[0].spec = nil, spec
		if _, err := w.writer.Write(t.Context(), recs...); err != nil {
			t.Fatal(err)
		}
		cfg := w.config("a", 0)
		cfg.Deterministic, cfg.StopAtEnd, cfg.Batch = deterministic, true, 4
		w.run(cfg).wait(t)
		w.checkLetters()
		letters, err := w.b.DeadLetters().List(t.Context())
		if err != nil || len(letters) != 1 || !strings.Contains(letters[0].Reason, "the step is too large") {
			t.Errorf("deterministic %v: %v, %v", deterministic, letters, err)
		}
	}
}

// A record may hold several samples: it is learnt whole under its one offset, or parked whole with the
// number of the sample.
func TestRecordsOfSeveralSamples(t *testing.T) {
	w := newWorld(t, 1, 2)
	spec := trainertest.ListsSpec()
	for _, f := range spec.Features[:1] {
		f.Ids = model.Feature_FID
	}
	spec.Tasks[0].Label.Field, spec.Tasks[1].Label.Field = "__LABEL__", "__LABEL__"
	w.append(events.Join(bzid, "model", spec.GetName()), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	batch := func(users ...uint64) []byte {
		b := &matrixpb.ExampleBatch{BatchSize: int32(len(users)), NamedFeatureList: []*matrixpb.NamedFeatureList{
			{Name: "user"}, {Name: "movie", Type: matrixpb.FeatureListType_SHARED}, {Name: "__LABEL__"},
		}}
		movie := &matrixpb.Feature{Type: &matrixpb.Feature_Int64Value{Int64Value: 5}}
		b.NamedFeatureList[1].Feature = append(b.NamedFeatureList[1].Feature, movie)
		for _, user := range users {
			b.NamedFeatureList[0].Feature = append(b.NamedFeatureList[0].Feature, &matrixpb.Feature{Type: &matrixpb.Feature_FidV1List{FidV1List: &matrixpb.FidList{Value: []uint64{user}}}})
			b.NamedFeatureList[2].Feature = append(b.NamedFeatureList[2].Feature, &matrixpb.Feature{Type: &matrixpb.Feature_FloatList{FloatList: &matrixpb.FloatList{Value: []float32{4}}}})
		}
		message, err := proto.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(message))), message...)
	}
	of := func(user uint64) uint64 { return layouttest.MakeV1(1, user) }
	records := [][]byte{
		append(batch(of(1), of(2), of(3)), batch(of(4))...),
		append(batch(of(7), of(8)), batch(of(9), layouttest.MakeV1(2, 9))...), // the fourth is of another slot
		batch(of(5)),
	}
	var recs []kafka.Record
	for i, r := range records {
		w.fids[0] = append(w.fids[0], []int64{1})
		if i == 1 {
			w.fids[0][i] = nil
			w.broken["kafka:ratings/0 1"] = true
		}
		recs = append(recs, kafka.Record{Topic: "ratings", Value: r})
	}
	w.ends[0] = int64(len(recs))
	var mu sync.Mutex // guards users
	users := map[int64]bool{}
	for _, s := range w.shards {
		s.truth, s.spec = nil, spec
		s.took = func(r *rowwire.ApplyRequest) {
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
	}
	if _, err := w.writer.Write(t.Context(), recs...); err != nil {
		t.Fatal(err)
	}
	cfg := w.config("a", 0)
	cfg.Deterministic, cfg.StopAtEnd, cfg.Batch, cfg.Format = true, true, 2, "example-batch+framed"
	w.run(cfg).wait(t)
	w.checkLetters()
	letters, err := w.b.DeadLetters().List(t.Context())
	if err != nil || len(letters) != 1 || !strings.Contains(letters[0].Reason, `sample 4: field "user" is 562949953421321, a feature id of slot 2`) {
		t.Errorf("parked: %v, %v", letters, err)
	}
	if want := map[int64]bool{1: true, 2: true, 3: true, 4: true, 5: true}; !maps.Equal(users, want) {
		t.Errorf("users %v are learnt, want %v", users, want)
	}
}
