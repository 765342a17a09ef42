package step

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
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

// A step may hold just as many rows, and bytes of them, as one message.
func TestAStepAsLargeAsAMessage(t *testing.T) {
	const dim = modelspec.MaxStepBytes/rowwire.MaxIDs/4 - 2 // both bounds are met at once
	spec := trainertest.ListsSpec()
	for _, table := range spec.Tables {
		table.Dim = dim
	}
	e, err := New(spec, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	records := func(rows int) (recs []kafka.Record) {
		for next := 3; rows > 0; {
			n := min(rows, 16384)
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprint(next + i)
			}
			next, rows = next+n, rows-n
			recs = append(recs, kafka.Record{Value: fmt.Appendf(nil, `{"user":1,"movie":2,"stars":1,"history":[%s]}`, strings.Join(ids, ","))})
		}
		return recs
	}
	const others = 3 // the user, the movie and their crossing
	s := e.NewStep()
	for rows, fits := range map[int]bool{rowwire.MaxIDs: true, rowwire.MaxIDs + 1: false} {
		if err := s.Load(Span{Recs: records(rows - others)}); err != nil || len(s.Bad) > 0 || (s.Unfit == nil) != fits {
			t.Errorf("a step of %d rows of %d numbers: %v, %v, %d are bad", rows, dim, err, s.Unfit, len(s.Bad))
		}
	}
}

// The largest batch is one of which all rows fill a message.
func TestABatchAsLargeAsAMessage(t *testing.T) {
	spec := trainertest.SmallSpec()
	const dim = modelspec.MaxStepBytes/MaxBatch/4/2 - 2 // of each of two features
	for _, table := range spec.Tables {
		table.Dim = dim
	}
	if got := modelspec.StepBytes(spec, MaxBatch); got != modelspec.MaxStepBytes {
		t.Fatalf("the batch takes %d bytes", got)
	}
	if _, err := New(spec, 1, MaxBatch); err != nil {
		t.Errorf("a message full: %v", err)
	}
	spec.Tables[0].Dim++
	if _, err := New(spec, 1, MaxBatch); err == nil || !strings.Contains(err.Error(), "lower --batch") {
		t.Errorf("more than a message: %v", err)
	}
}

// A shard is told in one part what just fills a message, its rows counted, and in two what is a number more.
func TestPartsAreFull(t *testing.T) {
	e, err := New(trainertest.SmallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := learnt(t, e)
	rows := 0
	for _, b := range s.Batch.Blocks(0) {
		rows += 8*len(b.IDs) + 4*len(b.Grads)
	}
	const first = 8
	most := (modelspec.MaxStepBytes - rows) / 4
	for n, want := range map[int]int{most: 1, most + 1: 2} {
		s.Batch.Dense[0] = make([]float32, n)
		e.Bands = [][]modelspec.Band{{{Name: "wide", Size: first}, {Name: "wide", At: first, Size: n - first}}}
		if parts := s.Tells(0, rowwire.ApplyRequest{}); len(parts) != want {
			t.Errorf("%d bytes of rows and %d numbers are told in %d parts, want %d", rows, n, len(parts), want)
		}
	}
}
