package modelserver_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// TestOracleTensorFlowClient asks with TensorFlow's own stubs and tensors, and with
// Python's HTTP client: every way of asking gives the score that the rows and the tower
// have in Go, and every refusal has TensorFlow Serving's code.
func TestOracleTensorFlowClient(t *testing.T) {
	python := oracle.Python(t)
	c := newCluster(t, job)
	users, err := json.Marshal(someUsers)
	if err != nil {
		t.Fatal(err)
	}
	movies, err := json.Marshal(someMovies)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/tf_client.py", c.entry.GRPCAddr(), c.entry.HTTPAddr(), ranker, string(users), string(movies))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v", &stdout, err)
	}

	want := make([]float32, len(someUsers))
	filled := make([]float32, len(someUsers))
	for i := range want {
		want[i], filled[i] = c.w.score(someUsers[i], someMovies[i]), c.w.score(someUsers[0], someMovies[i])
	}
	for _, key := range []string{"content", "column", "int32", "int64_val", "version"} {
		near(t, key, got[key], want)
	}
	near(t, "filled up", got["filled up"], filled)
	for key, field := range map[string]string{"rest rows": "predictions", "rest columns": "outputs", "rest version": "predictions"} {
		var answer [2]json.RawMessage // code, body
		decode(t, key, got[key], &answer)
		if string(answer[0]) != "200" {
			t.Errorf("%s: %s", key, got[key])
			continue
		}
		var body map[string]json.RawMessage
		decode(t, key, answer[1], &body)
		near(t, key, body[field], want)
		var rest, grpc []float32 // not only near: the very same
		decode(t, key, body[field], &rest)
		decode(t, key, got["content"], &grpc)
		if diff := cmp.Diff(grpc, rest); diff != "" {
			t.Errorf("%s (-gRPC +REST):\n%s", key, diff)
		}
	}
	for key, want := range map[string]string{
		"unknown model":    `["NOT_FOUND","Servable not found for request: Latest(nobody)"]`,
		"unknown version":  `["NOT_FOUND","Servable not found for request: Specific(ranker, 7)"]`,
		"floats":           `["INVALID_ARGUMENT","input \"user\": tensor is DT_FLOAT, want DT_INT64"]`,
		"status":           `[[1,"AVAILABLE",0]]`,
		"status of nobody": `["NOT_FOUND","Could not find any versions of model nobody"]`,
		"inputs":           `{"movie":"int64","user":"int64"}`,
		"outputs":          `{"score":"float32"}`,
		"rest status":      `[200,{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}]`,
		"rest nobody":      `404`,
		"reload":           `0`,
		"after reload":     `["NOT_FOUND","Servable not found for request: Latest(ranker)"]`,
	} {
		var a, b any
		decode(t, key, got[key], &a)
		decode(t, key, []byte(want), &b)
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

func decode(t *testing.T, what string, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %s: %v", what, raw, err)
	}
}

func near(t *testing.T, what string, raw []byte, want []float32) {
	t.Helper()
	var got []float32
	decode(t, what, raw, &got)
	if len(got) != len(want) {
		t.Fatalf("%s: %d scores, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6 {
			t.Errorf("%s: row %d: score %v, want %v", what, i, got[i], want[i])
		}
	}
}
