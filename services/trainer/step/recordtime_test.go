package step

import (
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
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
