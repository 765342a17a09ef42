package tfserving_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

func exampleOf(t *testing.T, text string) *example_protos_go_proto.Example {
	t.Helper()
	e := new(example_protos_go_proto.Example)
	if err := prototext.Unmarshal([]byte(text), e); err != nil {
		t.Fatal(err)
	}
	return e
}

// What JSON says becomes the tf.train.Example that says the same.
func TestDecodeExamples(t *testing.T) {
	const body = `{"context":{"c":7,"a":1},"signature_name":"s","other":[1,{}],"examples":[
		{"a":2,"floats":[1,2.5,3],"big":-9007199254740993,"text":["x",{"b64":"/w=="}],"yes":[true,false],"none":[]},{}]}`
	p, err := tfserving.DecodeExamples(strings.NewReader(body), 2)
	if err != nil || p.Signature != "s" || len(p.Examples) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	merged, err := tfserving.WithContext(p.Context, p.Examples)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`features{feature{key:"c" value{int64_list{value:7}}} feature{key:"a" value{int64_list{value:2}}}
		 feature{key:"floats" value{float_list{value:[1,2.5,3]}}} feature{key:"big" value{int64_list{value:-9007199254740993}}}
		 feature{key:"text" value{bytes_list{value:["x","\xff"]}}} feature{key:"yes" value{int64_list{value:[1,0]}}} feature{key:"none" value{}}}`,
		`features{feature{key:"c" value{int64_list{value:7}}} feature{key:"a" value{int64_list{value:1}}}}`,
	} {
		got := new(example_protos_go_proto.Example)
		if err := proto.Unmarshal(merged[i], got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(exampleOf(t, want), got, protocmp.Transform()); diff != "" {
			t.Errorf("example %d (-want +got):\n%s", i, diff)
		}
	}
}

// The context is in each example, which is bounded.
func TestContextIsBounded(t *testing.T) {
	context := make([]byte, 1<<20)
	if _, err := tfserving.WithContext(context, make([][]byte, 64)); err != nil {
		t.Error(err)
	}
	if _, err := tfserving.WithContext(context, append(make([][]byte, 63), make([]byte, 1<<20+1))); err == nil || !strings.Contains(err.Error(), "send a smaller batch") {
		t.Errorf("a byte more: %v", err)
	}
}

func FuzzDecodeExamples(f *testing.F) {
	f.Add(`{"examples":[{"a":1,"b":[1.5,"x"]},{"c":{"b64":"eA=="}}],"context":{"d":true}}`)
	f.Fuzz(func(t *testing.T, body string) {
		p, err := tfserving.DecodeExamples(strings.NewReader(body), 4)
		if err != nil {
			return
		}
		for _, e := range append(p.Examples, p.Context) {
			if err := proto.Unmarshal(e, new(example_protos_go_proto.Example)); err != nil {
				t.Errorf("%q: %v", body, err)
			}
		}
	})
}

func TestEncodeResult(t *testing.T) {
	nan := float32(0)
	nan /= nan
	classes := func(p float32) *apis.InferenceResult {
		return &apis.InferenceResult{Result: &apis.InferenceResult_ClassificationResult{ClassificationResult: &apis.ClassificationResult{Classifications: []*apis.Classifications{
			{Classes: []*apis.Class{{Label: "0", Score: 0.75}, {Label: `"`, Score: p}}}, {Classes: []*apis.Class{{Label: "1", Score: 1}}}}}}}
	}
	numbers := func(v float32) *apis.InferenceResult {
		return &apis.InferenceResult{Result: &apis.InferenceResult_RegressionResult{RegressionResult: &apis.RegressionResult{Regressions: []*apis.Regression{{Value: 2}, {Value: v}}}}}
	}
	for want, r := range map[string]*apis.InferenceResult{
		"{\n    \"results\": [[[\"0\", 0.75\n            ], [\"\\\"\", 0.25\n            ]\n        ], [[\"1\", 1.0\n            ]\n        ]\n    ]\n}": classes(0.25),
		"{\n    \"results\": [2.0, -0.5\n    ]\n}": numbers(-0.5),
	} {
		if got, err := tfserving.EncodeResult(r); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	for _, r := range []*apis.InferenceResult{classes(nan), numbers(nan)} {
		if b, err := tfserving.EncodeResult(r); err == nil {
			t.Errorf("a number that is none is written as %s", b)
		}
	}
}
