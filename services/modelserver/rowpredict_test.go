package modelserver_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

type inputs = map[string]*tfserving.TensorProto

// askRows sends a Predict to a shard by one of the original's signatures.
func (s *served) askRows(sub, signature string, in inputs) (map[string]*tfserving.TensorProto, error) {
	spec := tfserving.Spec(ranker+":"+sub, 0)
	spec.SignatureName = signature
	res, err := s.predict.Predict(testContext(s.w.t), &apis.PredictRequest{ModelSpec: spec, Inputs: in})
	return res.GetOutputs(), err
}

func floatsOf(t *testing.T, x *tfserving.TensorProto, shape ...int64) []float32 {
	t.Helper()
	got, err := tfserving.Floats(nil, x, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	var dims []int64
	for _, d := range x.GetTensorShape().GetDim() {
		dims = append(dims, d.GetSize())
	}
	if !slices.Equal(dims, shape) {
		t.Errorf("the answer's shape is %v, want %v", dims, shape)
	}
	return got
}

// shardOfRanker is a frozen server of one of the model's two shards, which its entry asks.
func shardOfRanker(w *world, sub string, task int32) *served {
	s := w.serve(sub, func(c *modelserver.Config) { c.Frozen = true })
	s.mustLoad(1, sub)
	w.register(task, 0, sub, s.RowsAddr())
	return s
}

// The original's pushers and entries speak with a shard through Predict: what they push is what it finds
// afterwards, by table or raw, and what our own entry scores with.
func TestRowsThroughPredict(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	shards := []*served{shardOfRanker(w, "ps_0", 0), shardOfRanker(w, "ps_1", 1)}
	user, movie := modelspec.FID(1, 3), modelspec.FID(2, 5)
	at := func(id int64) (*served, string) {
		k := modelspec.ShardOf(id, 2)
		return shards[k], []string{"ps_0", "ps_1"}[k]
	}
	one, two := []float32{1, 2, 3, 4}, []float32{-1, 0.5, 0.25, 2}

	s, sub := at(user)
	absent := user + 200 // even, so of the same shard
	out, err := s.askRows(sub, "hashtable_assign", inputs{"user_id": tfserving.NewInt64([]int64{user}), "user_value": tfserving.NewFloat(one, 1, dim),
		"movie_id": tfserving.NewInt64(nil), "movie_value": tfserving.NewFloat(nil, 0, dim)})
	if err != nil || out["user_result"].GetIntVal()[0] != 1 || out["movie_result"].GetIntVal()[0] != 0 {
		t.Fatalf("%v, %v", out, err)
	}
	if out, err = s.askRows(sub, "lookup", inputs{"user": tfserving.NewInt64([]int64{user, absent})}); err != nil {
		t.Fatal(err)
	}
	if got := floatsOf(t, out["user"], 2, dim); !slices.Equal(got, append(slices.Clone(one), 0, 0, 0, 0)) || len(out) != 1 {
		t.Errorf("lookup finds %v", got)
	}

	s, sub = at(movie)
	if out, err = s.askRows(sub, "MonolithMultiHashTable_0/raw_assign", inputs{"id": tfserving.NewInt64([]int64{movie}), "id_split": tfserving.NewInt64([]int64{0, 1, 1}),
		"flat_value": tfserving.NewFloat(two)}); err != nil || out["result"].GetIntVal()[0] != 0 {
		t.Fatalf("%v, %v", out, err)
	}
	if out, err = s.askRows(sub, "raw_lookup", inputs{"id": tfserving.NewInt64([]int64{movie}), "id_split": tfserving.NewInt64([]int64{0, 1, 1})}); err != nil {
		t.Fatal(err)
	}
	if got := floatsOf(t, out["flat_emb"], dim); !slices.Equal(got, two) {
		t.Errorf("raw_lookup finds %v", got)
	}

	w.mu.Lock()
	w.rows["user"][user], w.rows["movie"][movie] = one, two
	w.mu.Unlock()
	e := w.serve("entry-0", func(c *modelserver.Config) { c.Frozen = true })
	e.mustLoad(1, "entry")
	if err := e.check([]int64{3, 4}, []int64{5, 6}); err != nil {
		t.Error(err)
	}
	meta, err := e.predict.GetModelMetadata(testContext(t), &apis.GetModelMetadataRequest{ModelSpec: tfserving.Spec(ranker, 0), MetadataField: []string{"signature_def"}})
	if err != nil || strings.Contains(meta.String(), "raw_lookup") {
		t.Errorf("an entry offers rows: %v, %v", meta, err)
	}
	meta, err = s.predict.GetModelMetadata(testContext(t), &apis.GetModelMetadataRequest{ModelSpec: tfserving.Spec(ranker+":"+sub, 0), MetadataField: []string{"signature_def"}})
	if err != nil {
		t.Fatal(err)
	}
	var all apis.SignatureDefMap
	if err := meta.GetMetadata()["signature_def"].UnmarshalTo(&all); err != nil {
		t.Fatal(err)
	}
	if defs := all.GetSignatureDef(); len(defs) != 4 || defs["hashtable_assign"].GetInputs()["user_value"].GetTensorShape().GetDim()[1].GetSize() != dim {
		t.Errorf("a shard offers %v", defs)
	}
}

// What cannot be taken is refused with a sentence, and changes nothing.
func TestRowsThroughPredictRefused(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s := shardOfRanker(w, "ps_0", 0)
	id, others := modelspec.FID(1, 4), modelspec.FID(1, 5)
	if modelspec.ShardOf(id, 2) != 0 || modelspec.ShardOf(others, 2) != 1 {
		t.Fatal("the ids are of other shards")
	}
	i := func(v ...int64) *tfserving.TensorProto { return tfserving.NewInt64(v) }
	f := func(v ...float32) *tfserving.TensorProto { return tfserving.NewFloat(v) }
	nan := float32(math.NaN())
	for _, tc := range []struct {
		signature string
		in        inputs
		want      string
	}{
		{"lookup", inputs{"nobody": i(id)}, "there is no such table"},
		{"lookup", inputs{"user": f(1)}, "DT_FLOAT"},
		{"lookup", inputs{"user": i(others)}, "belongs to shard 1 of 2"},
		{"raw_lookup", inputs{"id": i(id)}, `"id_split" is missing`},
		{"raw_lookup", inputs{"id": i(id), "id_split": i(0, 1)}, "it has 2 numbers"},
		{"raw_lookup", inputs{"id": i(id), "id_split": i(0, 2, 1)}, "from 0 up to 1"},
		{"hashtable_assign", inputs{"user_id": i(id)}, `"user_value" is missing`},
		{"hashtable_assign", inputs{"user_value": f(1)}, "inputs are {table}_id and {table}_value"},
		{"hashtable_assign", inputs{"user_id": i(id), "user_value": f(1, 2)}, "1 ids came with 2 numbers"},
		{"hashtable_assign", inputs{"user_id": i(id), "user_value": f(1, 2, 3, nan)}, "infinite or no number"},
		{"hashtable_assign", inputs{"user_id": i(id), "user_value": f(9, 9, 9, 9), "movie_id": i(others), "movie_value": f(1, 2, 3, 4)}, "belongs to shard 1 of 2"},
		{"hashtable_assign", inputs{"x_id": i(), "x_value": f()}, `no table "x"`},
		{"t/raw_assign", inputs{"id": i(id), "id_split": i(0, 0, 1), "flat_value": f(1)}, "fewer than the rows"},
		{"raw_assign", inputs{"id": i(id), "id_split": i(0, 0, 1), "flat_value": f(1, 2, 3, 4, 5)}, "the rows of 1 ids have 4"},
	} {
		if _, err := s.askRows("ps_0", tc.signature, tc.in); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %v: %v, want %q", tc.signature, tc.in, err, tc.want)
		}
	}
	out, err := s.askRows("ps_0", "lookup", inputs{"user": i(id)})
	if err != nil {
		t.Fatal(err)
	}
	if got := floatsOf(t, out["user"], 1, dim); !slices.Equal(got, w.rows["user"][id]) {
		t.Errorf("after the refusals the row is %v", got)
	}
	if _, err := s.askRows("ps_0", "serving_default", inputs{"user": i(id)}); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "raw_lookup") {
		t.Errorf("a score of a shard: %v", err)
	}
	for _, name := range []string{"t/lookup", "t/raw_assign/", "t/hashtable_assign", "raw_assign/t"} {
		_, err := s.askRows("ps_0", name, inputs{"id": i(id), "id_split": i(0, 0, 1), "flat_value": f(1, 2, 3, 4)})
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "raw_lookup") {
			t.Errorf("by the signature %q: %v", name, err)
		}
	}
	if _, err := s.askRows("ps_1", "lookup", nil); status.Code(err) != codes.NotFound {
		t.Errorf("a shard that is not here: %v", err)
	}
	w.plan(1, 2, job) // from now on there are deltas to follow
	following := w.serve("following")
	following.mustLoad(1, "ps_0")
	if _, err := following.askRows("ps_0", "hashtable_assign", inputs{"user_id": i(id), "user_value": f(1, 2, 3, 4)}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a shard that follows deltas: %v", err)
	}
}
