package modelserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

var (
	someUsers  = []int64{0, 1, 1, 7, 19, 400, 1}
	someMovies = []int64{3, 3, 4, 0, 18, 3, 500}
)

// cluster is two serving shards with two replicas each, and an entry.
type cluster struct {
	w     *world
	ps    [2][2]*served // shard, replica
	entry *served
}

func newCluster(t testing.TB, job string) *cluster {
	w := newWorld(t)
	w.export(1, 2, 0)
	w.plan(1, 2, job)
	c := &cluster{w: w}
	for k := range 2 {
		for r := range 2 {
			s := w.serve(fmt.Sprintf("ps-%d-%d", k, r))
			s.mustLoad(1, fmt.Sprintf("ps_%d", k))
			w.register(int32(k), int32(r), s.name, s.RowsAddr())
			c.ps[k][r] = s
		}
	}
	c.entry = w.serve("entry")
	c.entry.mustLoad(1, "entry")
	wait.Until(t, "first predict", func() error { return c.entry.check(someUsers, someMovies) })
	return c
}

func TestPredictEndToEnd(t *testing.T) {
	c := newCluster(t, job)
	if err := c.entry.check([]int64{5}, []int64{6}); err != nil {
		t.Error(err)
	}
	t.Run("shape [n, 1] and tensor_content", func(t *testing.T) {
		req := request([]int64{5, 6}, nil)
		req.Inputs["user"] = tfserving.NewInt64([]int64{5, 6}, 2, 1)
		movie := tfserving.NewInt64(nil, 2)
		movie.TensorContent = append(append([]byte{7}, make([]byte, 7)...), append([]byte{8}, make([]byte, 7)...)...)
		req.Inputs["movie"] = movie
		res, err := c.entry.predict.Predict(testContext(t), req)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := res.GetOutputs()["score"].GetFloatVal(), []float32{c.w.score(5, 7), c.w.score(6, 8)}; !slices.Equal(got, want) {
			t.Fatalf("scores %v, want %v", got, want)
		}
		if got := res.GetModelSpec().GetVersion().GetValue(); got != 1 {
			t.Fatalf("answered by version %d, want 1", got)
		}
	})
	t.Run("a batch of hundreds", func(t *testing.T) {
		var users, movies []int64
		for i := range int64(500) {
			users, movies = append(users, i%25), append(movies, (i*7)%31)
		}
		if err := c.entry.check(users, movies); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("refused", func(t *testing.T) { refusesPredict(t, c) })
	t.Run("metadata", func(t *testing.T) {
		res, err := c.entry.predict.GetModelMetadata(testContext(t), &apis.GetModelMetadataRequest{ModelSpec: tfserving.Spec(ranker, 0), MetadataField: []string{"signature_def"}})
		if err != nil {
			t.Fatal(err)
		}
		var defs apis.SignatureDefMap
		if err := res.GetMetadata()["signature_def"].UnmarshalTo(&defs); err != nil {
			t.Fatal(err)
		}
		def := defs.GetSignatureDef()[tfserving.DefaultSignature]
		if len(def.GetInputs()) != 2 || def.GetInputs()["user"] == nil || def.GetOutputs()["score"] == nil {
			t.Fatalf("signature %v", def)
		}
	})
	t.Run("REST says the same as gRPC", func(t *testing.T) { restAgrees(t, c) })
	t.Run("scan", func(t *testing.T) { scanWhole(t, c) })
}

// refusesPredict sends what is not answered, and looks for the sentence that says why.
func refusesPredict(t *testing.T, c *cluster) {
	big := make([]int64, 4097)
	for name, tc := range map[string]struct {
		change func(*apis.PredictRequest)
		want   codes.Code
		say    string
	}{
		"unknown model":   {func(r *apis.PredictRequest) { r.ModelSpec.Name = "other" }, codes.NotFound, "Servable not found for request: Latest(other)"},
		"unknown version": {func(r *apis.PredictRequest) { r.ModelSpec = tfserving.Spec(ranker, 7) }, codes.NotFound, "Specific(ranker, 7)"},
		"no model":        {func(r *apis.PredictRequest) { r.ModelSpec = nil }, codes.InvalidArgument, "name the model"},
		"signature":       {func(r *apis.PredictRequest) { r.ModelSpec.SignatureName = "x" }, codes.InvalidArgument, "serving_default"},
		"label": {func(r *apis.PredictRequest) {
			r.ModelSpec.VersionChoice = &apis.ModelSpec_VersionLabel{VersionLabel: "canary"}
		}, codes.InvalidArgument, "canary"},
		"missing input":  {func(r *apis.PredictRequest) { delete(r.Inputs, "movie") }, codes.InvalidArgument, "user, movie"},
		"misnamed input": {func(r *apis.PredictRequest) { r.Inputs["film"] = r.Inputs["movie"]; delete(r.Inputs, "movie") }, codes.InvalidArgument, `"movie" is missing`},
		"uneven batch": {func(r *apis.PredictRequest) {
			r.Inputs["user"], r.Inputs["movie"] = tfserving.NewInt64([]int64{1, 2, 3}), tfserving.NewInt64([]int64{1, 2})
		}, codes.InvalidArgument, "movie"},
		"three dimensions": {func(r *apis.PredictRequest) {
			r.Inputs["user"], r.Inputs["movie"] = tfserving.NewInt64([]int64{1}, 1, 1, 1), tfserving.NewInt64([]int64{2}, 1, 1, 1)
		}, codes.InvalidArgument, "[n, k]"},
		"floats": {func(r *apis.PredictRequest) { r.Inputs["user"] = tfserving.NewFloat([]float32{1}) }, codes.InvalidArgument, "DT_INT64"},
		"empty batch": {func(r *apis.PredictRequest) {
			r.Inputs["user"], r.Inputs["movie"] = tfserving.NewInt64(nil, 0), tfserving.NewInt64(nil, 0)
		}, codes.InvalidArgument, "empty"},
		"too big a batch": {func(r *apis.PredictRequest) {
			r.Inputs["user"], r.Inputs["movie"] = tfserving.NewInt64(big), tfserving.NewInt64(big)
		}, codes.InvalidArgument, "4096"},
		"output":           {func(r *apis.PredictRequest) { r.OutputFilter = []string{"logit"} }, codes.InvalidArgument, "score"},
		"rows not scores":  {func(r *apis.PredictRequest) { r.ModelSpec.Name = ranker + ":ps_0" }, codes.NotFound, "ps_0"},
		"the full name ok": {func(r *apis.PredictRequest) { r.ModelSpec.Name = ranker + ":entry" }, codes.OK, ""},
	} {
		req := request([]int64{1}, []int64{2})
		tc.change(req)
		_, err := c.entry.predict.Predict(testContext(t), req)
		if status.Code(err) != tc.want || !strings.Contains(status.Convert(err).Message(), tc.say) {
			t.Errorf("%s: %v; want %v saying %q", name, err, tc.want, tc.say)
		}
	}
	req := request([]int64{1}, []int64{2})
	req.ModelSpec.Name = ranker + ":ps_0"
	if _, err := c.ps[0][0].predict.Predict(testContext(t), req); status.Code(err) != codes.Unimplemented {
		t.Errorf("Predict on a shard: %v; want Unimplemented", err)
	}
	if _, err := c.entry.predict.Classify(testContext(t), &apis.ClassificationRequest{}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "name the model") {
		t.Errorf("Classify of nothing: %v; want InvalidArgument", err)
	}
}

func post(t *testing.T, s *served, path, body string) (int, string) {
	t.Helper()
	res, err := http.Post("http://"+s.HTTPAddr()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func get(t *testing.T, s *served, path string) (int, string) {
	t.Helper()
	res, err := http.Get("http://" + s.HTTPAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func restAgrees(t *testing.T, c *cluster) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	want, err := c.entry.scores([]int64{1, 2}, []int64{3, 4})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ path, body, key string }{
		"rows":     {"/v1/models/ranker:predict", `{"instances":[{"user":1,"movie":3},{"user":2,"movie":4}]}`, "predictions"},
		"columns":  {"/v1/models/ranker/versions/1:predict", `{"inputs":{"user":[1,2],"movie":[3,4]}}`, "outputs"},
		"[n,1]":    {"/v1/models/ranker:predict", `{"inputs":{"user":[[1],[2]],"movie":[[3],[4]]}}`, "outputs"},
		"sub name": {"/v1/models/ranker:entry:predict", `{"signature_name":"serving_default","instances":[{"user":[1],"movie":[3]},{"user":[2],"movie":[4]}]}`, "predictions"},
	} {
		code, body := post(t, c.entry, tc.path, tc.body)
		var got map[string][]float32
		if err := json.Unmarshal([]byte(body), &got); code != http.StatusOK || err != nil {
			t.Errorf("%s: %d %s (%v)", name, code, body, err)
			continue
		}
		if !slices.Equal(got[tc.key], want) {
			t.Errorf("%s: REST %v, gRPC %v", name, got[tc.key], want)
		}
	}
	for name, tc := range map[string]struct {
		path, body string
		want       int
	}{
		"unknown model":   {"/v1/models/other:predict", `{"instances":[{"user":1,"movie":3}]}`, http.StatusNotFound},
		"unknown version": {"/v1/models/ranker/versions/9:predict", `{"instances":[{"user":1,"movie":3}]}`, http.StatusNotFound},
		"not JSON":        {"/v1/models/ranker:predict", `{`, http.StatusBadRequest},
		"signature":       {"/v1/models/ranker:predict", `{"signature_name":"x","instances":[{"user":1,"movie":3}]}`, http.StatusBadRequest},
		"path":            {"/v2/models", `{}`, http.StatusBadRequest},
		"no examples":     {"/v1/models/ranker:classify", `{}`, http.StatusBadRequest},
		"no verb":         {"/v1/models/ranker", `{}`, http.StatusBadRequest},
	} {
		code, body := post(t, c.entry, tc.path, tc.body)
		var e struct{ Error string }
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == "" || code != tc.want {
			t.Errorf("%s: %d %s, want %d with an error (%v)", name, code, body, tc.want, err)
		}
	}
	before := c.entry.counted(t, "monolith_modelserver_predict_total", "InvalidArgument")
	for range 3 {
		post(t, c.entry, "/v1/models/ranker:predict", `{"instances":[{"user":"x","movie":3}]}`)
	}
	if got := c.entry.counted(t, "monolith_modelserver_predict_total", "InvalidArgument") - before; got != 3 {
		t.Errorf("3 requests were refused in decoding, %v counted", got)
	}
	if code, body := post(t, c.entry, "/v1/models/ranker/labels/canary:predict", `{"instances":[{"user":1,"movie":3}]}`); code != http.StatusBadRequest || body != `{ "error": "Unrecognized servable version label: canary; the model has none: give it version_labels in its configuration" }` {
		t.Errorf("a label: %d %s", code, body)
	}
	restMetadata(t, c)
	code, body := get(t, c.entry, "/v1/models/ranker")
	want1 := `{
 "model_version_status": [
  {
   "version": "1",
   "state": "AVAILABLE",
   "status": {
    "error_code": "OK",
    "error_message": ""
   }
  }
 ]
}
`
	if code != http.StatusOK || body != want1 {
		t.Errorf("status: %d %s", code, body)
	}
	if code, body := get(t, c.entry, "/v1/models/ranker/versions/5"); code != http.StatusNotFound || body != `{ "error": "Could not find version 5 of model ranker" }` {
		t.Errorf("status of an unknown version: %d %s", code, body)
	}
}

func restMetadata(t *testing.T, c *cluster) {
	for path, want := range map[string]int{"/v1/models/ranker/metadata": http.StatusOK, "/v1/models/ranker/versions/1/metadata": http.StatusOK,
		"/v1/models/other/metadata": http.StatusNotFound, "/v1/models/ranker/versions/9/metadata": http.StatusNotFound, "/v1/models/ranker/labels/x/metadata": http.StatusBadRequest} {
		code, body := get(t, c.entry, path)
		if code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
		if code != http.StatusOK {
			continue
		}
		var got struct {
			Spec struct {
				Name    string
				Version string
			} `json:"model_spec"`
			Metadata struct {
				Map struct {
					Defs map[string]struct {
						Inputs, Outputs map[string]struct{ Name, Dtype string }
						Method          string `json:"method_name"`
					} `json:"signature_def"`
				} `json:"signature_def"`
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Errorf("%s: %v: %s", path, err, body)
		}
		def := got.Metadata.Map.Defs[tfserving.DefaultSignature]
		if got.Spec.Name != ranker || got.Spec.Version != "1" || def.Inputs["user"].Dtype != "DT_INT64" || def.Inputs["movie"].Name != "movie:0" ||
			def.Outputs["score"].Dtype != "DT_FLOAT" || def.Method != "tensorflow/serving/predict" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// scanWhole pages through both shards and finds every row once.
func scanWhole(t *testing.T, c *cluster) {
	pool := rowwire.NewPool(nil)
	defer pool.Close()
	got := map[int64][]float32{}
	for k := range 2 {
		client, err := pool.Get(testContext(t), c.ps[k][0].RowsAddr())
		if err != nil {
			t.Fatal(err)
		}
		after := int64(-1 << 63)
		for {
			res, err := client.Scan(testContext(t), &rowwire.ScanRequest{Model: ranker, Shard: uint32(k), Table: "user", After: after, Limit: 3})
			if err != nil {
				t.Fatal(err)
			}
			for i, id := range res.IDs {
				if got[id] != nil {
					t.Fatalf("id %d came twice", id)
				}
				got[id] = res.Values[i*dim : (i+1)*dim]
				after = id
			}
			if !res.More {
				break
			}
		}
		for name, r := range map[string]*rowwire.LookupRequest{
			"other model": {Model: "other", Shard: uint32(k)},
			"other shard": {Model: ranker, Shard: uint32(1 - k)},
			"other table": {Model: ranker, Shard: uint32(k), Tables: []rowwire.TableIDs{{Table: "x", IDs: []int64{2}}}},
			"other's id":  {Model: ranker, Shard: uint32(k), Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{modelspec.FID(1, int64(1-k))}}}},
		} {
			if _, err := client.Lookup(testContext(t), r); rowwire.CodeOf(err) != rowwire.NotFound && rowwire.CodeOf(err) != rowwire.Invalid {
				t.Errorf("%s: %v; want a refusal", name, err)
			}
		}
	}
	if len(got) != len(c.w.rows["user"]) {
		t.Fatalf("scanned %d rows, want %d", len(got), len(c.w.rows["user"]))
	}
	for id, values := range got {
		if !slices.Equal(values, c.w.rows["user"][id]) {
			t.Errorf("row %d: %v, want %v", id, values, c.w.rows["user"][id])
		}
	}
}

// shardRows waits for deltas of shard 1, on both of its replicas.
type shardRows struct {
	c     *cluster
	waits [2]func(uint64)
}

func rowsOfShard1(c *cluster) shardRows {
	r := shardRows{c: c}
	for k := range r.waits {
		r.waits[k] = c.w.applied(c.ps[1][k].name, "ps_1")
	}
	return r
}

// served waits for a sequence, and holds the answers against the world.
func (r shardRows) served(t *testing.T, seq uint64) {
	t.Helper()
	for _, wait := range r.waits {
		wait(seq)
	}
	if err := r.c.entry.check(someUsers, someMovies); err != nil {
		t.Fatal(err)
	}
}

// denseSwapsIn publishes half a delta, which must not show, and then the rest.
func denseSwapsIn(t *testing.T, c *cluster, waitEntry func(uint64)) {
	w := c.w
	last := modelspec.Variables(w.spec)
	bias, kernel := last[len(last)-1], last[len(last)-2]
	half := make([]float32, kernel.Size)
	for i := range half {
		half[i] = 0.5
	}
	d := &delta.Delta{Job: job, Shard: 0, Shards: 2, Epoch: 3, Chunks: 2,
		Dense: []*delta.Variable{{Name: kernel.Name, Shape: kernel.Shape, Values: floats(half)}}}
	w.publish(d)
	// A whole delta of the other shard behind it: once that is served, the half one
	// has been read, and must not show.
	other := last[0]
	w.mu.Lock()
	w.dense[other.Name] = slices.Repeat([]float32{0.125}, other.Size)
	w.mu.Unlock()
	waitEntry(w.publish(&delta.Delta{Job: job, Shard: 1, Shards: 2, Epoch: 3, Chunks: 1,
		Dense: []*delta.Variable{{Name: other.Name, Shape: other.Shape, Values: floats(w.dense[other.Name])}}}))
	if err := c.entry.check(someUsers, someMovies); err != nil {
		t.Fatalf("half a delta shows: %v", err)
	}
	w.mu.Lock()
	w.dense[kernel.Name], w.dense[bias.Name] = half, []float32{0.25}
	w.mu.Unlock()
	waitEntry(w.publish(&delta.Delta{Job: job, Shard: 0, Shards: 2, Epoch: 3, Chunk: 1, Chunks: 2,
		Dense: []*delta.Variable{{Name: bias.Name, Shape: bias.Shape, Values: floats([]float32{0.25})}}}))
	if err := c.entry.check(someUsers, someMovies); err != nil {
		t.Fatal(err)
	}
}

func TestDeltasChangeTheScore(t *testing.T) {
	c := newCluster(t, job)
	w := c.w
	r := rowsOfShard1(c)
	waitEntry := w.applied("entry", "entry")
	before := w.score(7, 3)

	r.served(t, w.publish(w.learn("user", 1, 7, 3, 1, -1, 2, -2))) // user 7 is on shard 1
	if w.score(7, 3) == before {
		t.Fatal("the delta changes nothing: the test proves nothing")
	}
	for range 4 { // both replicas get their turn
		if err := c.entry.check(someUsers, someMovies); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("dense variables swap in with the last chunk", func(t *testing.T) { denseSwapsIn(t, c, waitEntry) })
	t.Run("a lower epoch is ignored", func(t *testing.T) {
		w.publish(rowDelta("user", modelspec.FID(1, 7), 2, 9, 9, 9, 9)) // a fenced writer
		r.served(t, w.publish(w.learn("user", 1, 9, 3, 1, 1, 1, 1)))
	})

	t.Run("a row in fp16", func(t *testing.T) {
		d := w.learn("user", 1, 7, 3, 1, 0.5, -2, 0)
		d.Rows[0].Encoding = delta.Encoding_FP16
		d.Rows[0].Values = []byte{0x00, 0x3c, 0x00, 0x38, 0x00, 0xc0, 0x00, 0x00}
		r.served(t, w.publish(d))
	})

	t.Run("a removed row is zeros", func(t *testing.T) {
		fid := modelspec.FID(1, 7)
		w.mu.Lock()
		delete(w.rows["user"], fid)
		w.mu.Unlock()
		r.served(t, w.publish(&delta.Delta{Job: job, Shard: 1, Shards: 2, Epoch: 3, Chunks: 1,
			Rows: []*delta.Rows{{Table: "user", Dim: dim, Removed: []uint64{uint64(fid)}}}}))
	})

	t.Run("what is broken is skipped", func(t *testing.T) {
		bad := rowDelta("user", modelspec.FID(1, 1), 3, 1, 2, 3, 4)
		bad.Rows[0].Values = bad.Rows[0].Values[:7]
		w.publish(bad)
		w.publish(rowDelta("nobody's", modelspec.FID(1, 1), 3, 1, 2, 3, 4))
		w.publish(rowDelta("user", modelspec.FID(1, 1), 3, 1, 2, 3)) // dim 3
		r.served(t, w.publish(w.learn("user", 1, 11, 3, 3, 3, 3, 3)))
	})
}

func TestNotFoundBeforeAndAfter(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s := w.serve("c0")
	expect := func(when string, code codes.Code) {
		t.Helper()
		if _, err := s.scores([]int64{1}, []int64{2}); status.Code(err) != code {
			t.Fatalf("%s: Predict = %v, want %v", when, err, code)
		}
	}
	state := func(name string) string {
		res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(name, 0)})
		if err != nil {
			return status.Code(err).String()
		}
		return res.GetModelVersionStatus()[0].GetState().String()
	}
	expect("before the load", codes.NotFound)
	if got := state(ranker); got != "NotFound" {
		t.Fatalf("status before the load: %s", got)
	}
	s.mustLoad(1, "entry", "ps_0", "ps_1")
	expect("no replicas registered", codes.Unavailable)
	w.register(0, 0, "c0", s.RowsAddr())
	w.register(1, 0, "c0", s.RowsAddr())
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
	if got := state(ranker); got != "AVAILABLE" {
		t.Fatalf("status while served: %s", got)
	}
	s.mustLoad(1)
	wait.Until(t, "unload", func() error {
		for _, sub := range []string{"entry", "ps_0", "ps_1"} {
			if got := state(ranker + ":" + sub); got != "END" {
				return fmt.Errorf("%s is %s", sub, got)
			}
		}
		return nil
	})
	expect("after the unload", codes.NotFound)
	s.mustLoad(1, "entry", "ps_0", "ps_1")
	if err := s.check(someUsers, someMovies); err != nil {
		t.Fatalf("loaded once more: %v", err)
	}
}

func TestFailover(t *testing.T) {
	c := newCluster(t, "")
	if err := c.ps[1][0].stop(); err != nil {
		t.Fatal(err)
	}
	// The registry has not noticed yet: the view still names the dead replica.
	for range 20 {
		if err := c.entry.check(someUsers, someMovies); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ps[1][1].stop(); err != nil {
		t.Fatal(err)
	}
	_, err := c.entry.scores([]int64{1}, []int64{1})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "ps_1") {
		t.Fatalf("with no replica left: %v, want Unavailable naming ps_1", err)
	}
	if err := c.entry.check([]int64{0}, []int64{0}); err != nil {
		t.Fatalf("ids of the shard that lives: %v", err)
	}
	// It comes back elsewhere, and the fact says where.
	s := c.w.serve("ps-1-0b")
	s.mustLoad(1, "ps_1")
	c.w.register(1, 0, s.name, s.RowsAddr())
	wait.Until(t, "back", func() error { return c.entry.check(someUsers, someMovies) })
}

func TestServedByAnotherNumberOfShards(t *testing.T) {
	for _, tc := range []struct{ exported, served int }{{3, 2}, {1, 2}, {4, 2}, {2, 3}} {
		t.Run(fmt.Sprintf("%d as %d", tc.exported, tc.served), func(t *testing.T) {
			w := newWorld(t)
			w.export(1, tc.exported, 0)
			w.plan(1, uint32(tc.served), job)
			s := w.serve("c0")
			subs := []string{"entry"}
			for k := range tc.served {
				subs = append(subs, fmt.Sprintf("ps_%d", k))
				w.register(int32(k), 0, "c0", s.RowsAddr())
			}
			s.mustLoad(1, subs...)
			wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
			sub := fmt.Sprintf("ps_%d", modelspec.ShardOf(modelspec.FID(1, 7), tc.served))
			applied := w.applied("c0", sub)
			d := w.learn("user", 1, 7, 3, 1, -1, 2, -2)
			d.Shard, d.Shards = uint32(modelspec.ShardOf(modelspec.FID(1, 7), tc.exported)), uint32(tc.exported)
			applied(w.publish(d))
			if err := s.check(someUsers, someMovies); err != nil {
				t.Fatal(err)
			}
			// Each row lies on its own shard, and nowhere else.
			c, err := w.client(s)
			if err != nil {
				t.Fatal(err)
			}
			rows := 0
			for k := range tc.served {
				res, err := c.Scan(testContext(t), &rowwire.ScanRequest{Model: ranker, Shard: uint32(k), Table: "user", After: math.MinInt64})
				if err != nil {
					t.Fatal(err)
				}
				rows += len(res.IDs)
				for _, id := range res.IDs {
					if modelspec.ShardOf(id, tc.served) != k {
						t.Errorf("shard %d of %d holds row %d", k, tc.served, id)
					}
				}
			}
			if rows != len(w.rows["user"]) {
				t.Errorf("%d rows on all shards, want %d", rows, len(w.rows["user"]))
			}
		})
	}
}

func TestOnlyTheLatestWithoutAVersion(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	s := w.serve("c0", func(c *modelserver.Config) { c.BaseDir = w.dir })
	w.register(0, 0, "c0", s.RowsAddr())
	_, err := s.models.HandleReloadConfigRequest(testContext(t), &apis.ReloadConfigRequest{Config: tfserving.Config(
		tfserving.Model{Name: ranker + ":entry", BasePath: "entry"}, tfserving.Model{Name: ranker + ":ps_0", BasePath: "ps_0"})})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "version 1", func() error { return s.check(someUsers, someMovies) })
	w.mu.Lock()
	w.rows["user"][modelspec.FID(1, 7)] = []float32{4, 3, 2, 1}
	w.mu.Unlock()
	w.export(2, 1, 0)
	wait.Until(t, "version 2 replaces version 1", func() error {
		if err := s.check(someUsers, someMovies); err != nil {
			return err
		}
		res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker, 0)})
		if err != nil {
			return err
		}
		var got []string
		for _, v := range res.GetModelVersionStatus() {
			got = append(got, fmt.Sprintf("%d %v", v.GetVersion(), v.GetState()))
		}
		if want := []string{"2 AVAILABLE", "1 END"}; !slices.Equal(got, want) {
			return fmt.Errorf("versions %v, want %v", got, want)
		}
		return nil
	})
}
