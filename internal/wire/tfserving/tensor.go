package tfserving

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// TensorProto is one tensor as it travels.
type TensorProto = tensor_go_proto.TensorProto

// MaxRank bounds the dimensions of a tensor that is accepted.
const MaxRank = 8

// NewInt64 is a DT_INT64 tensor of vals; without a shape it is [len(vals)]. It does not
// copy vals.
func NewInt64(vals []int64, shape ...int64) *TensorProto {
	return &TensorProto{Dtype: types_go_proto.DataType_DT_INT64, TensorShape: shapeOf(len(vals), shape), Int64Val: vals}
}

// NewFloat is a DT_FLOAT tensor of vals; without a shape it is [len(vals)]. It does not
// copy vals.
func NewFloat(vals []float32, shape ...int64) *TensorProto {
	return &TensorProto{Dtype: types_go_proto.DataType_DT_FLOAT, TensorShape: shapeOf(len(vals), shape), FloatVal: vals}
}

// NewStrings is a DT_STRING tensor of vals; without a shape it is [len(vals)]. It does not
// copy them.
func NewStrings(vals [][]byte, shape ...int64) *TensorProto {
	return &TensorProto{Dtype: types_go_proto.DataType_DT_STRING, TensorShape: shapeOf(len(vals), shape), StringVal: vals}
}

func shapeOf(n int, shape []int64) *tensor_shape_go_proto.TensorShapeProto {
	if len(shape) == 0 {
		shape = []int64{int64(n)}
	}
	s := &tensor_shape_go_proto.TensorShapeProto{Dim: make([]*tensor_shape_go_proto.TensorShapeProto_Dim, len(shape))}
	for i, d := range shape {
		s.Dim[i] = &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d}
	}
	return s
}

// Rows is the first dimension of t: the number of examples in a batch. A scalar has
// none, which is an error, and so is a shape of unknown or negative size or more than
// limit elements.
func Rows(t *TensorProto, limit int) (int, error) {
	if t.GetTensorShape().GetUnknownRank() || len(t.GetTensorShape().GetDim()) == 0 {
		return 0, fmt.Errorf("tensor has no batch dimension; send shape [n] or [n, 1]")
	}
	if _, err := elements(t, limit); err != nil {
		return 0, err
	}
	return int(t.GetTensorShape().GetDim()[0].GetSize()), nil
}

// elements is the number of elements that the shape of t promises, at most limit.
func elements(t *TensorProto, limit int) (int, error) {
	dims := t.GetTensorShape().GetDim()
	if t.GetTensorShape().GetUnknownRank() {
		return 0, fmt.Errorf("tensor has an unknown rank; send its shape")
	}
	if len(dims) > MaxRank {
		return 0, fmt.Errorf("tensor has %d dimensions, at most %d are taken", len(dims), MaxRank)
	}
	n := int64(1)
	for _, d := range dims {
		size := d.GetSize()
		if size < 0 {
			return 0, fmt.Errorf("tensor has a dimension of size %d; send the real size", size)
		}
		if size > int64(limit) { // so that the product cannot overflow
			return 0, fmt.Errorf("tensor has a dimension of size %d, at most %d elements are taken", size, limit)
		}
		if n *= size; n > int64(limit) {
			return 0, fmt.Errorf("tensor has more than %d elements; send a smaller batch", limit)
		}
	}
	return int(n), nil
}

// Int64s appends the elements of t to dst, from int64_val, int_val or tensor_content,
// as its dtype DT_INT64 or DT_INT32 says. At most limit elements are accepted. As in
// TensorFlow, a short *_val list is filled up with its last element.
func Int64s(dst []int64, t *TensorProto, limit int) ([]int64, error) {
	n, err := elements(t, limit)
	if err != nil {
		return dst, err
	}
	content := t.GetTensorContent()
	switch t.GetDtype() {
	case types_go_proto.DataType_DT_INT64:
		if len(content) > 0 {
			if len(content) != 8*n {
				return dst, contentError(len(content), n, 8)
			}
			for ; len(content) > 0; content = content[8:] {
				dst = append(dst, int64(binary.LittleEndian.Uint64(content)))
			}
			return dst, nil
		}
		return fill(dst, t.GetInt64Val(), n)
	case types_go_proto.DataType_DT_INT32:
		if len(content) > 0 {
			if len(content) != 4*n {
				return dst, contentError(len(content), n, 4)
			}
			for ; len(content) > 0; content = content[4:] {
				dst = append(dst, int64(int32(binary.LittleEndian.Uint32(content))))
			}
			return dst, nil
		}
		return fill(dst, t.GetIntVal(), n)
	}
	return dst, fmt.Errorf("tensor is %s, want DT_INT64", t.GetDtype())
}

// Floats appends the elements of a DT_FLOAT tensor to dst, from float_val or
// tensor_content; bounds and filling up are those of [Int64s].
func Floats(dst []float32, t *TensorProto, limit int) ([]float32, error) {
	n, err := elements(t, limit)
	if err != nil {
		return dst, err
	}
	if t.GetDtype() != types_go_proto.DataType_DT_FLOAT {
		return dst, fmt.Errorf("tensor is %s, want DT_FLOAT", t.GetDtype())
	}
	content := t.GetTensorContent()
	if len(content) == 0 {
		return fill(dst, t.GetFloatVal(), n)
	}
	if len(content) != 4*n {
		return dst, contentError(len(content), n, 4)
	}
	for ; len(content) > 0; content = content[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(content)))
	}
	return dst, nil
}

// Strings appends the elements of a DT_STRING tensor to dst, which then share its memory; bounds and
// filling up are those of [Int64s].
func Strings(dst [][]byte, t *TensorProto, limit int) ([][]byte, error) {
	n, err := elements(t, limit)
	if err != nil {
		return dst, err
	}
	if t.GetDtype() != types_go_proto.DataType_DT_STRING {
		return dst, fmt.Errorf("tensor is %s, want DT_STRING", t.GetDtype())
	}
	vals := t.GetStringVal()
	if err := filled(len(vals), n); err != nil {
		return dst, err
	}
	dst = append(dst, vals...)
	for range n - len(vals) {
		dst = append(dst, vals[len(vals)-1])
	}
	return dst, nil
}

func contentError(bytes, n, width int) error {
	return fmt.Errorf("tensor_content has %d bytes, %d elements need %d", bytes, n, n*width)
}

// fill appends n elements: vals, then its last one again.
func fill[D, V int64 | int32 | float32](dst []D, vals []V, n int) ([]D, error) {
	if err := filled(len(vals), n); err != nil {
		return dst, err
	}
	for _, v := range vals {
		dst = append(dst, D(v))
	}
	for range n - len(vals) {
		dst = append(dst, D(vals[len(vals)-1]))
	}
	return dst, nil
}

// filled refuses a number of values that a shape of n elements cannot have.
func filled(values, n int) error {
	if values > n {
		return fmt.Errorf("tensor has %d values, its shape holds %d", values, n)
	}
	if values == 0 && n > 0 {
		return fmt.Errorf("tensor has no values, its shape holds %d", n)
	}
	return nil
}
