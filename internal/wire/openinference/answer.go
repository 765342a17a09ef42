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

// Answer is what a model says to a request.
type Answer struct {
	Model   string
	Version int64
	ID      string // of the request
	Outputs []Output
}

// EncodeAnswer is the body of an answer, and how many of its bytes are JSON: all of them where no
// output is binary.
func EncodeAnswer(a Answer) (body []byte, header int, err error) {
	said := struct {
		Model   string       `json:"model_name"`
		Version string       `json:"model_version"`
		ID      string       `json:"id,omitempty"`
		Outputs []outputJSON `json:"outputs"`
	}{a.Model, strconv.FormatInt(a.Version, 10), a.ID, []outputJSON{}}
	var tail []byte
	for _, o := range a.Outputs {
		out := outputJSON{Name: o.Name, Datatype: number, Shape: []int{len(o.Values)}}
		if o.Binary {
			out.Parameters = &map[string]int{"binary_data_size": 4 * len(o.Values)}
			tail = appendBytes(tail, o.Values)
		} else {
			for _, v := range o.Values {
				out.Data = append(out.Data, json.Number(strconv.FormatFloat(float64(v), 'g', -1, 32)))
			}
		}
		said.Outputs = append(said.Outputs, out)
	}
	if body, err = json.Marshal(said); err != nil {
		return nil, 0, err
	}
	return append(body, tail...), len(body), nil
}

// appendBytes writes numbers least significant byte first.
func appendBytes(b []byte, values []float32) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// EncodeError is the body of a refusal.
func EncodeError(message string) []byte {
	return encode(map[string]string{"error": message})
}

// Server is what the server says of itself.
type Server struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// Encode is the JSON of it.
func (s Server) Encode() []byte { return encode(s) }

// Tensor is an input or output of a model: -1 in its shape stands for any number.
type Tensor struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// Model is what a model says of itself.
type Model struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions"`
	Platform string   `json:"platform"`
	Inputs   []Tensor `json:"inputs"`
	Outputs  []Tensor `json:"outputs"`
}

// Encode is the JSON of it.
func (m Model) Encode() []byte { return encode(m) }

// NewServer describes this server, of a version.
func NewServer(version string) Server {
	return Server{"monolith", version, []string{"binary_tensor_data"}}
}

// NewModel describes a model whose versions answer.
func NewModel(name string, versions []string, inputs []tfserving.Input, outputs []string) Model {
	m := Model{name, versions, "monolith", []Tensor{}, []Tensor{}}
	for _, in := range inputs {
		t := Tensor{in.Name, datatypes[in.Dtype], []int64{-1}}
		switch {
		case in.List:
			t.Shape = append(t.Shape, -1)
		case in.Dim > 1:
			t.Shape = append(t.Shape, int64(in.Dim))
		}
		m.Inputs = append(m.Inputs, t)
	}
	for _, name := range outputs {
		m.Outputs = append(m.Outputs, Tensor{name, number, []int64{-1}})
	}
	return m
}

// encode writes texts and whole numbers, which always are JSON.
func encode(v any) []byte {
	body, _ := json.Marshal(v)
	return body
}

var datatypes = map[types_go_proto.DataType]string{
	types_go_proto.DataType_DT_INT64: "INT64", types_go_proto.DataType_DT_INT32: "INT32", types_go_proto.DataType_DT_BOOL: "BOOL",
	types_go_proto.DataType_DT_FLOAT: number, types_go_proto.DataType_DT_DOUBLE: double, types_go_proto.DataType_DT_STRING: texts,
}
