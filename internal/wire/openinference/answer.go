package openinference

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// Output is one tensor of an answer: a number for each row.
type Output struct {
	Name   string
	Values []float32
	Binary bool // as bytes behind the JSON
}

type outputJSON struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int           `json:"shape"`
	Parameters *map[string]int `json:"parameters,omitempty"`
	Data       []json.Number   `json:"data,omitempty"`
}

// EncodeAnswer is the body of an answer, and how many of its bytes are JSON: all of them where no
// output is binary.
func EncodeAnswer(model string, version int64, id string, outputs []Output) (body []byte, header int, err error) {
	a := struct {
		Model   string       `json:"model_name"`
		Version string       `json:"model_version"`
		ID      string       `json:"id,omitempty"`
		Outputs []outputJSON `json:"outputs"`
	}{model, strconv.FormatInt(version, 10), id, []outputJSON{}}
	var tail []byte
	for _, o := range outputs {
		out := outputJSON{Name: o.Name, Datatype: number, Shape: []int{len(o.Values)}}
		if o.Binary {
			out.Parameters = &map[string]int{"binary_data_size": 4 * len(o.Values)}
			for _, v := range o.Values {
				tail = binary.LittleEndian.AppendUint32(tail, math.Float32bits(v))
			}
		} else {
			for _, v := range o.Values {
				out.Data = append(out.Data, json.Number(strconv.FormatFloat(float64(v), 'g', -1, 32)))
			}
		}
		a.Outputs = append(a.Outputs, out)
	}
	if body, err = json.Marshal(a); err != nil {
		return nil, 0, err
	}
	return append(body, tail...), len(body), nil
}

// EncodeError is the body of a refusal.
func EncodeError(message string) []byte {
	body, _ := json.Marshal(map[string]string{"error": message}) // texts always are JSON
	return body
}

// EncodeServer is what the server says of itself.
func EncodeServer(version string) []byte {
	body, _ := json.Marshal(struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{"monolith", version, []string{"binary_tensor_data"}})
	return body
}

type tensorMetadata struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

// EncodeModel is what a model says of itself: -1 in a shape stands for any number.
func EncodeModel(name string, versions []string, inputs []tfserving.Input, outputs []string) []byte {
	m := struct {
		Name     string           `json:"name"`
		Versions []string         `json:"versions"`
		Platform string           `json:"platform"`
		Inputs   []tensorMetadata `json:"inputs"`
		Outputs  []tensorMetadata `json:"outputs"`
	}{name, versions, "monolith", []tensorMetadata{}, []tensorMetadata{}}
	for _, in := range inputs {
		t := tensorMetadata{in.Name, datatypes[in.Dtype], []int{-1}}
		switch {
		case in.List:
			t.Shape = append(t.Shape, -1)
		case in.Dim > 1:
			t.Shape = append(t.Shape, in.Dim)
		}
		m.Inputs = append(m.Inputs, t)
	}
	for _, name := range outputs {
		m.Outputs = append(m.Outputs, tensorMetadata{name, number, []int{-1}})
	}
	body, _ := json.Marshal(m)
	return body
}

var datatypes = map[types_go_proto.DataType]string{
	types_go_proto.DataType_DT_INT64: "INT64", types_go_proto.DataType_DT_FLOAT: number, types_go_proto.DataType_DT_STRING: texts,
}
