// Package drawn makes random requests of what a model's signature declares, so that any model
// can be asked by somebody who knows nothing of it.
package drawn

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// splitsSuffix names the input that says where the values of each sample end in the input of the same name.
const splitsSuffix = "/row_splits"

// maxElements bounds the random tensor of one input.
const maxElements = 1 << 24

// Signature asks a server for one signature of a model.
func Signature(ctx context.Context, c *tfserving.PredictionClient, spec *apis.ModelSpec, name string) (*for_core_protos_go_proto.SignatureDef, error) {
	meta, err := c.GetModelMetadata(ctx, &apis.GetModelMetadataRequest{ModelSpec: spec, MetadataField: []string{"signature_def"}})
	if err != nil {
		return nil, err
	}
	all := &apis.SignatureDefMap{}
	if err := meta.GetMetadata()["signature_def"].UnmarshalTo(all); err != nil {
		return nil, fmt.Errorf("the signatures of %s: %w", spec.GetName(), err)
	}
	def, ok := all.GetSignatureDef()[name]
	if !ok {
		return nil, fmt.Errorf("%s has no signature %q: it has %s", spec.GetName(), name, strings.Join(slices.Sorted(maps.Keys(all.GetSignatureDef())), ", "))
	}
	return def, nil
}

// Options say what is drawn.
type Options struct {
	Samples int   // of a request
	MaxID   int64 // the largest number; the least is 1
	// Skew is the exponent of Zipf's law by which whole numbers are drawn, above 1; 0: evenly.
	Skew float64
	// Shared are inputs of which all samples have the first one's values: one user with many items.
	Shared []string
}

// Inputs are random tensors for each input of a signature: as many samples as o says, and 1 where
// another dimension may have any size. The same r draws the same.
func Inputs(r *rand.Rand, def *for_core_protos_go_proto.SignatureDef, o Options) (map[string]*tfserving.TensorProto, error) {
	out := map[string]*tfserving.TensorProto{}
	for _, name := range slices.Sorted(maps.Keys(def.GetInputs())) {
		t, err := draw(r, name, def.GetInputs()[name], o)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", name, err)
		}
		if slices.Contains(o.Shared, name) {
			share(t, o.Samples)
		}
		out[name] = t
	}
	return out, nil
}

// draw is a random tensor for one input.
func draw(r *rand.Rand, name string, info *for_core_protos_go_proto.TensorInfo, o Options) (*tfserving.TensorProto, error) {
	shape, n, err := filled(info.GetTensorShape(), int64(o.Samples))
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, splitsSuffix) { // one value for each sample
		splits := make([]int64, o.Samples+1)
		for i := range splits {
			splits[i] = int64(i)
		}
		return tfserving.NewInt64(splits), nil
	}
	t := &tfserving.TensorProto{Dtype: info.GetDtype(), TensorShape: &tensor_shape_go_proto.TensorShapeProto{}}
	for _, size := range shape {
		t.TensorShape.Dim = append(t.TensorShape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: size})
	}
	next := func() int64 { return 1 + r.Int64N(o.MaxID) }
	if o.Skew > 1 {
		zipf := rand.NewZipf(r, o.Skew, 1, uint64(o.MaxID-1))
		next = func() int64 { return 1 + int64(zipf.Uint64()) }
	}
	for range n {
		switch v := next(); info.GetDtype() {
		case types_go_proto.DataType_DT_INT64:
			t.Int64Val = append(t.Int64Val, v)
		case types_go_proto.DataType_DT_INT32:
			t.IntVal = append(t.IntVal, int32(min(v, 1<<31-1)))
		case types_go_proto.DataType_DT_FLOAT:
			t.FloatVal = append(t.FloatVal, r.Float32())
		case types_go_proto.DataType_DT_DOUBLE:
			t.DoubleVal = append(t.DoubleVal, r.Float64())
		case types_go_proto.DataType_DT_BOOL:
			t.BoolVal = append(t.BoolVal, v%2 == 0)
		default:
			return nil, fmt.Errorf("it is %s, which is not drawn at random; give samples of your own", info.GetDtype())
		}
	}
	return t, nil
}

// filled is a declared shape with its open sizes filled, and how many elements it has.
func filled(s *tensor_shape_go_proto.TensorShapeProto, samples int64) (shape []int64, n int64, err error) {
	if s == nil || s.GetUnknownRank() {
		return []int64{samples}, samples, nil
	}
	n = 1
	for i, d := range s.GetDim() {
		size := d.GetSize()
		if size < 0 {
			if size = 1; i == 0 {
				size = samples
			}
		}
		if size > maxElements || n*size > maxElements {
			return nil, 0, fmt.Errorf("it has more than %d elements", maxElements)
		}
		shape, n = append(shape, size), n*size
	}
	return shape, n, nil
}

// share gives all samples of a tensor the first one's values.
func share(t *tfserving.TensorProto, samples int) {
	repeat(t.Int64Val, samples)
	repeat(t.IntVal, samples)
	repeat(t.FloatVal, samples)
	repeat(t.DoubleVal, samples)
	repeat(t.BoolVal, samples)
}

func repeat[T any](vals []T, samples int) {
	for from := len(vals) / max(samples, 1); from > 0 && from < len(vals); from *= 2 {
		copy(vals[from:], vals[:from])
	}
}
