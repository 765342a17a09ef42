package warmup

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

const name = "viewings"

func spec() *model.ModelSpec {
	return &model.ModelSpec{Name: name, Features: []*model.Feature{
		{Name: "user", Slot: 1},
		{Name: "history", Slot: 2, Missing: model.Feature_EMPTY},
		{Name: "fid", Slot: 3, Ids: model.Feature_FID, Missing: model.Feature_EMPTY},
		{Name: "country", Slot: 4, Ids: model.Feature_HASH, Missing: model.Feature_DEFAULT, DefaultIds: []uint64{7}},
		{Name: "taste", Slot: 5, Cross: []string{"user", "history"}},
	}, Floats: []*model.Float{{Name: "vec", Dim: 2}, {Name: "age", Missing: model.Feature_EMPTY}}}
}

func hash(text string) int64 { return modelspec.HashID([]byte(text)) }

// answered is a row with a user, some history, and countries.
func answered(row int, user int64, history []int64, countries ...string) *impression.Impression {
	i := &impression.Impression{RequestID: "r", Row: row, Model: name, TimeUS: 1,
		Inputs: map[string]impression.IDs{"user": {user}, "history": history, "fid": {user}}, Floats: map[string][]float32{"vec": {1, float32(user)}},
		Rows: []impression.Row{{Feature: "taste", Text: "cross"}}}
	for _, text := range countries {
		i.Inputs["country"] = append(i.Inputs["country"], hash(text))
		i.Rows = append(i.Rows, impression.Row{Feature: "country", Text: text})
	}
	return i
}

func strings2(texts ...string) *tfserving.TensorProto {
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return tfserving.NewStrings(all, int64(len(texts)), 1)
}

func TestRequest(t *testing.T) {
	fid := func(ids ...int64) *tfserving.TensorProto {
		for i := range ids {
			ids[i] = modelspec.FID(3, ids[i])
		}
		return tfserving.NewInt64(ids, int64(len(ids)), 1)
	}
	byDefault := answered(0, 1, nil)
	byDefault.Inputs["country"] = impression.IDs{7}
	aged := answered(0, 1, nil, "fr")
	aged.Floats["age"] = []float32{30}
	for what, tc := range map[string]struct {
		rows []*impression.Impression
		want map[string]*tfserving.TensorProto
	}{
		"lists of any length": {
			[]*impression.Impression{answered(0, 1, []int64{4, 3}, "fr"), answered(1, 2, nil, "")},
			map[string]*tfserving.TensorProto{
				"user": tfserving.NewInt64([]int64{1, 2}, 2, 1), "history": tfserving.NewInt64([]int64{4, 3}), "history/row_splits": tfserving.NewInt64([]int64{0, 2, 2}),
				"fid": fid(1, 2), "country": strings2("fr", ""), "vec": tfserving.NewFloat([]float32{1, 1, 1, 2}, 2, 2),
			}},
		"lists of one length": {
			[]*impression.Impression{answered(0, 1, []int64{4, 3}, "fr"), answered(1, 2, []int64{5, 6}, "fr")},
			map[string]*tfserving.TensorProto{
				"user": tfserving.NewInt64([]int64{1, 2}, 2, 1), "history": tfserving.NewInt64([]int64{4, 3, 5, 6}, 2, 2),
				"fid": fid(1, 2), "country": strings2("fr", "fr"), "vec": tfserving.NewFloat([]float32{1, 1, 1, 2}, 2, 2),
			}},
		"what was not given": {
			[]*impression.Impression{byDefault},
			map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1}, 1, 1), "fid": fid(1), "vec": tfserving.NewFloat([]float32{1, 1}, 1, 2)}},
		"what need not be given": {
			[]*impression.Impression{aged},
			map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1}, 1, 1), "fid": fid(1), "country": strings2("fr"),
				"vec": tfserving.NewFloat([]float32{1, 1}, 1, 2), "age": tfserving.NewFloat([]float32{30}, 1, 1)}},
	} {
		got, err := request(spec(), tc.rows)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got.GetInputs(), protocmp.Transform()); diff != "" || got.GetModelSpec().GetName() != name {
			t.Errorf("%s: (-want +got)\n%s", what, diff)
		}
	}
}

// A request that the model would refuse is left out: replayed, it would fail the version.
func TestNoRequest(t *testing.T) {
	row := func(change func(*impression.Impression)) []*impression.Impression {
		i := answered(1, 2, []int64{3}, "fr")
		change(i)
		return []*impression.Impression{answered(0, 1, nil, "fr"), i}
	}
	for says, rows := range map[string][]*impression.Impression{
		`input "user": row 1 has no id`:            row(func(i *impression.Impression) { delete(i.Inputs, "user") }),
		`input "user": row 1: -1 is no id`:         row(func(i *impression.Impression) { i.Inputs["user"] = impression.IDs{-1} }),
		`"fid": row 1: 281474976710656 is no id`:   row(func(i *impression.Impression) { i.Inputs["fid"] = impression.IDs{modelspec.MaxID + 1} }),
		`row 1: the text of hash`:                  row(func(i *impression.Impression) { i.Rows = nil }),
		`input "vec": row 1 has 0 of 2 numbers`:    row(func(i *impression.Impression) { i.Floats = nil }),
		`input "vec": row 1 has 3 of 2 numbers`:    row(func(i *impression.Impression) { i.Floats["vec"] = []float32{1, 2, 3} }),
		`input "age": row 1 has 2 of 1 numbers`:    row(func(i *impression.Impression) { i.Floats["age"] = []float32{1, 2} }),
		`input "age": some rows have no numbers`:   row(func(i *impression.Impression) { i.Floats["age"] = []float32{1} }),
		`its first row reads more than 65536 rows`: {answered(0, 1, make([]int64, maxIDs), "fr")},
	} {
		if r, err := request(spec(), rows); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, %v; want %q", r, err, says)
		}
	}
	if r, err := request(&model.ModelSpec{Name: name, Features: []*model.Feature{{Name: "other", Missing: model.Feature_EMPTY}}}, row(func(*impression.Impression) {})); err == nil {
		t.Errorf("of another model: %v", r)
	}
	taken := spec()
	taken.Features = append(taken.Features, &model.Feature{Name: "history/row_splits", Slot: 6, Missing: model.Feature_EMPTY})
	if r, err := request(taken, row(func(*impression.Impression) {})); err == nil || !strings.Contains(err.Error(), "the name of another input") {
		t.Errorf("%v, %v", r, err)
	}
}

// A large request is taken as its first rows.
func TestFirstRows(t *testing.T) {
	var many, wide []*impression.Impression
	for i := range maxRows + 1 {
		many = append(many, answered(i, int64(i), nil, "fr"))
		wide = append(wide, answered(i, int64(i), make([]int64, impression.MaxFeatureRows), "fr"))
	}
	for want, rows := range map[int64][]*impression.Impression{maxRows: many, maxIDs / (2*impression.MaxFeatureRows + 3): wide} {
		r, err := request(spec(), rows)
		if err != nil || r.GetInputs()["user"].GetTensorShape().GetDim()[0].GetSize() != want {
			t.Errorf("%d rows wanted: %v, %v", want, r.GetInputs()["user"].GetTensorShape(), err)
		}
	}
}

// Answers are told apart by more than a client's id, and rows of one that came twice are one.
func TestSample(t *testing.T) {
	a := answers{spec: spec(), rows: map[answer]map[int]*impression.Impression{}}
	note := func(id string, at int64, rows ...*impression.Impression) {
		of := answer{id, "", at}
		a.rows[of] = map[int]*impression.Impression{}
		for _, i := range rows {
			a.rows[of][i.Row] = i
		}
	}
	note("again", 3, answered(1, 6, nil, "fr"), answered(0, 5, nil, "fr"))
	note("again", 1, answered(0, 1, nil, "fr"))
	note("other", 2, answered(3, 4, nil, "fr")) // its first rows were not read
	bad := answered(0, 9, nil, "fr")
	bad.Rows = nil
	note("bad", 4, bad)
	for n, want := range map[int][][]int64{0: nil, 1: {{5, 6}}, 2: {{4}, {5, 6}}, 9: {{1}, {4}, {5, 6}}} {
		s, err := a.sample(n)
		if err != nil || s.Requests != len(want) || n > 0 && (s.LeftOut != 1 || s.Because == nil) {
			t.Errorf("%d: %+v, %v", n, s, err)
			continue
		}
		var users [][]int64
		for _, r := range requestsIn(t, s.File) {
			users = append(users, r.GetInputs()["user"].GetInt64Val())
		}
		if !slices.EqualFunc(users, want, slices.Equal[[]int64]) {
			t.Errorf("%d: %v, want %v", n, users, want)
		}
		if again, err := a.sample(n); err != nil || string(again.File) != string(s.File) {
			t.Errorf("%d: not the same bytes again, %v", n, err)
		}
	}
	long := strings.Repeat("é", impression.MaxText/2)
	for i := range 200 { // of 100 kB each
		row := answered(0, int64(i), nil, long)
		row.Inputs["country"] = slices.Repeat(impression.IDs{hash(long)}, 800)
		note("large", int64(i), row)
	}
	s, err := a.sample(warmupfile.MaxRequests)
	if err != nil || len(s.File) > maxFile+1<<20 || s.Requests < 20 || s.Requests > 60 {
		t.Errorf("%d requests of %d bytes, %v", s.Requests, len(s.File), err)
	}
	if proto.Size(requestsIn(t, s.File)[0]) < 100_000 {
		t.Error("the requests are not large")
	}
}
