package openinference

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

func TestParsePath(t *testing.T) {
	for path, want := range map[string]Path{
		"/v2":                                  {},
		"/v2/":                                 {},
		"/v2/health/live":                      {Verb: "live"},
		"/v2/health/ready":                     {Verb: "ready"},
		"/v2/models/a":                         {Model: "a"},
		"/v2/models/a%2Fb/infer":               {Model: "a/b", Verb: "infer"},
		"/v2/models/a/ready":                   {Model: "a", Verb: "ready"},
		"/v2/models/a/versions/7":              {Model: "a", Version: 7},
		"/v2/models/a/versions/7/ready":        {Model: "a", Version: 7, Verb: "ready"},
		"/v2/models/a/versions/7/infer":        {Model: "a", Version: 7, Verb: "infer"},
		"/v2/models/versions/versions/1/infer": {Model: "versions", Version: 1, Verb: "infer"},
	} {
		if p, ok := ParsePath(path); !ok || p != want {
			t.Errorf("%s: %+v, %v", path, p, ok)
		}
	}
	for _, path := range []string{"", "/", "/v1", "/v1/models/a", "v2", "/v2x", "/v2/models", "/v2/models/", "/v2/health", "/v2/health/dead", "/v2/models/a/predict",
		"/v2/models/a/versions/x", "/v2/models/a/versions/0", "/v2/models/a/infer/b", "/v2/models/%zz", "/v2/repository/index"} {
		if p, ok := ParsePath(path); ok {
			t.Errorf("%s is %+v", path, p)
		}
	}
}

// body is JSON with bytes behind it, and the header that says where they begin.
func body(text string, raw ...[]byte) ([]byte, string) {
	all := append([]byte(text), bytes.Join(raw, nil)...)
	if len(raw) == 0 {
		return all, ""
	}
	return all, fmt.Sprint(len(text))
}

// Each datatype is read from JSON and from bytes alike.
func TestTensors(t *testing.T) {
	words := append(binary.LittleEndian.AppendUint32(nil, 2), "ab"...)
	words = append(binary.LittleEndian.AppendUint32(words, 0), ""...)
	text := tfserving.NewInt64(nil, 2)
	text.Dtype, text.StringVal = types_go_proto.DataType_DT_STRING, [][]byte{[]byte("ab"), {}}
	for _, tc := range []struct {
		datatype, shape, data string
		raw                   []byte
		want                  *tfserving.TensorProto
	}{
		{"INT64", "[2]", "[-1,9007199254740993]", binary.LittleEndian.AppendUint64(bytes.Repeat([]byte{255}, 8), 9007199254740993), tfserving.NewInt64([]int64{-1, 9007199254740993}, 2)},
		{"INT32", "[2]", "[-2,7]", []byte{254, 255, 255, 255, 7, 0, 0, 0}, tfserving.NewInt64([]int64{-2, 7}, 2)},
		{"INT16", "[1,2]", "[[-2,7]]", []byte{254, 255, 7, 0}, tfserving.NewInt64([]int64{-2, 7}, 1, 2)},
		{"INT8", "[2,1]", "[[-2],[7]]", []byte{254, 7}, tfserving.NewInt64([]int64{-2, 7}, 2, 1)},
		{"UINT8", "[2]", "[254,7]", []byte{254, 7}, tfserving.NewInt64([]int64{254, 7}, 2)},
		{"UINT64", "[1]", "[7]", []byte{7, 0, 0, 0, 0, 0, 0, 0}, tfserving.NewInt64([]int64{7}, 1)},
		{"FP32", "[2]", "[0.5,-1e3]", binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(.5)), math.Float32bits(-1000)), tfserving.NewFloat([]float32{.5, -1000}, 2)},
		{"FP64", "[1]", "[0.25]", binary.LittleEndian.AppendUint64(nil, math.Float64bits(.25)), tfserving.NewFloat([]float32{.25}, 1)},
		{"BYTES", "[2]", `["ab",""]`, words, text},
	} {
		for _, how := range []string{"JSON", "bytes"} {
			data, raw := `"data":`+tc.data, [][]byte(nil)
			if how == "bytes" {
				data, raw = fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, len(tc.raw)), [][]byte{tc.raw}
			}
			b, header := body(fmt.Sprintf(`{"inputs":[{"name":"x","datatype":%q,"shape":%s,%s}]}`, tc.datatype, tc.shape, data), raw...)
			r, err := Decode(bytes.NewReader(b), header)
			if err != nil {
				t.Errorf("%s as %s: %v", tc.datatype, how, err)
				continue
			}
			if diff := cmp.Diff(tc.want, r.Inputs["x"], protocmp.Transform()); diff != "" {
				t.Errorf("%s as %s (-want +got):\n%s", tc.datatype, how, diff)
			}
		}
	}
}

func TestWrongRequests(t *testing.T) {
	input := func(rest string) string { return `{"inputs":[{"name":"x",` + rest + `}]}` }
	const behind = "the bytes stand behind the JSON"
	for _, tc := range []struct{ says, text, header string }{
		{"no JSON of the open inference protocol", "hello", ""},
		{"no JSON of the open inference protocol", `{"inputs":[]} and more`, ""},
		{"send how many of them are JSON", "{}", "3"},
		{"send how many of them are JSON", "{}", "-1"},
		{"send how many of them are JSON", "{}", "x"},
		{"stand behind those of the inputs", "{}abc", "2"},
		{"is there twice", `{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[1]},{"name":"x","datatype":"INT64","shape":[1],"data":[1]}]}`, ""},
		{"datatype \"BOOL\" is not taken", input(`"datatype":"BOOL","shape":[1],"data":[true]`), ""},
		{"send the real sizes", input(`"datatype":"INT64","shape":[-1],"data":[1]`), ""},
		{"send the real sizes", input(`"datatype":"INT64","shape":[4000000000000000000,4],"data":[1]`), ""},
		{"has 1 elements, its shape [2] holds 2", input(`"datatype":"INT64","shape":[2],"data":[1]`), ""},
		{"nested deeper", input(`"datatype":"INT64","shape":[1],"data":[[1]]`), ""},
		{"no data", input(`"datatype":"INT64","shape":[1]`), ""},
		{"no list", input(`"datatype":"INT64","shape":[1],"data":1`), ""},
		{"no id", input(`"datatype":"INT64","shape":[1],"data":[1.5]`), ""},
		{"no id", input(`"datatype":"UINT64","shape":[1],"data":[18446744073709551615]`), ""},
		{"is no INT64", input(`"datatype":"INT64","shape":[1],"data":["1"]`), ""},
		{"is no BYTES", input(`"datatype":"BYTES","shape":[1],"data":[1]`), ""},
		{"is no FP32", input(`"datatype":"FP32","shape":[1],"data":[null]`), ""},
		{"no 32 bit number", input(`"datatype":"FP32","shape":[1],"data":[1e99]`), ""},
		{"bytes are left behind the JSON", input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}`), ""},
		{"no whole elements", input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":3}`) + "abc", behind},
		{"end within a text", input(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":3}`) + "abc", behind},
		{"no id: send whole numbers below", input(`"datatype":"UINT64","shape":[1],"parameters":{"binary_data_size":8}`) + "\xff\xff\xff\xff\xff\xff\xff\xff", behind},
	} {
		if tc.header == behind {
			tc.header = fmt.Sprint(strings.LastIndexByte(tc.text, '}') + 1)
		}
		_, err := Decode(strings.NewReader(tc.text), tc.header)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.text, err, tc.says)
		}
	}
}

// Which outputs are wanted, and which of them as bytes.
func TestOutputs(t *testing.T) {
	for text, want := range map[string][2]bool{
		`{}`: {false, false},
		`{"parameters":{"binary_data_output":true}}`:                                                                          {true, true},
		`{"outputs":[{"name":"a"},{"name":"b","parameters":{"binary_data":true}}]}`:                                           {false, true},
		`{"parameters":{"binary_data_output":true},"outputs":[{"name":"a","parameters":{"binary_data":false}},{"name":"b"}]}`: {false, true},
	} {
		r, err := Decode(strings.NewReader(text), "")
		if err != nil || r.Binary("a") != want[0] || r.Binary("b") != want[1] {
			t.Errorf("%s: %v, %v, %v", text, r.Binary("a"), r.Binary("b"), err)
		}
		if strings.Contains(text, `"outputs"`) != slices.Equal(r.Outputs, []string{"a", "b"}) {
			t.Errorf("%s: %v", text, r.Outputs)
		}
	}
}

func TestAnswers(t *testing.T) {
	b, n, err := EncodeAnswer(Answer{"m", 3, "q", []Output{{"a", []float32{.5, 1e-9}, false}, {"b", []float32{2}, true}}})
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"model_name":"m","model_version":"3","id":"q","outputs":[{"name":"a","datatype":"FP32","shape":[2],"data":[0.5,1e-09]},{"name":"b","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}`
	if string(b[:n]) != text || !bytes.Equal(b[n:], []byte{0, 0, 0, 64}) {
		t.Errorf("%s and %x", b[:n], b[n:])
	}
	if _, _, err := EncodeAnswer(Answer{"m", 3, "", []Output{{"a", []float32{float32(math.NaN())}, false}}}); err == nil {
		t.Error("NaN is JSON")
	}
	model := NewModel("m", []string{"3"}, []tfserving.Input{{Name: "u", Dtype: types_go_proto.DataType_DT_INT64}, {Name: "l", Dtype: types_go_proto.DataType_DT_STRING, List: true}, {Name: "f", Dtype: types_go_proto.DataType_DT_FLOAT, Dim: 2}}, []string{"score"}).Encode()
	const says = `{"name":"m","versions":["3"],"platform":"monolith","inputs":[{"name":"u","datatype":"INT64","shape":[-1]},{"name":"l","datatype":"BYTES","shape":[-1,-1]},{"name":"f","datatype":"FP32","shape":[-1,2]}],"outputs":[{"name":"score","datatype":"FP32","shape":[-1]}]}`
	if string(model) != says {
		t.Errorf("%s", model)
	}
	if !json.Valid(NewServer("v1").Encode()) || string(EncodeError(`a "b"`)) != `{"error":"a \"b\""}` {
		t.Errorf("%s %s", NewServer("v1").Encode(), EncodeError(`a "b"`))
	}
}

// Nothing that is sent ends the server, and what is taken has as many elements as its shape says.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"1","inputs":[{"name":"x","datatype":"INT64","shape":[2],"data":[1,2]}],"outputs":[{"name":"y"}]}`), "")
	f.Add([]byte(`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}}]}`+"\x01\x00\x00\x00a"), "84")
	f.Add([]byte(`{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[[0.5]]}]}`), "")
	f.Fuzz(func(t *testing.T, data []byte, header string) {
		r, err := Decode(bytes.NewReader(data), header)
		if err != nil {
			return
		}
		for name, in := range r.Inputs {
			n := int64(1)
			for _, d := range in.GetTensorShape().GetDim() {
				n *= d.GetSize()
			}
			if got := len(in.GetInt64Val()) + len(in.GetFloatVal()) + len(in.GetStringVal()); int64(got) != n {
				t.Errorf("%s has %d elements, its shape %d", name, got, n)
			}
		}
	})
}
