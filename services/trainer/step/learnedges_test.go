package step

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// Kafka's time of a record is bounded by what the trainer says, and by 32 bits of seconds.
func TestDatesOfRecords(t *testing.T) {
	e, err := New(trainertest.SmallSpec(), 2, 8)
	if err != nil {
		t.Fatal(err)
	}
	load := func(at time.Time) *Step {
		s := e.NewStep()
		if err := s.Load(Span{Recs: []kafka.Record{{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`), Time: at}}}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	last := time.Unix(math.MaxUint32, 0)
	if s := load(last); len(s.Bad) != 0 || s.Newest != math.MaxUint32 {
		t.Errorf("the last second: %+v, newest %d", s.Bad, s.Newest)
	}
	if s := load(last.Add(time.Second)); len(s.Bad) != 1 || s.Samples() != 0 || s.Newest != 0 {
		t.Errorf("a time beyond 32 bits: %+v, newest %d", s.Bad, s.Newest)
	}
	at := time.Unix(1000, 0)
	e.Latest = func() time.Time { return at }
	if s := load(at); len(s.Bad) != 0 || s.Newest != 1000 {
		t.Errorf("the latest that is taken: %+v", s.Bad)
	}
	if s := load(at.Add(1)); len(s.Bad) != 1 || !strings.Contains(s.Bad[0].Reason, "--record-ahead") {
		t.Errorf("later: %+v", s.Bad)
	}
}

// A batch is traced as its first sampled record is.
func TestTheTraceOfABatch(t *testing.T) {
	e, err := New(trainertest.SmallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	const id = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333"
	rec := func(tp string) kafka.Record {
		return kafka.Record{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`), Headers: map[string]string{"traceparent": tp}}
	}
	for _, tc := range []struct {
		give []string
		want string
	}{{[]string{"", id + "1-00"}, ""}, {[]string{id + "1-00", id + "2-01", id + "3-01"}, id + "2-01"}, {nil, ""}, {[]string{id + "1-01"}, id + "1-01"}} {
		s := e.NewStep()
		var recs []kafka.Record
		for _, tp := range tc.give {
			recs = append(recs, rec(tp))
		}
		if err := s.Load(Span{Recs: recs}); err != nil || s.Trace != tc.want {
			t.Errorf("%q are traced as %q, %v", tc.give, s.Trace, err)
		}
		if err := s.Load(Span{Recs: nil}); err != nil || s.Trace != "" {
			t.Errorf("nothing is traced as %q, %v", s.Trace, err)
		}
	}
}

func TestEnginesAtTheirBounds(t *testing.T) {
	spec := trainertest.SmallSpec()
	most := rowwire.MaxIDs / len(spec.Features)
	for modelspec.StepBytes(spec, most) > modelspec.MaxStepBytes {
		most--
	}
	if _, err := New(spec, 1, most); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	if _, err := New(spec, 1, most+1); err == nil {
		t.Error("a record more is taken")
	}
}

// answering serves the row protocol until the test ends, and returns its address.
func answering(t *testing.T, h rowwire.Handler) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- rowwire.Serve(ctx, ln, h, rowwire.Options{}) }()
	t.Cleanup(func() { cancel(); <-done })
	return rowwire.Addr(ln.Addr())
}

// answerer answers each lookup with what it holds.
type answerer struct {
	rowwire.Handler
	values [][]float32
}

func (a *answerer) Lookup(context.Context, *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	return &rowwire.LookupResponse{Values: a.values}, nil
}

// What a shard answers must be what it was asked for, and is where the step reads it.
func TestAnswersThatDoNotFit(t *testing.T) {
	e, err := New(trainertest.SmallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := e.NewStep()
	if err := s.Load(Span{Recs: []kafka.Record{{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`)}, {Value: []byte(`{"userId":2,"movieId":5,"rating":5}`)}}}); err != nil {
		t.Fatal(err)
	}
	shard := &answerer{}
	c, err := rowwire.Dial(t.Context(), answering(t, shard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	blocks := s.Batch.Blocks(0)
	rows := func() (v [][]float32) {
		for i, b := range blocks {
			v = append(v, slices.Repeat([]float32{float32(i + 1)}, len(b.IDs)*b.Dim))
		}
		return v
	}
	ask := func(values [][]float32) error {
		t.Helper()
		p, ok := s.Asks(0, rowwire.LookupRequest{Model: "m"})
		if shard.values = values; !ok || len(p.lookup.Tables) != 2 || p.lookup.Model != "m" {
			t.Fatalf("asked is %+v", p.lookup)
		}
		if _, err := p.LookUp(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return p.answer.Landed(p.rows, nil)
	}
	for name, values := range map[string][][]float32{
		"a table less": rows()[1:], "a table more": append(rows(), nil), "a number less": append(rows()[:1:1], rows()[1][1:]), "a number more": append(rows()[:1:1], append(rows()[1], 1)),
	} {
		if err := ask(values); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := ask(rows()); err != nil {
		t.Error(err)
	}
	for i, want := range rows() {
		if !slices.Equal(blocks[i].Rows, want) {
			t.Errorf("rows of table %s are %v, answered were %v", blocks[i].Table, blocks[i].Rows, want)
		}
	}
}

// learnt is a step of one record on rows and variables of a quarter each.
func learnt(t *testing.T, e *Engine) *Step {
	t.Helper()
	s := e.NewStep()
	if err := s.Load(Span{Recs: []kafka.Record{{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`)}}}); err != nil {
		t.Fatal(err)
	}
	for shard := range e.Shards() {
		for _, b := range s.Batch.Blocks(shard) {
			for i := range b.Rows {
				b.Rows[i] = 0.25
			}
		}
	}
	var values [][]float32
	for _, v := range e.Variables() {
		values = append(values, slices.Repeat([]float32{0.25}, v.Size))
	}
	w, err := e.Weights(0, values)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Train(&runtime.Lane{}, w); err != nil {
		t.Fatal(err)
	}
	return s
}

// A shard is asked for, and told of, the tables of which it has rows in the batch.
func TestAShardHearsOfItsOwnTables(t *testing.T) {
	const shards = 2
	e, err := New(trainertest.SmallSpec(), shards, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := learnt(t, e)
	named := 0
	for shard := range shards {
		p, ok := s.Asks(shard, rowwire.LookupRequest{})
		tables := p.lookup.Tables
		r := s.Tells(shard, rowwire.ApplyRequest{})[0]
		if ok != (len(tables) > 0) || len(r.Tables) != len(tables) {
			t.Errorf("shard %d: %d tables wanted, %d learnt", shard, len(tables), len(r.Tables))
		}
		for i, q := range tables {
			if named++; len(q.IDs) != 1 || modelspec.ShardOf(q.IDs[0], shards) != shard || r.Tables[i].Table != q.Table || !slices.Equal(r.Tables[i].IDs, q.IDs) || len(r.Tables[i].Grads) != 4 {
				t.Errorf("shard %d: table %+v", shard, q)
			}
		}
	}
	if named != 2 {
		t.Errorf("%d tables are named to all shards, one row of each of 2 is in the batch", named)
	}
	if err := s.Load(Span{Recs: nil}); err != nil {
		t.Fatal(err)
	}
	if r := s.Tells(0, rowwire.ApplyRequest{})[0]; len(r.Tables)+len(r.Dense) != 0 {
		t.Errorf("without samples a shard is told of %+v", r)
	}
}

// Gradients that no shard takes are found before any is sent.
func TestGradientsThatAreTaken(t *testing.T) {
	e, err := New(trainertest.SmallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	const most = table.MaxGradient
	above := math.Nextafter32(most, math.MaxFloat32)
	for x, ok := range map[float32]bool{most: true, -most: true, above: false, -above: false, float32(math.Inf(1)): false, float32(math.Inf(-1)): false} {
		for what, put := range map[string]func(s *Step){
			"variable": func(s *Step) { s.Batch.Dense[0][0] = x },
			"row":      func(s *Step) { s.Batch.Blocks(0)[0].Grads[1] = x },
		} {
			s := learnt(t, e)
			put(s)
			if err := s.takeable(); (err == nil) != ok || !ok && !errors.Is(err, ErrGradients) {
				t.Errorf("a %s of %g: %v", what, x, err)
			}
		}
	}
	s := learnt(t, e)
	s.Batch.Dense[0][0] = float32(math.NaN())
	if err := s.takeable(); !errors.Is(err, ErrGradients) {
		t.Errorf("no number: %v", err)
	}
}

// A trainer that reads another format than the topic's parks what it cannot read, with a
// reason that says so.
func TestAnotherFormatIsParkedWithAReason(t *testing.T) {
	for format, record := range map[string]string{"json": "\x0a\x00", "example": `{"userId":1,"movieId":2,"rating":4}`} {
		e, err := New(trainertest.SmallSpec(), 1, 8)
		if err != nil {
			t.Fatal(err)
		}
		if e.Input.Format, err = input.ParseFormat(format); err != nil {
			t.Fatal(err)
		}
		s := e.NewStep()
		if err := s.Load(Span{Recs: []kafka.Record{{Value: []byte(record)}}}); err != nil {
			t.Fatal(err)
		}
		if s.Samples() != 0 || len(s.Bad) != 1 || !strings.HasPrefix(s.Bad[0].Reason, "the record is not ") {
			t.Errorf("%s: %+v", format, s.Bad)
		}
	}
}
