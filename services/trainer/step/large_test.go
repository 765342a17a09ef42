package step

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// A step whose records read more than a shard can be sent is learnt in parts, and a record that
// does so alone is parked.
func TestRecordsTooLargeForAStep(t *testing.T) {
	spec := trainertest.ListsSpec()
	for _, table := range spec.Tables {
		table.Dim = 1024
	}
	e, err := New(spec, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	record := func(from, n int) kafka.Record {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint(from + i)
		}
		return kafka.Record{Value: fmt.Appendf(nil, `{"user":1,"movie":2,"stars":1,"history":[%s]}`, strings.Join(ids, ","))}
	}
	most := modelspec.MaxStepBytes / (8 + 4*1024)
	s := e.NewStep()
	if err := s.Load(Span{Recs: []kafka.Record{record(3, most/2), record(most, most/2-100)}}); err != nil || s.Samples() != 2 {
		t.Errorf("two records that fit: %v", err)
	}
	if err := s.Load(Span{Recs: []kafka.Record{record(3, most/2), record(most, most/2+100)}}); err != nil || !errors.Is(s.Unfit, ErrTooLarge) {
		t.Errorf("two that do not: %v, %v", err, s.Unfit)
	}
	if s.Fitted != 0 {
		t.Errorf("%d records fit", s.Fitted)
	}
	var many []kafka.Record
	for i := range 300 {
		many = append(many, record(i%7, 16384))
	}
	if err := s.Load(Span{Recs: many}); err != nil || !errors.Is(s.Unfit, ErrTooLarge) || s.Fitted != runtime.MaxBatchIDs/(16384+3) {
		t.Errorf("%d records of %d ids in all: %v, %d fit", len(many), 300*16384, err, s.Fitted)
	}
	if err := s.Load(Span{Recs: []kafka.Record{record(3, runtime.MaxIDs+1)}}); err != nil || len(s.Bad) != 1 || !strings.Contains(s.Bad[0].Reason, `feature "seen" has 16385 ids`) {
		t.Errorf("more ids than a feature may have: %v, %v", err, s.Bad)
	}
}
