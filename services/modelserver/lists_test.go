package modelserver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"
)

// viewing is one row of a model of lists, floats, a hashed and a crossed feature, and two tasks.
type viewing struct {
	user    int64
	history []int64
	movie   int64
	country string
	age     float32
	vec     []float32
}

// listed makes the world's model that of viewings.
func (w *world) listed() {
	w.spec.Features = []*model.Feature{
		{Name: "user", Field: "user", Slot: 1, Table: "user"},
		{Name: "history", Field: "history", Slot: 2, Table: "movie", Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY},
		{Name: "movie", Field: "movie", Slot: 2, Table: "movie"},
		{Name: "country", Field: "country", Slot: 3, Table: "user", Ids: model.Feature_HASH},
		{Name: "taste", Slot: 4, Table: "user", Cross: []string{"user", "history"}},
	}
	w.spec.Floats = []*model.Float{{Name: "age", Field: "age"}, {Name: "vec", Field: "vec", Dim: 2}}
	w.spec.Outputs = []*model.Output{{Name: "x", Slices: []string{"*"}}}
	w.spec.Layers = []*model.DenseLayer{{Name: "like", Units: 1, Inputs: []string{"x", "age", "vec"}}, {Name: "share", Units: 1, Inputs: []string{"x", "vec"}}}
	w.spec.Tasks = []*model.Task{
		{Name: "like", Logit: "like", Label: &model.Label{Field: "like", Threshold: 1}},
		{Name: "share", Logit: "share", Label: &model.Label{Field: "share", Threshold: 1}},
	}
	w.dense = map[string][]float32{}
	for _, v := range modelspec.Variables(w.spec) {
		w.dense[v.Name] = modelspec.InitVariable(w.spec, v)
	}
	for i, country := range []string{"fr", "de"} {
		w.rows["user"][modelspec.FID(3, modelspec.HashID([]byte(country)))] = []float32{float32(i), -1, 0.25, 0.5}
	}
}

// answers are the right ones, by task, of samples added one by one.
func (w *world) answers(rows []viewing) map[string][]float32 {
	w.t.Helper()
	e, err := runtime.New(w.spec, 1, len(rows))
	if err != nil {
		w.t.Fatal(err)
	}
	b := e.NewBatch()
	for _, r := range rows {
		var history []int64
		for _, id := range r.history {
			history = append(history, modelspec.FID(2, id))
		}
		if err := b.Add(runtime.Sample{
			IDs:    [][]int64{{modelspec.FID(1, r.user)}, history, {modelspec.FID(2, r.movie)}, {modelspec.FID(3, modelspec.HashID([]byte(r.country)))}, nil},
			Floats: [][]float32{{r.age}, r.vec}, Labels: make([]float32, 2),
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		w.t.Fatal(err)
	}
	for _, block := range b.Blocks(0) {
		for i, id := range block.IDs {
			copy(block.Rows[i*block.Dim:(i+1)*block.Dim], make([]float32, block.Dim))
			copy(block.Rows[i*block.Dim:], w.rows[block.Table][id])
		}
	}
	var values [][]float32
	for _, v := range modelspec.Variables(w.spec) {
		values = append(values, w.dense[v.Name])
	}
	weights, err := e.Weights(1, values)
	if err != nil {
		w.t.Fatal(err)
	}
	scores, err := e.Score(&runtime.Lane{}, b, weights, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string][]float32{"like": scores[0], "share": scores[1]}
}

func strings64(values ...string) *tfserving.TensorProto {
	t := tfserving.NewInt64(nil, int64(len(values)))
	t.Dtype = types_go_proto.DataType_DT_STRING
	for _, v := range values {
		t.StringVal = append(t.StringVal, []byte(v))
	}
	return t
}

// tensors are the rows as a client of ragged tensors sends them.
func tensors(rows []viewing) map[string]*tfserving.TensorProto {
	var users, history, movies, countries = []int64(nil), []int64(nil), []int64(nil), []string(nil)
	var ages, vecs []float32
	splits := []int64{0}
	for _, r := range rows {
		users, history, movies, countries = append(users, r.user), append(history, r.history...), append(movies, r.movie), append(countries, r.country)
		splits = append(splits, int64(len(history)))
		ages, vecs = append(ages, r.age), append(vecs, r.vec...)
	}
	return map[string]*tfserving.TensorProto{
		"user": tfserving.NewInt64(users), "history": tfserving.NewInt64(history), "history/row_splits": tfserving.NewInt64(splits),
		"movie": tfserving.NewInt64(movies, int64(len(rows)), 1), "country": strings64(countries...),
		"age": tfserving.NewFloat(ages), "vec": tfserving.NewFloat(vecs, int64(len(rows)), 2),
	}
}

func example(t *testing.T, r viewing) string {
	t.Helper()
	ints := func(v ...int64) *example_protos_go_proto.Feature {
		return &example_protos_go_proto.Feature{Kind: &example_protos_go_proto.Feature_Int64List{Int64List: &example_protos_go_proto.Int64List{Value: v}}}
	}
	numbers := func(v ...float32) *example_protos_go_proto.Feature {
		return &example_protos_go_proto.Feature{Kind: &example_protos_go_proto.Feature_FloatList{FloatList: &example_protos_go_proto.FloatList{Value: v}}}
	}
	b, err := proto.Marshal(&example_protos_go_proto.Example{Features: &example_protos_go_proto.Features{Feature: map[string]*example_protos_go_proto.Feature{
		"user": ints(r.user), "history": ints(r.history...), "movie": ints(r.movie), "age": numbers(r.age), "vec": numbers(r.vec...),
		"country": {Kind: &example_protos_go_proto.Feature_BytesList{BytesList: &example_protos_go_proto.BytesList{Value: [][]byte{[]byte(r.country)}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *served) ask(inputs map[string]*tfserving.TensorProto, filter ...string) (map[string][]float32, error) {
	res, err := s.predict.Predict(testContext(s.w.t), &apis.PredictRequest{ModelSpec: tfserving.Spec(ranker, 0), Inputs: inputs, OutputFilter: filter})
	if err != nil {
		return nil, err
	}
	got := map[string][]float32{}
	for name, out := range res.GetOutputs() {
		got[name] = out.GetFloatVal()
	}
	return got, nil
}

func same(got, want map[string][]float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%v, want %v", got, want)
	}
	for name := range want {
		if !slices.Equal(got[name], want[name]) {
			return fmt.Errorf("%v, want %v", got, want)
		}
	}
	return nil
}

// restGives holds a REST answer by rows or by columns (key) against the scores by output.
func restGives(t *testing.T, s *served, want map[string][]float32, what, body, key string) {
	t.Helper()
	code, answer := post(t, s, "/v1/models/ranker:predict", body)
	got := map[string][]float32{}
	var err error
	if key == "outputs" {
		var a struct{ Outputs map[string][]float32 }
		err = json.Unmarshal([]byte(answer), &a)
		got = a.Outputs
	} else {
		var a struct{ Predictions []map[string]float32 }
		err = json.Unmarshal([]byte(answer), &a)
		for _, row := range a.Predictions {
			for name, v := range row {
				got[name] = append(got[name], v)
			}
		}
	}
	if err == nil {
		err = same(got, want)
	}
	if err != nil {
		t.Errorf("%s: %d %s: %v", what, code, answer, err)
	}
}

// Lists, floats, hashed strings and crossed features are answered alike whichever way they come, as
// samples that the trainer reads one by one are.
func TestListsAndFloats(t *testing.T) {
	w := newWorld(t)
	w.listed()
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	rows := []viewing{
		{1, []int64{3, 4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, nil, 6, "de", 40, []float32{0.25, 3}}, {1, []int64{9}, 7, "nowhere", -1, []float32{0, 0}},
	}
	want := w.answers(rows)
	ask := func(what string, inputs map[string]*tfserving.TensorProto) {
		t.Helper()
		got, err := s.ask(inputs)
		if err == nil {
			err = same(got, want)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	ask("ragged", tensors(rows))
	ask("examples", map[string]*tfserving.TensorProto{"examples": strings64(example(t, rows[0]), example(t, rows[1]), example(t, rows[2]))})
	if got, err := s.ask(tensors(rows), "share"); err != nil || same(got, map[string][]float32{"share": want["share"]}) != nil {
		t.Errorf("share alone: %v, %v; want %v", got, err, want["share"])
	}
	rest := func(what, body, key string) { t.Helper(); restGives(t, s, want, what, body, key) }
	rest("REST rows", `{"instances":[{"user":1,"history":[3,4,3],"movie":5,"country":"fr","age":0.5,"vec":[1,-1]},`+
		`{"user":2,"movie":[6],"country":{"b64":"ZGU="},"age":40,"vec":[0.25,3]},{"vec":[0,0],"user":1,"history":9,"movie":7,"country":"nowhere","age":-1}]}`, "predictions")
	rest("REST columns", `{"inputs":{"user":[1,2,1],"history":[[3,4,3],[],[9]],"movie":[[5],[6],[7]],"country":["fr","de","nowhere"],"age":[0.5,40,-1],"vec":[[1,-1],[0.25,3],[0,0]]}}`, "outputs")
	var encoded []string
	for _, r := range rows {
		encoded = append(encoded, fmt.Sprintf(`{"examples":{"b64":%q}}`, base64.StdEncoding.EncodeToString([]byte(example(t, r)))))
	}
	rest("REST examples", `{"instances":[`+strings.Join(encoded, ",")+`]}`, "predictions")

	flat := []viewing{{1, []int64{3, 4}, 5, "fr", 0.5, []float32{1, -1}}, {2, []int64{5, 6}, 6, "de", 40, []float32{0.25, 3}}}
	want = w.answers(flat)
	in := tensors(flat)
	delete(in, "history/row_splits")
	in["history"] = tfserving.NewInt64([]int64{3, 4, 5, 6}, 2, 2)
	ask("[n, k]", in)
	one := slices.Clone(flat)
	one[1].user, one[1].history, one[1].country, one[1].age, one[1].vec = one[0].user, one[0].history, one[0].country, one[0].age, one[0].vec
	want = w.answers(one)
	shared := tensors(one[:1])
	shared["movie"] = tfserving.NewInt64([]int64{5, 6})
	ask("one row for all", shared)
	one[0].history, one[1].history = []int64{9}, []int64{9}
	want = w.answers(one)
	shared["history"], shared["history/row_splits"] = tfserving.NewInt64([]int64{9}), tfserving.NewInt64([]int64{0, 1})
	ask("a ragged row of one id for all", shared)
	flat[0].history, flat[1].history = nil, nil
	want = w.answers(flat)
	delete(in, "history")
	ask("no history at all", in)
}

func TestListsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.listed()
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	rows := []viewing{{1, []int64{3, 4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, nil, 6, "de", 40, []float32{0.25, 3}}}
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	for name, tc := range map[string]struct {
		change func(in map[string]*tfserving.TensorProto)
		says   string
	}{
		"splits that fall": {func(in map[string]*tfserving.TensorProto) {
			in["history/row_splits"] = tfserving.NewInt64([]int64{0, 4, 3})
		}, "row splits: number 1 is 4"},
		"splits from 1": {func(in map[string]*tfserving.TensorProto) {
			in["history/row_splits"] = tfserving.NewInt64([]int64{1, 2, 3})
		}, "row splits: number 0 is 1"},
		"splits short of all": {func(in map[string]*tfserving.TensorProto) {
			in["history/row_splits"] = tfserving.NewInt64([]int64{0, 1, 2})
		}, "row splits: number 2 is 2"},
		"splits of three rows": {func(in map[string]*tfserving.TensorProto) {
			in["history/row_splits"] = tfserving.NewInt64([]int64{0, 1, 2, 3})
		}, "give each the same number"},
		"splits alone": {func(in map[string]*tfserving.TensorProto) { delete(in, "history") }, "comes without"},
		"splits of a float": {func(in map[string]*tfserving.TensorProto) {
			in["vec/row_splits"] = tfserving.NewInt64([]int64{0, 1, 2})
		}, "numbers each"},
		"a crossed feature": {func(in map[string]*tfserving.TensorProto) { in["taste"] = tfserving.NewInt64([]int64{1, 2}) }, "does not match signature"},
		"a row without a movie": {func(in map[string]*tfserving.TensorProto) {
			in["movie"], in["movie/row_splits"] = tfserving.NewInt64([]int64{1}), tfserving.NewInt64([]int64{0, 1, 1})
		}, "row 1: it has no id"},
		"an id beyond 48 bits":  {func(in map[string]*tfserving.TensorProto) { in["history"] = tfserving.NewInt64([]int64{3, 1 << 48, 3}) }, "row 0: id 281474976710656 is outside"},
		"a vec of three":        {func(in map[string]*tfserving.TensorProto) { in["vec"] = tfserving.NewFloat(make([]float32, 6), 2, 3) }, "want shape [n, 2]"},
		"ids for a float":       {func(in map[string]*tfserving.TensorProto) { in["age"] = tfserving.NewInt64([]int64{1, 2}) }, "want DT_FLOAT"},
		"a string for a number": {func(in map[string]*tfserving.TensorProto) { in["user"] = strings64("a", "b") }, "want DT_INT64"},
		"no floats":             {func(in map[string]*tfserving.TensorProto) { delete(in, "age") }, "age"},
		"no example":            {func(in map[string]*tfserving.TensorProto) { clear(in); in["examples"] = strings64("x", "y") }, `input "examples", row 0`},
	} {
		in := tensors(rows)
		tc.change(in)
		_, err := s.ask(in)
		if st := status.Convert(err); st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), tc.says) {
			t.Errorf("%s: %v; want INVALID_ARGUMENT saying %s", name, err, tc.says)
		}
	}
}

// An impression has each id's row under its feature, crossed ones' too; of very many ids the rows beyond
// 256 are a number.
func TestImpressionsOfLists(t *testing.T) {
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{impression.Topic: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	w := newWorld(t)
	w.listed()
	w.export(1, 2, 0)
	s, subs := w.one(2, func(c *modelserver.Config) {
		c.Brokers, c.PredictionsTopic, c.SampleRate = []string{broker.Addr()}, impression.Topic, -1
	})
	s.mustLoad(1, subs...)
	long := make([]int64, 300)
	for i := range long {
		long[i] = int64(i % 7)
	}
	rows := []viewing{{1, []int64{4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, long, 6, "de", 40, []float32{0.25, 3}}, {3, nil, 7, "fr", 1, []float32{0, 0}}}
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	ctx := metadata.AppendToOutgoingContext(testContext(t), "x-request-id", "r", "x-impression", "1")
	if _, err := s.predict.Predict(ctx, &apis.PredictRequest{ModelSpec: tfserving.Spec(ranker, 0), Inputs: tensors(rows)}); err != nil {
		t.Fatal(err)
	}
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker.Addr()}, Topic: impression.Topic, MaxWait: 100 * time.Millisecond, MaxBytes: 1 << 20})
	defer r.Close()
	var got []*impression.Impression
	for len(got) < len(rows) {
		recs, _, err := r.Fetch(testContext(t), int64(len(got)))
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			i, err := impression.Decode(rec.Value)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, i)
		}
	}
	want := w.answers(rows)
	for row, i := range got {
		v := rows[row]
		history := v.history[:min(len(v.history), impression.MaxFeatureRows)]
		if i.Row != row || !slices.Equal(i.Inputs["history"], history) || !slices.Equal(i.Inputs["user"], []int64{v.user}) || !slices.Equal(i.Floats["vec"], v.vec) ||
			i.Score != want["like"][row] || i.Scores["share"] != want["share"][row] || i.Scores["like"] != want["like"][row] {
			t.Errorf("row %d: %+v", row, i)
		}
		byFeature := map[string][]int64{}
		for _, r := range i.Rows {
			byFeature[r.Feature] = append(byFeature[r.Feature], r.ID)
			if text := map[string]string{"country": v.country}[r.Feature]; r.Text != text {
				t.Errorf("row %d: %s is called %q, the caller gave %q", row, r.Feature, r.Text, text)
			}
			if int(r.Shard) != modelspec.ShardOf(r.ID, 2) {
				t.Errorf("row %d: %+v is not on its shard", row, r)
			}
		}
		more := len(v.history) - len(history)
		if len(byFeature["history"]) != len(history) || len(byFeature["taste"]) != len(history) || i.More["history"] != more || i.More["taste"] != more || len(byFeature["movie"]) != 1 {
			t.Errorf("row %d: rows of %d ids in the history, %d of taste, more are %v", row, len(byFeature["history"]), len(byFeature["taste"]), i.More)
		}
		for k, id := range history {
			if byFeature["history"][k] != modelspec.FID(2, id) {
				t.Errorf("row %d: id %d is %#x, want movie %d", row, k, byFeature["history"][k], id)
			}
		}
	}
}

// TensorFlow's ragged tensors, string tensors and Examples, as its Python package makes them.
func TestOracleTensorFlowLists(t *testing.T) {
	python := oracle.Python(t)
	w := newWorld(t)
	w.listed()
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	rows := []viewing{{1, []int64{3, 4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, nil, 6, "de", 40, []float32{0.25, 3}}}
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	var given [][]any
	for _, r := range rows {
		given = append(given, []any{r.user, append([]int64{}, r.history...), r.movie, r.country, r.age, r.vec})
	}
	body, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/tf_lists.py", s.GRPCAddr(), ranker, string(body))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got struct {
		Ragged, Examples map[string][]float32
		Signature        []map[string]string
	}
	decode(t, "the answers", stdout.Bytes(), &got)
	want := w.answers(rows)
	for what, answer := range map[string]map[string][]float32{"ragged": got.Ragged, "examples": got.Examples} {
		if err := same(answer, want); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	signature := []map[string]string{
		{"user": "int64", "history": "int64", "movie": "int64", "country": "string", "age": "float32", "vec": "float32"}, {"like": "float32", "share": "float32"},
	}
	if diff := cmp.Diff(signature, got.Signature); diff != "" {
		t.Errorf("signature (-want +got):\n%s", diff)
	}
}
