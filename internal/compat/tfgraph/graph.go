// Package tfgraph writes models as TensorFlow's graphs, in SavedModels that its own programs read.
//
//	Entry  ── an exported entry's calls of its shards ──► saved_model.pb, beside what model servers here load
//	Write  ── a model whole, in TensorFlow's stock operations ──► saved_model.pb, variables/: TensorFlow alone scores it
package tfgraph

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	layers "github.com/monolith-go/monolith/kernels/graph"

	"github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

// FileName is what a SavedModel's graph is called.
const FileName = "saved_model.pb"

const (
	float32s = types_go_proto.DataType_DT_FLOAT
	float64s = types_go_proto.DataType_DT_DOUBLE
	int32s   = types_go_proto.DataType_DT_INT32
	int64s   = types_go_proto.DataType_DT_INT64
	booleans = types_go_proto.DataType_DT_BOOL
	texts    = types_go_proto.DataType_DT_STRING
	bfloats  = types_go_proto.DataType_DT_BFLOAT16
)

// producer is the version of TensorFlow's graphs that these are made for: that of TensorFlow 2.16, whose operations
// later ones have, too.
const producer = 1645

// tensor is a node's output, as other nodes read it.
type tensor string

type attrs map[string]*attr_value_go_proto.AttrValue

// graph is one being made.
type graph struct {
	nodes []*node_def_go_proto.NodeDef
	names map[string]int // how often each was asked for
}

// add adds a node; its name is told from others of that name by a number.
func (g *graph) add(name, op string, a attrs, in ...tensor) tensor {
	if g.names == nil {
		g.names = map[string]int{}
	}
	g.names[name]++
	if n := g.names[name]; n > 1 {
		name += "_" + strconv.Itoa(n)
	}
	node := &node_def_go_proto.NodeDef{Name: name, Op: op, Attr: a}
	for _, t := range in {
		node.Input = append(node.Input, string(t))
	}
	g.nodes = append(g.nodes, node)
	return tensor(name)
}

func of(t types_go_proto.DataType) *attr_value_go_proto.AttrValue {
	return &attr_value_go_proto.AttrValue{Value: &attr_value_go_proto.AttrValue_Type{Type: t}}
}

func ofList(t ...types_go_proto.DataType) *attr_value_go_proto.AttrValue {
	return &attr_value_go_proto.AttrValue{Value: &attr_value_go_proto.AttrValue_List{List: &attr_value_go_proto.AttrValue_ListValue{Type: t}}}
}

func shaped(dims ...int64) *attr_value_go_proto.AttrValue {
	return &attr_value_go_proto.AttrValue{Value: &attr_value_go_proto.AttrValue_Shape{Shape: shape(dims...)}}
}

func number(n int) *attr_value_go_proto.AttrValue {
	return &attr_value_go_proto.AttrValue{Value: &attr_value_go_proto.AttrValue_I{I: int64(n)}}
}

func truth(b bool) *attr_value_go_proto.AttrValue {
	return &attr_value_go_proto.AttrValue{Value: &attr_value_go_proto.AttrValue_B{B: b}}
}

func text(s string) *attr_value_go_proto.AttrValue {
	return &attr_value_go_proto.AttrValue{Value: &attr_value_go_proto.AttrValue_S{S: []byte(s)}}
}

// shape is one of these dimensions; -1 stands for any size.
func shape(dims ...int64) *tensor_shape_go_proto.TensorShapeProto {
	s := &tensor_shape_go_proto.TensorShapeProto{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
	}
	return s
}

func (g *graph) constant(name string, value *tensor_go_proto.TensorProto) tensor {
	return g.add(name, "Const", attrs{"dtype": of(value.GetDtype()),
		"value": {Value: &attr_value_go_proto.AttrValue_Tensor{Tensor: value}}})
}

// ints is a constant row of them; int alone is one of no dimension.
func (g *graph) ints(v ...int) tensor {
	content := make([]byte, 0, 4*len(v))
	for _, x := range v {
		content = binary.LittleEndian.AppendUint32(content, uint32(int32(x)))
	}
	return g.constant("ints", &tensor_go_proto.TensorProto{Dtype: int32s, TensorShape: shape(int64(len(v))), TensorContent: content})
}

func (g *graph) int(v int) tensor {
	return g.constant("int", &tensor_go_proto.TensorProto{Dtype: int32s, TensorShape: shape(), IntVal: []int32{int32(v)}})
}

func (g *graph) long(v int64) tensor {
	return g.constant("long", &tensor_go_proto.TensorProto{Dtype: int64s, TensorShape: shape(), Int64Val: []int64{v}})
}

// longs is a constant row of them.
func (g *graph) longs(v []int64) tensor {
	return g.constant("longs", &tensor_go_proto.TensorProto{Dtype: int64s, TensorShape: shape(int64(len(v))), Int64Val: v})
}

func (g *graph) float(v float32) tensor {
	content := binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
	return g.constant("float", &tensor_go_proto.TensorProto{Dtype: float32s, TensorShape: shape(), TensorContent: content})
}

// floats are constants of these dimensions.
func (g *graph) floats(v []float32, dims ...int) tensor {
	content, sizes := make([]byte, 0, 4*len(v)), make([]int64, len(dims))
	for _, x := range v {
		content = binary.LittleEndian.AppendUint32(content, math.Float32bits(x))
	}
	for i, d := range dims {
		sizes[i] = int64(d)
	}
	return g.constant("floats", &tensor_go_proto.TensorProto{Dtype: float32s, TensorShape: shape(sizes...), TensorContent: content})
}

// constantOf is v in every place.
func (g *graph) constantOf(v float32, dims []int) tensor {
	all := make([]float32, layers.Fixed(dims...).Size())
	for i := range all {
		all[i] = v
	}
	return g.floats(all, dims...)
}

func (g *graph) texts(name string, v ...string) tensor {
	t := &tensor_go_proto.TensorProto{Dtype: texts, TensorShape: shape(int64(len(v)))}
	for _, s := range v {
		t.StringVal = append(t.StringVal, []byte(s))
	}
	return g.constant(name, t)
}

// input is a tensor that a caller brings.
func (g *graph) input(name string, t types_go_proto.DataType, dims ...int64) tensor {
	return g.add(name, "Placeholder", attrs{"dtype": of(t), "shape": shaped(dims...)})
}

// info tells callers of a tensor.
func info(t tensor, kind types_go_proto.DataType, dims ...int64) *for_core_protos_go_proto.TensorInfo {
	name := string(t)
	if _, output := cutOutput(name); !output {
		name += ":0"
	}
	return &for_core_protos_go_proto.TensorInfo{Encoding: &for_core_protos_go_proto.TensorInfo_Name{Name: name}, Dtype: kind, TensorShape: shape(dims...)}
}

// cutOutput is the node of a tensor, and whether the tensor says which of its outputs it is.
func cutOutput(name string) (node string, output bool) {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == ':' {
			return name[:i], true
		}
		if name[i] < '0' || name[i] > '9' {
			break
		}
	}
	return name, false
}

// signature is what may be asked of a model, by Predict.
func signature(inputs, outputs map[string]*for_core_protos_go_proto.TensorInfo) *for_core_protos_go_proto.SignatureDef {
	return &for_core_protos_go_proto.SignatureDef{Inputs: inputs, Outputs: outputs, MethodName: "tensorflow/serving/predict"}
}

// saved is the SavedModel of the graph, the same bytes each time.
func (g *graph) saved(meta *for_core_protos_go_proto.MetaGraphDef) ([]byte, error) {
	meta.MetaInfoDef = &for_core_protos_go_proto.MetaGraphDef_MetaInfoDef{Tags: []string{"serve"}}
	meta.GraphDef = &graph_go_proto.GraphDef{Node: g.nodes, Versions: &versions_go_proto.VersionDef{Producer: producer}}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&for_core_protos_go_proto.SavedModel{
		SavedModelSchemaVersion: 1, MetaGraphs: []*for_core_protos_go_proto.MetaGraphDef{meta},
	})
	if err != nil {
		return nil, fmt.Errorf("write the graph: %w", err)
	}
	return data, nil
}
