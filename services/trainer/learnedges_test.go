package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
)

// Kafka's time of a record is bounded by what the trainer says, and by 32 bits of seconds.
func TestDatesOfRecords(t *testing.T) {
	e, err := newEngine(smallSpec(), 2, 8)
	if err != nil {
		t.Fatal(err)
	}
	load := func(at time.Time) *step {
		s := e.newStep()
		if err := s.load([]kafka.Record{{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`), Time: at}}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	last := time.Unix(math.MaxUint32, 0)
	if s := load(last); len(s.bad) != 0 || s.newest != math.MaxUint32 {
		t.Errorf("the last second: %+v, newest %d", s.bad, s.newest)
	}
	if s := load(last.Add(time.Second)); len(s.bad) != 1 || s.samples() != 0 || s.newest != 0 {
		t.Errorf("a time beyond 32 bits: %+v, newest %d", s.bad, s.newest)
	}
	at := time.Unix(1000, 0)
	e.latest = func() time.Time { return at }
	if s := load(at); len(s.bad) != 0 || s.newest != 1000 {
		t.Errorf("the latest that is taken: %+v", s.bad)
	}
	if s := load(at.Add(1)); len(s.bad) != 1 || !strings.Contains(s.bad[0].reason, "--record-ahead") {
		t.Errorf("later: %+v", s.bad)
	}
}

// A batch is traced as its first sampled record is.
func TestTheTraceOfABatch(t *testing.T) {
	e, err := newEngine(smallSpec(), 1, 8)
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
		s := e.newStep()
		var recs []kafka.Record
		for _, tp := range tc.give {
			recs = append(recs, rec(tp))
		}
		if err := s.load(recs); err != nil || s.trace != tc.want {
			t.Errorf("%q are traced as %q, %v", tc.give, s.trace, err)
		}
		if err := s.load(nil); err != nil || s.trace != "" {
			t.Errorf("nothing is traced as %q, %v", s.trace, err)
		}
	}
}

func TestEnginesAtTheirBounds(t *testing.T) {
	spec := smallSpec()
	most := rowwire.MaxIDs / len(spec.Features)
	for modelspec.StepBytes(spec, most) > modelspec.MaxStepBytes {
		most--
	}
	if _, err := newEngine(spec, 1, most); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	if _, err := newEngine(spec, 1, most+1); err == nil {
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
	e, err := newEngine(smallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := e.newStep()
	if err := s.load([]kafka.Record{{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`)}, {Value: []byte(`{"userId":2,"movieId":5,"rating":5}`)}}); err != nil {
		t.Fatal(err)
	}
	shard := &answerer{}
	c, err := rowwire.Dial(t.Context(), answering(t, shard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	blocks := s.batch.Blocks(0)
	rows := func() (v [][]float32) {
		for i, b := range blocks {
			v = append(v, slices.Repeat([]float32{float32(i + 1)}, len(b.IDs)*b.Dim))
		}
		return v
	}
	ask := func(values [][]float32) error {
		t.Helper()
		p, ok := s.asks(0, rowwire.LookupRequest{Model: "m"})
		if shard.values = values; !ok || len(p.lookup.Tables) != 2 || p.lookup.Model != "m" {
			t.Fatalf("asked is %+v", p.lookup)
		}
		if _, err := p.lookUp(t.Context(), c); err != nil {
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
func learnt(t *testing.T, e *engine) *step {
	t.Helper()
	s := e.newStep()
	if err := s.load([]kafka.Record{{Value: []byte(`{"userId":1,"movieId":5,"rating":5}`)}}); err != nil {
		t.Fatal(err)
	}
	for shard := range e.Shards() {
		for _, b := range s.batch.Blocks(shard) {
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
	if _, err := s.train(w); err != nil {
		t.Fatal(err)
	}
	return s
}

// A shard is asked for, and told of, the tables of which it has rows in the batch.
func TestAShardHearsOfItsOwnTables(t *testing.T) {
	const shards = 2
	e, err := newEngine(smallSpec(), shards, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := learnt(t, e)
	named := 0
	for shard := range shards {
		p, ok := s.asks(shard, rowwire.LookupRequest{})
		tables := p.lookup.Tables
		r := s.tells(shard, rowwire.ApplyRequest{})[0]
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
	if err := s.load(nil); err != nil {
		t.Fatal(err)
	}
	if r := s.tells(0, rowwire.ApplyRequest{})[0]; len(r.Tables)+len(r.Dense) != 0 {
		t.Errorf("without samples a shard is told of %+v", r)
	}
}

// Gradients that no shard takes are found before any is sent.
func TestGradientsThatAreTaken(t *testing.T) {
	e, err := newEngine(smallSpec(), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	const most = table.MaxGradient
	above := math.Nextafter32(most, math.MaxFloat32)
	for x, ok := range map[float32]bool{most: true, -most: true, above: false, -above: false, float32(math.Inf(1)): false, float32(math.Inf(-1)): false} {
		for what, put := range map[string]func(s *step){
			"variable": func(s *step) { s.batch.Dense[0][0] = x },
			"row":      func(s *step) { s.batch.Blocks(0)[0].Grads[1] = x },
		} {
			s := learnt(t, e)
			put(s)
			if err := s.takeable(); (err == nil) != ok || !ok && !errors.Is(err, errGradients) {
				t.Errorf("a %s of %g: %v", what, x, err)
			}
		}
	}
	s := learnt(t, e)
	s.batch.Dense[0][0] = float32(math.NaN())
	if err := s.takeable(); !errors.Is(err, errGradients) {
		t.Errorf("no number: %v", err)
	}
	for err, want := range map[error]bool{errGradients: true, rowwire.Errorf(rowwire.Invalid, "x"): true, rowwire.Errorf(rowwire.Gap, "x"): false, errors.New("x"): false} {
		if refused(err) != want {
			t.Errorf("%v is refused: %v", err, !want)
		}
	}
}

func TestTheWorstErrorDecides(t *testing.T) {
	gap, fenced, other := rowwire.Errorf(rowwire.Gap, "gap"), rowwire.Errorf(rowwire.Fenced, "fenced"), errors.New("other")
	for _, tc := range []struct {
		errs []error
		want error
	}{{nil, nil}, {[]error{nil, nil}, nil}, {[]error{nil, gap, other}, gap}, {[]error{other, gap}, other}, {[]error{gap, nil, fenced}, fenced}, {[]error{fenced, gap}, fenced}} {
		if got := worst(tc.errs); got != tc.want {
			t.Errorf("the worst of %v is %v", tc.errs, got)
		}
	}
}

// labelled is a batch of one task.
type labelled []float32

func (l labelled) Len() int              { return len(l) }
func (l labelled) Labels(int) []float32  { return l }
func (l labelled) Weights(int) []float32 { return nil }

// learn notes a step of one task.
func (m *metrics) learn(scores, labels []float32, loss float64, rejected int) {
	task := []modelspec.Task{{Name: "score", Label: &model.Label{Field: "rating", Threshold: 1}}}
	m.learnt(task, labelled(labels), runtime.Result{Loss: loss, Losses: []float64{loss}, Scores: [][]float32{scores}}, rejected, 0)
}

// The window holds the newest predictions, and says nothing of a few.
func TestTheWindowOfPredictions(t *testing.T) {
	m := newMetrics(nil)
	var scores []float64
	var labels []bool
	feed := func(n int) {
		for i := range n {
			score, label := float32((i*7)%97)/97, float32(i%2)
			m.learn([]float32{score}, []float32{label}, 0.5, 0)
			scores, labels = append(scores, float64(score)), append(labels, label > 0.5)
		}
	}
	check := func(what string) {
		t.Helper()
		from := max(0, len(scores)-aucWindow)
		if got, want := m.figures().auc, eval.AUC(scores[from:], labels[from:]); got != want {
			t.Errorf("%s: auc %v, want %v", what, got, want)
		}
		if w := m.tasks[0]; len(w.scores) != len(scores)-from || len(w.labels) != len(w.scores) {
			t.Errorf("%s: %d predictions are kept", what, len(w.scores))
		}
	}
	if feed(aucLeast - 1); !math.IsNaN(m.figures().auc) {
		t.Errorf("auc of %d predictions: %v", aucLeast-1, m.figures().auc)
	}
	feed(1)
	check("as few as may be")
	feed(aucWindow - aucLeast)
	check("a full window")
	for i := range 11 { // the oldest go
		m.learn([]float32{float32(i) / 1000}, []float32{1}, 0.5, 0)
		scores, labels = append(scores, float64(float32(i)/1000)), append(labels, true)
	}
	check("more than a window")
	feed(aucWindow)
	check("another window")
	if f := m.figures(); f.samples != uint64(len(scores)) || f.steps != uint64(len(scores)) || math.Abs(f.loss-0.5) > 1e-9 {
		t.Errorf("%+v", f)
	}
}

// Each of several tasks has figures of its own, of the samples that it learns from.
func TestFiguresByTask(t *testing.T) {
	m := newMetrics(nil)
	e, err := newEngine(listsSpec(), 1, 256)
	if err != nil {
		t.Fatal(err)
	}
	st := e.newStep()
	var recs []kafka.Record
	for i := range 200 {
		recs = append(recs, kafka.Record{Value: fmt.Appendf(nil, `{"user":1,"movie":2,"age":1,"stars":%d,"seen":%d}`, i%6, i%2)})
	}
	if err := st.load(recs); err != nil || st.samples() != 200 {
		t.Fatal(err, st.bad)
	}
	right := make([]float32, 200)
	for i := range right {
		right[i] = st.batch.Labels(0)[i]
	}
	m.learnt(e.Tasks(), st.batch, runtime.Result{Loss: 300, Losses: []float64{100, 200}, Scores: [][]float32{right, right}}, 0, 0)
	f := m.figures()
	named := map[string]float64{}
	for _, v := range f.named() {
		named[v.name] = v.value
	}
	if f.auc != 1 || named["auc/like"] != 1 || named["loss/like"] != 0.5 || named["loss/stars"] != 1 || named["loss"] != 1.5 || !math.IsNaN(named["auc/stars"]) {
		t.Errorf("%+v", named)
	}
	if n := len(m.tasks[0].scores); n != 100 {
		t.Errorf("%d of 100 samples with a weight are counted", n)
	}
}

func TestTheMovingLoss(t *testing.T) {
	m := newMetrics(nil)
	if !math.IsNaN(m.figures().loss) {
		t.Errorf("before the first: %v", m.figures().loss)
	}
	m.learn(nil, nil, 0, 0)
	if f := m.figures(); !math.IsNaN(f.loss) || f.steps != 1 || f.samples != 0 {
		t.Errorf("after nothing: %+v", f)
	}
	m.learn([]float32{0.5, 0.5}, []float32{1, 0}, 8, 0) // 4 each
	if f := m.figures(); f.loss != 4 || f.samples != 2 {
		t.Errorf("the first: %+v", f)
	}
	was := 4.0
	m.learn([]float32{0.5}, []float32{1}, 1004, 0)
	if want := was + (1004-was)/lossMemory; math.Abs(m.figures().loss-want) > 1e-9 {
		t.Errorf("one of a thousand: %v, want %v", m.figures().loss, want)
	}
	was = m.figures().loss
	if m.learn(nil, nil, 0, 3); m.figures().loss != was {
		t.Errorf("a batch of nothing: %v, want %v", m.figures().loss, was)
	}
}

func TestSampledIsTheLastBit(t *testing.T) {
	const id = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	for tp, want := range map[string]bool{id + "1": true, id + "0": false, id + "3": true, id + "2": false, id[1:] + "1": false, "": false, "x" + id + "1": true} {
		if sampled(tp) != want {
			t.Errorf("%q is sampled: %v", tp, !want)
		}
	}
}
