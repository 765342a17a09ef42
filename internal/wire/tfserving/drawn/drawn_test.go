package drawn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

func info(dtype types_go_proto.DataType, dims ...int64) *for_core_protos_go_proto.TensorInfo {
	shape := &tensor_shape_go_proto.TensorShapeProto{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
	}
	return &for_core_protos_go_proto.TensorInfo{Dtype: dtype, TensorShape: shape}
}

// The same seed draws the same; shared inputs have one value in all samples, vectors whole.
func TestInputs(t *testing.T) {
	def := &for_core_protos_go_proto.SignatureDef{Inputs: map[string]*for_core_protos_go_proto.TensorInfo{
		"user": info(types_go_proto.DataType_DT_INT64, -1), "age": info(types_go_proto.DataType_DT_FLOAT, -1, 3), "item": info(types_go_proto.DataType_DT_INT32, -1),
		"double": info(types_go_proto.DataType_DT_DOUBLE, -1), "bool": info(types_go_proto.DataType_DT_BOOL, 2),
		"scalar": info(types_go_proto.DataType_DT_INT64), "any": {Dtype: types_go_proto.DataType_DT_INT64},
	}}
	o := Options{Samples: 7, MaxID: 1 << 40, Shared: []string{"user", "age", "nobody"}}
	draw := func(seed uint64) map[string]int {
		in, err := Inputs(rand.New(rand.NewPCG(seed, 0)), def, o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Inputs(rand.New(rand.NewPCG(seed, 0)), def, o)
		if err != nil {
			t.Fatal(err)
		}
		for name := range in {
			if !proto.Equal(in[name], again[name]) {
				t.Errorf("%s is drawn as %v and %v", name, in[name], again[name])
			}
		}
		users, ages := in["user"].GetInt64Val(), in["age"].GetFloatVal()
		for i := range users {
			if users[i] != users[0] || !slices.Equal(ages[3*i:3*i+3], ages[:3]) {
				t.Errorf("sample %d: user %d and %v, of the first %d and %v", i, users[i], ages[3*i:3*i+3], users[0], ages[:3])
			}
		}
		if ages[0] == ages[1] {
			t.Errorf("a vector of one value: %v", ages)
		}
		return map[string]int{"user": len(users), "age": len(ages), "items": len(in["item"].GetIntVal()), "double": len(in["double"].GetDoubleVal()), "bool": len(in["bool"].GetBoolVal()),
			"scalar": len(in["scalar"].GetInt64Val()), "any": len(in["any"].GetInt64Val())}
	}
	got := draw(3)
	for name, want := range map[string]int{"user": 7, "age": 21, "items": 7, "double": 7, "bool": 2, "scalar": 1, "any": 7} {
		if got[name] != want {
			t.Errorf("%s has %d values, want %d", name, got[name], want)
		}
	}
	for _, bad := range []*for_core_protos_go_proto.TensorInfo{info(types_go_proto.DataType_DT_STRING, -1), info(types_go_proto.DataType_DT_INT64, -1, 1<<25), info(types_go_proto.DataType_DT_INT64, -1, 1<<12, 1<<12)} {
		def.Inputs = map[string]*for_core_protos_go_proto.TensorInfo{"x": bad}
		if _, err := Inputs(rand.New(rand.NewPCG(1, 1)), def, o); err == nil {
			t.Errorf("%v is drawn", bad)
		}
	}
}

// By Zipf's law a few numbers are most of what is drawn, and none is out of bounds.
func TestSkewedInputs(t *testing.T) {
	def := &for_core_protos_go_proto.SignatureDef{Inputs: map[string]*for_core_protos_go_proto.TensorInfo{"item": info(types_go_proto.DataType_DT_INT64, -1)}}
	frequent := func(skew float64) (n int) {
		in, err := Inputs(rand.New(rand.NewPCG(5, 0)), def, Options{Samples: 10_000, MaxID: 1000, Skew: skew})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range in["item"].GetInt64Val() {
			if v < 1 || v > 1000 {
				t.Fatalf("%d is drawn", v)
			}
			if v <= 10 {
				n++
			}
		}
		return n
	}
	if even, skewed := frequent(0), frequent(1.2); even > 200 || skewed < 5000 {
		t.Errorf("of 10,000 numbers to 1,000, %d are up to 10 where all are as likely, %d by Zipf's law", even, skewed)
	}
}
