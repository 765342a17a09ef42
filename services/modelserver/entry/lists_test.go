package entry

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// viewings is a model with each kind of input: one id, lists, ids that are missing, hashed or whole, a crossed
// feature, floats, and two tasks.
func viewings(t *testing.T) *Model {
	t.Helper()
	spec := modelspec.MovieRanking()
	for _, table := range spec.Tables {
		table.Dim = 2
	}
	spec.Features = []*model.Feature{
		{Name: "user", Field: "user", Slot: 1, Table: "user"},
		{Name: "history", Field: "history", Slot: 2, Table: "movie", Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY},
		{Name: "genre", Field: "genre", Slot: 3, Table: "movie", Pooling: model.Feature_MEAN, Missing: model.Feature_DEFAULT, DefaultIds: []uint64{7, 8}},
		{Name: "country", Field: "country", Slot: 4, Table: "user", Ids: model.Feature_HASH, Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY},
		{Name: "whole", Field: "whole", Slot: 5, Table: "user", Ids: model.Feature_FID, Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY},
		{Name: "taste", Slot: 6, Table: "user", Pooling: model.Feature_MEAN, Cross: []string{"user", "history"}},
	}
	spec.Floats = []*model.Float{{Name: "age", Field: "age", Missing: model.Feature_DEFAULT, Default: 30}, {Name: "vec", Field: "vec", Dim: 2, Missing: model.Feature_DEFAULT, Default: 1}}
	spec.Outputs = []*model.Output{{Name: "x", Slices: []string{"*"}}}
	spec.Layers = []*model.DenseLayer{{Name: "like", Units: 1, Inputs: []string{"x", "age", "vec"}}, {Name: "stars", Units: 1, Inputs: []string{"x", "vec"}}}
	spec.Label = nil
	spec.Tasks = []*model.Task{
		{Name: "like", Logit: "like", Label: &model.Label{Field: "like", Threshold: 1}},
		{Name: "stars", Logit: "stars", Label: &model.Label{Field: "stars", Raw: true}, Loss: model.Task_MSE},
	}
	m, err := entryOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// entryOf is the entry of an export of an untrained model.
func entryOf(spec *model.ModelSpec) (*Model, error) {
	e := &checkpoint.Entry{Spec: spec, Job: "j", Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	return New("m", 1, 1, e)
}

type tensors = map[string]*tfserving.TensorProto

func texts(values ...string) *tfserving.TensorProto {
	t := tfserving.NewInt64(nil, int64(len(values)))
	t.Dtype = types_go_proto.DataType_DT_STRING
	for _, v := range values {
		t.StringVal = append(t.StringVal, []byte(v))
	}
	return t
}

func ints(values ...int64) *tfserving.TensorProto { return tfserving.NewInt64(values) }

func floats(values ...float32) *tfserving.TensorProto { return tfserving.NewFloat(values) }

// loaded are the ids of each feature by row, without their slots, and the floats, of a request of at most four rows.
func loaded(t *testing.T, m *Model, in tensors) (string, error) {
	t.Helper()
	sc := m.scratches.New().(*scratch)
	if err := sc.load(m, Input{Tensors: in}, 4); err != nil {
		return "", err
	}
	if err := sc.batch.Seal(); err != nil {
		t.Fatal(err)
	}
	var out []string
	for row := range sc.batch.Len() {
		var fields []string
		for i, f := range m.spec.GetFeatures() {
			if len(f.GetCross()) > 0 {
				continue
			}
			ids := []int64{}
			for _, id := range sc.batch.IDs(i, row) {
				if modelspec.SlotOf(id) != f.GetSlot() {
					t.Errorf("row %d of %s has an id of slot %d", row, f.GetName(), modelspec.SlotOf(id))
				}
				ids = append(ids, signature(id))
			}
			fields = append(fields, fmt.Sprint(ids))
		}
		for i := range m.floats {
			fields = append(fields, fmt.Sprint(sc.batch.Floats(i, row)))
		}
		out = append(out, strings.Join(fields, " "))
	}
	return strings.Join(out, "; "), nil
}

// What a request gives becomes the ids and floats of its rows; what it leaves out becomes what the model says.
func TestWhatRequestsBecome(t *testing.T) {
	m := viewings(t)
	hash := func(text string) int64 { return modelspec.HashID([]byte(text)) }
	two := func(more tensors) tensors {
		in := tensors{"user": ints(1, 2)}
		for name, v := range more {
			in[name] = v
		}
		return in
	}
	for name, tc := range map[string]struct {
		in   tensors
		want string
	}{
		"one id alone":       {two(nil), "[1] [] [7 8] [] [] [30] [1 1]; [2] [] [7 8] [] [] [30] [1 1]"},
		"a list each":        {two(tensors{"history": tfserving.NewInt64([]int64{3, 4, 5, 6}, 2, 2)}), "[1] [3 4] [7 8] [] [] [30] [1 1]; [2] [5 6] [7 8] [] [] [30] [1 1]"},
		"no list each":       {two(tensors{"history": tfserving.NewInt64(nil, 2, 0)}), "[1] [] [7 8] [] [] [30] [1 1]; [2] [] [7 8] [] [] [30] [1 1]"},
		"one list for all":   {two(tensors{"history": tfserving.NewInt64([]int64{3, 4}, 1, 2)}), "[1] [3 4] [7 8] [] [] [30] [1 1]; [2] [3 4] [7 8] [] [] [30] [1 1]"},
		"ragged":             {two(tensors{"history": ints(3, 4, 5), "history/row_splits": ints(0, 1, 3)}), "[1] [3] [7 8] [] [] [30] [1 1]; [2] [4 5] [7 8] [] [] [30] [1 1]"},
		"ragged, and empty":  {two(tensors{"genre": ints(3), "genre/row_splits": ints(0, 0, 1)}), "[1] [] [7 8] [] [] [30] [1 1]; [2] [] [3] [] [] [30] [1 1]"},
		"ragged, one row":    {two(tensors{"genre": ints(3, 4, 5), "genre/row_splits": ints(0, 3)}), "[1] [] [3 4 5] [] [] [30] [1 1]; [2] [] [3 4 5] [] [] [30] [1 1]"},
		"ragged, none":       {two(tensors{"genre": ints(), "genre/row_splits": ints(0, 0)}), "[1] [] [7 8] [] [] [30] [1 1]; [2] [] [7 8] [] [] [30] [1 1]"},
		"as many as may be":  {tensors{"user": ints(1, 2, 3, 4), "history": ints(5), "history/row_splits": ints(0, 0, 0, 0, 1)}, "[1] [] [7 8] [] [] [30] [1 1]; [2] [] [7 8] [] [] [30] [1 1]; [3] [] [7 8] [] [] [30] [1 1]; [4] [5] [7 8] [] [] [30] [1 1]"},
		"texts":              {two(tensors{"country": texts("fr", "de")}), fmt.Sprintf("[1] [] [7 8] [%d] [] [30] [1 1]; [2] [] [7 8] [%d] [] [30] [1 1]", hash("fr"), hash("de"))},
		"numbers for texts":  {two(tensors{"country": ints(12)}), fmt.Sprintf("[1] [] [7 8] [%d] [] [30] [1 1]; [2] [] [7 8] [%[1]d] [] [30] [1 1]", hash("12"))},
		"ids with a slot":    {two(tensors{"whole": ints(modelspec.FID(5, 9), modelspec.FID(5, 0))}), "[1] [] [7 8] [] [9] [30] [1 1]; [2] [] [7 8] [] [0] [30] [1 1]"},
		"floats":             {two(tensors{"age": floats(20, 40), "vec": tfserving.NewFloat([]float32{1, 2, 3, 4}, 2, 2)}), "[1] [] [7 8] [] [] [20] [1 2]; [2] [] [7 8] [] [] [40] [3 4]"},
		"floats for all":     {two(tensors{"age": floats(20), "vec": tfserving.NewFloat([]float32{5, 6}, 1, 2)}), "[1] [] [7 8] [] [] [20] [5 6]; [2] [] [7 8] [] [] [20] [5 6]"},
		"floats of one row":  {tensors{"user": ints(1), "vec": tfserving.NewFloat([]float32{5, 6}, 1, 2)}, "[1] [] [7 8] [] [] [30] [5 6]"},
		"a column of floats": {two(tensors{"age": tfserving.NewFloat([]float32{20, 40}, 2, 1)}), "[1] [] [7 8] [] [] [20] [1 1]; [2] [] [7 8] [] [] [40] [1 1]"},
	} {
		if got, err := loaded(t, m, tc.in); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tc.want)
		}
	}
}

// What a request may not give is refused with the input's name, and what is wrong with it.
func TestWhatRequestsMayNotGive(t *testing.T) {
	m := viewings(t)
	inf := float32(math.Inf(1))
	for name, tc := range map[string]struct {
		in   tensors
		says string
	}{
		"none, then two":          {tensors{"user": ints(), "history": ints(1, 2)}, `input "history" has 2 rows, input "user" has 0`},
		"an unknown one besides":  {tensors{"user": ints(1), "x": ints(1)}, "input size does not match signature"},
		"without the user":        {tensors{"history": ints(1)}, "input size does not match signature"},
		"splits alone":            {tensors{"user": ints(1), "history/row_splits": ints(0, 1)}, `comes without "history"`},
		"splits of a float":       {tensors{"user": ints(1), "age": floats(1), "age/row_splits": ints(0, 1)}, "its rows have 1 numbers each"},
		"splits of a crossed one": {tensors{"user": ints(1), "taste/row_splits": ints(0, 1)}, "input size does not match signature"},
		"splits of none":          {tensors{"user": ints(1), "history": ints(), "history/row_splits": ints()}, "its row splits are empty"},
		"splits for too many":     {tensors{"user": ints(1), "history": ints(), "history/row_splits": ints(0, 0, 0, 0, 0, 0)}, `input "history"`},
		"splits of two dims":      {tensors{"user": ints(1, 2), "history": ints(3, 4), "history/row_splits": tfserving.NewInt64(nil, 3, 0)}, "0 of them, want 3"},
		"values of two dims":      {tensors{"user": ints(1, 2), "history": tfserving.NewInt64([]int64{3, 4}, 2, 1), "history/row_splits": ints(0, 1, 2)}, "has row splits and 2 dimensions"},
		"splits from 1":           {tensors{"user": ints(1, 2), "history": ints(3, 4), "history/row_splits": ints(1, 2, 2)}, "number 0 is 1"},
		"splits that fall":        {tensors{"user": ints(1, 2, 3), "history": ints(3, 4, 5), "history/row_splits": ints(0, 2, 1, 3)}, "number 2 is 1"},
		"splits below 0":          {tensors{"user": ints(1, 2), "history": ints(3, 4), "history/row_splits": ints(0, -1, 2)}, "number 1 is -1"},
		"splits beyond":           {tensors{"user": ints(1, 2), "history": ints(3, 4), "history/row_splits": ints(0, 3, 2)}, "number 1 is 3"},
		"splits that end before":  {tensors{"user": ints(1, 2), "history": ints(3, 4), "history/row_splits": ints(0, 1, 1)}, "number 2 is 1"},
		"three dims":              {tensors{"user": ints(1, 2), "history": tfserving.NewInt64([]int64{3, 4}, 2, 1, 1)}, "has 3 dimensions; want shape"},
		"no user in a row":        {tensors{"user": ints(1), "user/row_splits": ints(0, 1, 1)}, "row 1: it has no id"},
		"another's slot":          {tensors{"user": ints(1, 2), "whole": ints(modelspec.FID(5, 1), modelspec.FID(4, 1))}, "row 1:"},
		"no slot":                 {tensors{"user": ints(1), "whole": ints(1)}, "is a feature id of slot 0, the feature's is 5"},
		"below 0":                 {tensors{"user": ints(1), "whole": ints(math.MinInt64 | modelspec.FID(5, 1))}, "is a feature id of slot"},
		"a number less":           {tensors{"user": ints(1, 2), "vec": tfserving.NewFloat([]float32{1, 2}, 2, 1)}, "2 numbers in 2 dimensions for 2 rows; want shape [n, 2]"},
		"a number more":           {tensors{"user": ints(1), "age": tfserving.NewFloat([]float32{1, 2}, 1, 2)}, "2 numbers in 2 dimensions for 1 rows"},
		"floats of three dims":    {tensors{"user": ints(1, 2), "age": tfserving.NewFloat([]float32{1, 2}, 2, 1, 1)}, "2 numbers in 3 dimensions for 2 rows"},
		"an infinite one":         {tensors{"user": ints(1, 2), "vec": tfserving.NewFloat([]float32{1, 2, 3, inf}, 2, 2)}, "row 1 holds +Inf"},
		"one below all":           {tensors{"user": ints(1, 2), "age": floats(-inf, 1)}, "row 0 holds -Inf"},
		"no number":               {tensors{"user": ints(1, 2), "age": floats(1, float32(math.NaN()))}, "row 1 holds NaN"},
		"records and a tensor":    {tensors{"user": ints(1), "examples": texts("x")}, `input "examples" stands for all others, and came with 1 more`},
		"records of two dims": {tensors{"examples": func() *tfserving.TensorProto {
			x := tfserving.NewInt64(nil, 1, 1)
			x.Dtype = types_go_proto.DataType_DT_STRING
			return x
		}()}, `input "examples" has 2 dimensions`},
		"records of no dims": {tensors{"instances": func() *tfserving.TensorProto { x := texts("x"); x.TensorShape.Dim = nil; return x }()}, `input "instances" has 0 dimensions`},
	} {
		if got, err := loaded(t, m, tc.in); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tc.says)
		}
	}
}

// Callers read in the signature which inputs they must give, and of what kind.
func TestTheSignature(t *testing.T) {
	m := viewings(t)
	var got []string
	for _, in := range m.Inputs() {
		got = append(got, fmt.Sprintf("%s %v list %v dim %d optional %v", in.Name, in.Dtype, in.List, in.Dim, in.Optional))
	}
	want := []string{
		"user DT_INT64 list true dim 0 optional false", "history DT_INT64 list true dim 0 optional true", "genre DT_INT64 list true dim 0 optional true",
		"country DT_STRING list true dim 0 optional true", "whole DT_INT64 list true dim 0 optional true",
		"age DT_FLOAT list false dim 1 optional true", "vec DT_FLOAT list false dim 2 optional true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the inputs are %q, want %q", got, want)
	}
	if rest := m.RESTInputs()[len(want):]; len(rest) != len(recordInputs) || !rest[0].Instead {
		t.Errorf("what may stand instead: %+v", rest)
	}
	if !slices.Equal(m.Outputs(), []string{"like", "stars"}) || !m.Probability(0) || m.Probability(1) {
		t.Errorf("outputs %v; probabilities are %v and %v", m.Outputs(), m.Probability(0), m.Probability(1))
	}
}

// A list for all rows may make as many ids as a batch holds, and no more.
func TestAListForAllRowsIsBounded(t *testing.T) {
	const ids, rows = 1 << 10, runtime.MaxBatchIDs >> 10
	for n, ok := range map[int]bool{rows: true, rows + 1: false} {
		sc := &scratch{column: make([]int64, ids)}
		if err := sc.repeat(1, n); (err == nil) != ok || ok && len(sc.column) != ids*n {
			t.Errorf("%d ids for each of %d rows: %d ids, %v", ids, n, len(sc.column), err)
		}
	}
}

// An impression says what the caller gave, which rows that read, and what was answered, by name where there are several scores.
func TestWhatAnImpressionHolds(t *testing.T) {
	m := viewings(t)
	p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), nil)
	s := &Scorer{Rows: asking(t, 1, &delta.Rows{Table: "user", Dim: 2, Ids: []uint64{uint64(modelspec.FID(1, 2))}, Values: make([]byte, 8)}), MaxBatch: 4}
	most := make([]int64, impression.MaxFeatureRows+1)
	for i := range most {
		most[i] = int64(i + 1)
	}
	in := tensors{"user": ints(1, 2), "history": ints(most...), "history/row_splits": ints(0, int64(len(most)), int64(len(most))), "country": texts("fr", "de"), "age": floats(20, 40)}
	if _, _, err := s.Answer(t.Context(), []*Model{m}, Input{Tensors: in}, p.Want("x", true, "tp", 0)); err != nil {
		t.Fatal(err)
	}
	first, second := <-p.queue, <-p.queue
	if got := first.More; len(got) != 2 || got["history"] != 1 || got["taste"] != 1 || len(first.Inputs["history"]) != impression.MaxFeatureRows {
		t.Errorf("of %d ids %d are listed, more are %v", len(most), len(first.Inputs["history"]), got)
	}
	if len(second.More) != 0 || len(second.Inputs) != 5 || len(second.Inputs["history"]) != 0 || !slices.Equal(second.Inputs["genre"], impression.IDs{7, 8}) || second.Inputs["taste"] != nil {
		t.Errorf("inputs %v, more %v", second.Inputs, second.More)
	}
	if len(second.Scores) != 2 || second.Scores["like"] != second.Score || !slices.Equal(second.Floats["age"], []float32{40}) || !slices.Equal(second.Floats["vec"], []float32{1, 1}) {
		t.Errorf("scores %v of %v, floats %v", second.Scores, second.Score, second.Floats)
	}
	var rows []string
	for _, r := range second.Rows {
		rows = append(rows, fmt.Sprint(r.Feature, " ", r.Table, " ", r.SyncSeq, " ", r.Text))
	}
	if want := []string{"user user 42 ", "genre movie 0 ", "genre movie 0 ", "country user 0 de"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	one := newEntry(t)
	if _, _, err := s.Answer(t.Context(), []*Model{one}, Input{Tensors: tensors{one.features[0].name: ints(1), one.features[1].name: ints(2)}}, p.Want("x", true, "", 0)); err != nil {
		t.Fatal(err)
	}
	if got := <-p.queue; got.Scores != nil || got.Floats != nil || got.More != nil {
		t.Errorf("of one task without floats: %+v", got)
	}
}

// A record carries its trace where there is one; what cannot be encoded is counted, and nothing is written of it.
func TestRecordsOfImpressions(t *testing.T) {
	p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), nil)
	for trace, want := range map[string]int{"": 0, "00-a-b-01": 1} {
		recs := p.add(nil, &impression.Impression{RequestID: "r", Model: "m", Traceparent: trace})
		if len(recs) != 1 || len(recs[0].Headers) != want || recs[0].Headers["traceparent"] != trace {
			t.Errorf("of trace %q: %+v", trace, recs)
		}
	}
	if recs := p.add(nil, &impression.Impression{RequestID: "r", Model: "m", Score: float32(math.NaN())}); len(recs) != 0 || testutil.ToFloat64(p.outcomes.WithLabelValues("failed")) != 1 {
		t.Errorf("of no number: %+v", recs)
	}
	if recs := p.flush(t.Context(), nil); len(recs) != 0 { // it has nowhere to write to
		t.Errorf("of nothing: %+v", recs)
	}
}

// A flush that is joined in its midst, as where a version begins to follow, is taken over as far as it comes.
func TestAFlushThatIsJoined(t *testing.T) {
	m := newEntry(t)
	v := m.vars[0]
	values := floatBytes(slices.Repeat([]float32{3}, v.Size)...)
	if err := m.Apply(&delta.Delta{Shard: 4, Chunk: 1, Chunks: 2, Dense: []*delta.Variable{{Name: v.Name, Shape: v.Shape, Values: values}}}, 9); err != nil {
		t.Fatal(err)
	}
	if p := m.params.Load(); p.Version != 9 || p.Values[0][0] != 3 {
		t.Errorf("as of %d: %v", p.Version, p.Values[0][0])
	}
}

// An impression lists a bounded number of rows over all features, and counts the others.
func TestRowsOfAnImpressionAreBounded(t *testing.T) {
	spec := viewings(t).spec
	const features = impression.MaxInputs/impression.MaxFeatureRows + 1
	spec.Features, spec.Floats = nil, nil
	ids := make([]int64, impression.MaxFeatureRows)
	for i := range ids {
		ids[i] = int64(i)
	}
	in := tensors{}
	for i := range features {
		name := fmt.Sprint("f", i)
		spec.Features = append(spec.Features, &model.Feature{Name: name, Field: name, Slot: uint32(i + 1), Table: []string{"user", "movie"}[i%2], Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY})
		in[name] = tfserving.NewInt64(ids, 1, int64(len(ids)))
	}
	for _, l := range spec.Layers {
		l.Inputs = []string{"x"}
	}
	m, err := entryOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), nil)
	s := &Scorer{Rows: asking(t, 1), MaxBatch: 4}
	if _, _, err := s.Answer(t.Context(), []*Model{m}, Input{Tensors: in}, p.Want("x", true, "", 0)); err != nil {
		t.Fatal(err)
	}
	got := <-p.queue
	if last := fmt.Sprint("f", features-1); len(got.Rows) != impression.MaxInputs || len(got.More) != 1 || got.More[last] != len(ids) || len(got.Inputs[last]) != 0 {
		t.Errorf("%d rows are listed, more are %v", len(got.Rows), got.More)
	}
}
