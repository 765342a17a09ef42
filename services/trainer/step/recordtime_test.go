package step

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// TestRecordsFromTheFutureAreParked: a record beyond the bound is rejected with a reason
// that names it, and neither it nor one that cannot be parsed moves the time of the batch.
func TestRecordsFromTheFutureAreParked(t *testing.T) {
	e, err := New(trainertest.SmallSpec(), 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	e.Latest = func() time.Time { return now.Add(24 * time.Hour) }
	rating := []byte(`{"userId":1,"movieId":5,"rating":5}`)
	s := e.NewStep()
	load := func(recs ...kafka.Record) {
		t.Helper()
		if err := s.Load(Span{Recs: recs}); err != nil {
			t.Fatal(err)
		}
	}
	load(
		kafka.Record{Offset: 0, Value: rating, Time: now.Add(-time.Hour)},
		kafka.Record{Offset: 1, Value: rating, Time: time.Date(2102, 1, 1, 0, 0, 0, 0, time.UTC)},
		kafka.Record{Offset: 2, Value: []byte(`broken`), Time: now.Add(time.Hour)},
		kafka.Record{Offset: 3, Value: rating, Time: now.Add(24*time.Hour + time.Second)},
		kafka.Record{Offset: 4, Value: rating, Time: now.Add(-time.Minute)},
	)
	if s.Samples() != 2 || s.Newest != now.Add(-time.Minute).Unix() {
		t.Errorf("%d samples, the batch is of %s; want 2 of %s", s.Samples(), time.Unix(s.Newest, 0).UTC(), now.Add(-time.Minute))
	}
	if len(s.Bad) != 3 {
		t.Fatalf("%d records are parked, want 3: %v", len(s.Bad), s.Bad)
	}
	for i, want := range []string{"2102-01-01T00:00:00Z", "not one JSON object", "2026-11-23T07:00:01Z"} {
		if !strings.Contains(s.Bad[i].Reason, want) {
			t.Errorf("record %d: %s; want %s", s.Bad[i].Record.Offset, s.Bad[i].Reason, want)
		}
	}
	load(kafka.Record{Offset: 5, Value: rating, Time: now.Add(24 * time.Hour)})
	if s.Samples() != 1 {
		t.Errorf("the bound itself is refused: %v", s.Bad)
	}
	load(kafka.Record{Offset: 6, Value: rating, Time: time.Date(2102, 1, 1, 0, 0, 0, 0, time.UTC)})
	if s.Newest != 0 || s.Samples() != 0 {
		t.Errorf("a batch of nothing learnt is dated %d", s.Newest)
	}
}

// What a rule drops is counted, and moves the time of the batch as little as what is parked.
func TestDroppedSamplesAreCounted(t *testing.T) {
	spec := trainertest.SmallSpec()
	spec.SampleRules = []*model.SampleRule{
		{Name: "half", Action: &model.SampleRule_Drop_{Drop: &model.SampleRule_Drop{Rate: proto.Float64(0.5)}}},
		{Name: "bots", Where: []*model.Condition{{Field: "bot"}}, Action: &model.SampleRule_Drop_{Drop: &model.SampleRule_Drop{}}},
	}
	e, err := New(spec, 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	var recs []kafka.Record
	for i := range int64(60) {
		recs = append(recs, kafka.Record{Partition: 3, Offset: i, Time: time.Unix(1000, 0), Value: []byte(`{"userId":1,"movieId":5,"rating":5}`)})
	}
	for i := range int64(2) {
		recs = append(recs, kafka.Record{Partition: 3, Offset: 60 + i, Time: time.Unix(2000, 0), Value: []byte(`{"userId":1,"movieId":5,"rating":5,"bot":1}`)})
	}
	s := e.NewStep()
	for range 2 { // a step that is loaded again counts again
		if err := s.Load(Span{Recs: recs}); err != nil {
			t.Fatal(err)
		}
		if n := s.Samples(); n < 15 || n > 45 || n+s.Dropped[0]+s.Dropped[1] != 62 || s.Newest != 1000 || len(s.Bad) != 0 {
			t.Errorf("%d samples, %v dropped, of %d", n, s.Dropped, s.Newest)
		}
	}
	one, all := s.Samples(), 0
	for i := range recs { // in steps of their own, too
		if err := s.Load(Span{Recs: recs[i : i+1]}); err != nil {
			t.Fatal(err)
		}
		all += s.Samples()
	}
	if all != one {
		t.Errorf("one by one %d samples are learnt, together %d", all, one)
	}
}
