package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/openinference"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/openloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a TensorFlow Serving whose model has one user and many items.
type server struct {
	tfserving.UnimplementedPrediction
	calls, odd atomic.Int64
}

func (s *server) GetModelMetadata(_ context.Context, in *apis.GetModelMetadataRequest) (*apis.GetModelMetadataResponse, error) {
	if in.GetModelSpec().GetName() != "m" {
		return nil, status.Error(codes.NotFound, "no such model")
	}
	input := &for_core_protos_go_proto.TensorInfo{Dtype: types_go_proto.DataType_DT_INT64,
		TensorShape: &tensor_shape_go_proto.TensorShapeProto{Dim: []*tensor_shape_go_proto.TensorShapeProto_Dim{{Size: -1}}}}
	body, err := anypb.New(&apis.SignatureDefMap{SignatureDef: map[string]*for_core_protos_go_proto.SignatureDef{
		"serving_default": {Inputs: map[string]*for_core_protos_go_proto.TensorInfo{"user": input, "item": input}}}})
	return &apis.GetModelMetadataResponse{Metadata: map[string]*anypb.Any{"signature_def": body}}, err
}

func (s *server) Predict(_ context.Context, in *apis.PredictRequest) (*apis.PredictResponse, error) {
	users, items := in.GetInputs()["user"].GetInt64Val(), in.GetInputs()["item"].GetInt64Val()
	different := false
	for i := range users {
		if users[i] != users[0] {
			s.odd.Add(1)
		}
		different = different || items[i] != items[0]
	}
	if len(users) != 20 || len(items) != 20 || !different {
		s.odd.Add(1)
	}
	if s.calls.Add(1)%10 == 0 {
		return nil, status.Error(codes.ResourceExhausted, "busy")
	}
	return &apis.PredictResponse{}, nil
}

func (s *server) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tfserving.RegisterPrediction(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().String()
}

func run(args ...string) (stdout string, err error) {
	var out, errs bytes.Buffer
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(context.Background())
	return out.String(), err
}

// A run tells what the server saw, leaves a log and a page, and two logs are compared.
func TestRunAndCompare(t *testing.T) {
	s := &server{}
	dir := t.TempDir()
	scenario := filepath.Join(dir, "mine.yaml")
	if err := os.WriteFile(scenario, []byte("model: m\nbatch: 20\nshared: [user]\nduration: 1s\nrate: 1\narrivals: even\ntimeout: 2m\nmax_in_flight: 65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := s.listen(t)
	log, page := filepath.Join(dir, "a.hlog"), filepath.Join(dir, "a.html")
	out, err := run("run", scenario, "--target", at, "--rate", "200", "--json", "--log", log, "--html", page)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var res openloop.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if res.Calls != s.calls.Load() || res.Answered != res.Calls-res.Calls/10 || res.Errors["ResourceExhausted"] != res.Calls/10 || s.odd.Load() != 0 {
		t.Errorf("the server saw %d calls, %d of them odd; the run %d, %d answered, errors %v", s.calls.Load(), s.odd.Load(), res.Calls, res.Answered, res.Errors)
	}
	if !(res.P50 > 0 && res.P50 <= res.P99 && res.P99 <= res.Max) || res.Valid == (res.Why != "") {
		t.Errorf("%+v", res)
	}
	if raw, err := os.ReadFile(page); err != nil || !strings.Contains(string(raw), "Latency by percentile") || strings.Contains(string(raw), "Events by type") {
		t.Errorf("the page: %v, %d bytes", err, len(raw))
	}
	h, err := openloop.ReadLogs([]string{log})
	if err != nil || h.TotalCount() != res.Answered {
		t.Errorf("the log has %v of %d calls, %v", h, res.Answered, err)
	}
	if _, err := run("run", scenario, "--target", at, "--rate", "50", "--fail", "max<1us"); err == nil || errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), "max<1us is missed") {
		t.Errorf("a missed goal: %v", err)
	}
	out, err = run("compare", log, log+","+log, "--json")
	var c struct {
		Percentiles []Line `json:"percentiles"`
	}
	if err != nil || json.Unmarshal([]byte(out), &c) != nil || len(c.Percentiles) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, l := range c.Percentiles { // the same calls, twice
		if l.A.Ms != l.B.Ms || l.Ratio != 1 || l.Differ || l.A.Low > l.A.Ms || l.A.High < l.A.Ms || l.B.High-l.B.Low > l.A.High-l.A.Low {
			t.Errorf("%+v", l)
		}
	}
}

func TestIntervals(t *testing.T) {
	of := func(scale int) openloop.Result {
		h := openloop.NewHistogram()
		for i := range 10_000 {
			openloop.Count(h, time.Duration((i+1)*scale)*time.Microsecond)
		}
		return openloop.Of(h)
	}
	got := interval(of(1), 50) // 5000 calls, and 98 more or fewer
	if got.Ms < 4.99 || got.Ms > 5.01 || got.Low < 4.89 || got.Low > 4.92 || got.High < 5.08 || got.High > 5.11 {
		t.Errorf("%+v", got)
	}
	for _, l := range lines(of(1), of(2)) {
		if !l.Differ || l.Ratio < 1.98 || l.Ratio > 2.02 {
			t.Errorf("%+v", l)
		}
	}
	if n := len(lines(of(1), of(1))); n != 6 {
		t.Errorf("%d percentiles of 10000 calls", n)
	}
}

// The search ends next to the rate at which the server fails, wherever it begins.
func TestSearch(t *testing.T) {
	for _, from := range []float64{1, 100, 900, 50_000} {
		tried := 0
		steps, best, err := search(from, func(rate float64) (Step, error) {
			tried++
			return Step{Rate: rate, OK: rate <= 1000}, nil
		})
		if err != nil || best > 1000 || best < 1000/closeness || tried != len(steps) || tried > 30 {
			t.Errorf("from %v: %v after %d steps, %v", from, best, tried, err)
		}
	}
	if _, best, _ := search(100, func(rate float64) (Step, error) { return Step{Rate: rate}, nil }); best != 0 {
		t.Errorf("a server that never holds bears %v", best)
	}
	if _, _, err := search(100, func(float64) (Step, error) { return Step{}, errors.New("gone") }); err == nil {
		t.Error("an error is lost")
	}
}

func TestJudged(t *testing.T) {
	goals, err := openloop.ParseGoals("p99<10ms")
	if err != nil {
		t.Fatal(err)
	}
	h := openloop.NewHistogram()
	for range 100 {
		openloop.Count(h, 5*time.Millisecond)
	}
	good := openloop.Of(h)
	good.Offered, good.Achieved = 100, 99
	for want, spoil := range map[string]func(*openloop.Result){
		"":                       func(*openloop.Result) {},
		"1 of 101 calls failed":  func(r *openloop.Result) { r.Calls++ },
		"90 of 100":              func(r *openloop.Result) { r.Achieved = 90 },
		"the run proves nothing": func(r *openloop.Result) { r.Valid = false },
	} {
		r := good
		spoil(&r)
		if s := judged(100, goals, r); s.OK != (want == "") || !strings.Contains(s.Why, want) {
			t.Errorf("%+v, want %q", s, want)
		}
	}
}

func TestUsage(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for args, want := range map[string]string{
		"run":                                     "name one scenario (delta-storm, fan-out, killed-replica, overload, predict, skewed, slow-replica, version-swap)",
		"run nowhere.yaml":                        "neither a scenario",
		"run predict --arrivals x":                "neither poisson nor even",
		"run predict --rate -1":                   "must be positive",
		"run predict --batch 0":                   "batch is 0",
		"run predict --fail p99":                  "is no goal",
		"capacity predict":                        "give a goal",
		"capacity predict --slo x":                "is no goal",
		"compare a":                               "two logs",
		"run " + file("max_id: -1"):               "max_id is -1",
		"run predict --fail p99<2ms --duration=0": "must be positive",
		"run predict --protocol thrift":           "none of tensorflow, kserve, kserve-rest",
		"run predict --shards 0":                  "0 shards of 2 replicas",
		"run slow-replica --replicas 1":           "and 2 or more",
		"run " + file("event: flood"):             "one of deltas, kill, slow, swap",
		"run " + file("skew: 1"):                  "want an exponent above 1",
		"run killed-replica --target 127.0.0.1:1": "leave --target out",
	} {
		if _, err := run(strings.Fields(args)...); !errors.Is(err, flags.ErrUsage) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := run("run", file("rates: 1")); err == nil || !strings.Contains(err.Error(), "rates") {
		t.Errorf("an unknown field: %v", err)
	}
	s := &server{}
	if _, err := run("run", "predict", "--target", s.listen(t), "--model", "x"); err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("a model that is not there: %v", err)
	}
}

// inference is a server of the open inference protocol over HTTP whose model has one input, and which refuses
// every tenth request.
func inference(t *testing.T) (addr string, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/models/m", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}]}`)
	})
	mux.HandleFunc("POST /v2/models/m/infer", func(w http.ResponseWriter, r *http.Request) {
		q, err := openinference.Decode(r.Body, "")
		switch {
		case err != nil || len(q.Inputs["x"].GetFloatVal()) != 14:
			http.Error(w, fmt.Sprint(err, q.Inputs), http.StatusBadRequest)
		case calls.Add(1)%10 == 0:
			http.Error(w, "busy", http.StatusTooManyRequests)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), calls
}

// A server of the open inference protocol is asked by its own metadata, and its refusals count by their codes.
func TestOpenInferenceOverHTTP(t *testing.T) {
	at, calls := inference(t)
	out, err := run("run", "predict", "--target", at, "--protocol", "kserve-rest", "--model", "m", "--batch", "7", "--rate", "100", "--duration", "1s", "--timeout", "2m", "--arrivals", "even", "--json")
	var m Measured
	if err != nil || json.Unmarshal([]byte(out), &m) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := calls.Load(); m.Calls != n || m.Errors["ResourceExhausted"] != n/10 || m.Answered != n-n/10 {
		t.Errorf("the server saw %d calls; the run %d, %d answered, errors %v", n, m.Calls, m.Answered, m.Errors)
	}
	if _, err := run("run", "predict", "--target", at, "--protocol", "kserve-rest", "--model", "x"); !strings.Contains(fmt.Sprint(err), "code = NotFound") {
		t.Errorf("a model that is not there: %v", err)
	}
}

// A rate that is a multiple of the capacity follows from what was answered at most.
func TestOverload(t *testing.T) {
	at, _ := inference(t)
	scenario := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(scenario, []byte("model: m\nprotocol: kserve-rest\nof_capacity: 0.1\nbatch: 7\nduration: 1s\narrivals: even\ntimeout: 2m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run("run", scenario, "--target", at, "--json")
	var m Measured
	if err != nil || json.Unmarshal([]byte(out), &m) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The n-th call is due n/rate behind the start, the first at it: in a second as many as the rate is, rounded up.
	if most := math.Ceil(float64(m.Capacity) / 10); m.Capacity < 1 || float64(m.Calls) > most || m.Calls < 1 {
		t.Errorf("%v answered at most; %d calls in a second at a tenth of that", m.Capacity, m.Calls)
	}
}
