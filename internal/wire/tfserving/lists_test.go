package tfserving_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

var lists = []tfserving.Input{
	{Name: "ids", Dtype: types_go_proto.DataType_DT_INT64, List: true, Optional: true},
	{Name: "word", Dtype: types_go_proto.DataType_DT_STRING, List: true},
	{Name: "vec", Dtype: types_go_proto.DataType_DT_FLOAT, Dim: 2, Optional: true},
	{Name: "examples", Dtype: types_go_proto.DataType_DT_STRING, Instead: true},
}

func words(shape []int64, values ...string) *tfserving.TensorProto {
	t := tfserving.NewInt64(nil, shape...)
	t.Dtype = types_go_proto.DataType_DT_STRING
	for _, v := range values {
		t.StringVal = append(t.StringVal, []byte(v))
	}
	return t
}

func TestDecodeLists(t *testing.T) {
	for body, want := range map[string]map[string]*tfserving.TensorProto{
		`{"instances":[{"ids":[1,2],"word":"a","vec":[1,2]},{"ids":[3,4],"word":{"b64":"Yg=="},"vec":[3,4]}]}`: {
			"ids": tfserving.NewInt64([]int64{1, 2, 3, 4}, 2, 2), "word": words([]int64{2}, "a", "b"), "vec": tfserving.NewFloat([]float32{1, 2, 3, 4}, 2, 2)},
		`{"instances":[{"ids":[1,2],"word":7},{"word":["b","c"]},{"ids":5,"word":[]}]}`: {
			"ids": tfserving.NewInt64([]int64{1, 2, 5}), "ids/row_splits": tfserving.NewInt64([]int64{0, 2, 2, 3}),
			"word": words([]int64{3}, "7", "b", "c"), "word/row_splits": tfserving.NewInt64([]int64{0, 1, 3, 3})},
		`{"inputs":{"word":["a","b"],"ids":[[],[]]}}`: {
			"ids": tfserving.NewInt64(nil, 0), "ids/row_splits": tfserving.NewInt64([]int64{0, 0, 0}), "word": words([]int64{2}, "a", "b")},
		`{"instances":[{"examples":{"b64":"AAE="}},{"examples":{"b64":""}}]}`: {"examples": words([]int64{2}, "\x00\x01", "")},
	} {
		got, err := tfserving.DecodePredict(strings.NewReader(body), lists, 16)
		if err != nil || len(got.Inputs) != len(want) {
			t.Errorf("%s: %v, %v", body, got.Inputs, err)
			continue
		}
		for name := range want {
			if !proto.Equal(got.Inputs[name], want[name]) {
				t.Errorf("%s: input %s is %v, want %v", body, name, got.Inputs[name], want[name])
			}
		}
	}
	for name, body := range map[string]string{
		"no word":              `{"instances":[{"ids":1}]}`,
		"no word in columns":   `{"inputs":{"ids":[1]}}`,
		"a vec later":          `{"instances":[{"word":"a"},{"word":"a","vec":[1,2]}]}`,
		"a vec not always":     `{"instances":[{"word":"a","vec":[1,2]},{"word":"a"}]}`,
		"lists in a list":      `{"instances":[{"word":"a","ids":[[1]]}]}`,
		"a string for an id":   `{"instances":[{"word":"a","ids":"1"}]}`,
		"bytes for an id":      `{"instances":[{"word":"a","ids":{"b64":"AA=="}}]}`,
		"null":                 `{"instances":[{"word":null}]}`,
		"no base64":            `{"instances":[{"word":{"b64":"?"}}]}`,
		"base64 of a number":   `{"instances":[{"word":{"b64":1}}]}`,
		"another object":       `{"instances":[{"word":{"b":""}}]}`,
		"an empty object":      `{"instances":[{"word":{}}]}`,
		"two members":          `{"instances":[{"word":{"b64":"","b64":""}}]}`,
		"a column that is one": `{"inputs":{"word":"a"}}`,
		"too many ids":         `{"instances":[{"word":"a","ids":[0` + strings.Repeat(",0", 64*16) + `]}]}`,
		"too many rows":        `{"inputs":{"word":["a"` + strings.Repeat(`,"a"`, 16) + `]}}`,
	} {
		if got, err := tfserving.DecodePredict(strings.NewReader(body), lists, 16); err == nil {
			t.Errorf("%s: %v; want an error", name, got.Inputs)
		}
	}
}

// FuzzListsJSON wants of whatever passes tensors that are whole, and splits that fit them.
func FuzzListsJSON(f *testing.F) {
	for _, s := range []string{`{"instances":[{"ids":[1,2],"word":"a","vec":[1,2]},{"word":[]}]}`, `{"inputs":{"ids":[[],1],"word":["a",{"b64":"AA=="}],"vec":[[1,2],[3,4]]}}`, `{"instances":[{"examples":"x"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const most = 64 * 16
		p, err := tfserving.DecodePredict(bytes.NewReader(body), lists, 16)
		if err != nil {
			return
		}
		for _, in := range lists {
			x, ok := p.Inputs[in.Name]
			if !ok {
				continue
			}
			n := 0
			switch in.Dtype {
			case types_go_proto.DataType_DT_INT64:
				ids, err := tfserving.Int64s(nil, x, most)
				if n = len(ids); err != nil {
					t.Fatalf("input %s: %v", in.Name, err)
				}
			case types_go_proto.DataType_DT_STRING:
				all, err := tfserving.Strings(nil, x, most)
				if n = len(all); err != nil {
					t.Fatalf("input %s: %v", in.Name, err)
				}
			default:
				if _, err := tfserving.Floats(nil, x, most); err != nil {
					t.Fatalf("input %s: %v", in.Name, err)
				}
			}
			if s, ok := p.Inputs[in.Name+tfserving.SplitsSuffix]; ok {
				splits, err := tfserving.Int64s(nil, s, most)
				if err != nil || splits[0] != 0 || splits[len(splits)-1] != int64(n) {
					t.Fatalf("input %s: splits %v of %d values, %v", in.Name, splits, n, err)
				}
			}
		}
	})
}
