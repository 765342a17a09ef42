package openinference

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// widths are the bytes of an element of each datatype that is taken, 0 for texts.
var widths = map[string]int{"INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "FP32": 4, "FP64": 8, "BYTES": 0}

const (
	texts  = "BYTES"
	number = "FP32"
	double = "FP64"
)

// tensor makes the tensor of what in holds, and takes its bytes from raw where it says so.
func (in *tensorJSON) tensor(raw []byte) (t *tfserving.TensorProto, rest []byte, err error) {
	rest = raw
	t, err = shaped(in.Datatype, in.Shape, func(v *values, width int) error {
		size := in.Parameters.BinaryDataSize
		if size == nil {
			return v.readJSON(in.Data, len(in.Shape))
		}
		if *size < 0 || *size > int64(len(raw)) || in.Data != nil {
			return fmt.Errorf("its binary_data_size is %d, and %d bytes are left behind the JSON; send as many, and no data", *size, len(raw))
		}
		rest = raw[*size:]
		return v.readBytes(raw[:*size], width)
	})
	return t, rest, err
}

// shaped makes a tensor of the elements that read adds, whose width it is told. Whole numbers are ids
// and become DT_INT64.
func shaped(datatype string, shape []int64, read func(v *values, width int) error) (*tfserving.TensorProto, error) {
	width, known := widths[datatype]
	if !known {
		return nil, fmt.Errorf("its datatype %q is not taken; send INT64 for ids, FP32 for numbers or BYTES for texts", datatype)
	}
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > tfserving.MaxBody || n*d > tfserving.MaxBody {
			return nil, fmt.Errorf("its shape %v is not one of a request; send the real sizes", shape)
		}
		n *= d
	}
	v := values{datatype: datatype}
	if err := read(&v, width); err != nil {
		return nil, err
	}
	if int64(v.len()) != n {
		return nil, fmt.Errorf("it has %d elements, its shape %v holds %d", v.len(), shape, n)
	}
	return v.proto(shape), nil
}

// values are the elements of one tensor; one of the lists is used.
type values struct {
	datatype string
	ints     []int64
	floats   []float32
	texts    [][]byte
}

func (v *values) len() int { return len(v.ints) + len(v.floats) + len(v.texts) }

func (v *values) proto(shape []int64) *tfserving.TensorProto {
	switch v.datatype {
	case texts:
		t := &tfserving.TensorProto{Dtype: types_go_proto.DataType_DT_STRING, StringVal: v.texts, TensorShape: &tensor_shape_go_proto.TensorShapeProto{}}
		for _, d := range shape {
			t.TensorShape.Dim = append(t.TensorShape.Dim, &tensor_shape_go_proto.TensorShapeProto_Dim{Size: d})
		}
		return t
	case number, double:
		return tfserving.NewFloat(v.floats, shape...)
	}
	return tfserving.NewInt64(v.ints, shape...)
}

// readJSON takes the elements from a list of them, flat or nested as the shape is.
func (v *values) readJSON(data json.RawMessage, rank int) error {
	if data == nil {
		return errors.New("it has no data; send a list")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("its data: %w", err)
		}
		switch token {
		case json.Delim('['):
			if depth++; depth > max(rank, 1) {
				return fmt.Errorf("its data is nested deeper than its shape of %d dimensions", rank)
			}
			continue
		case json.Delim(']'):
			if depth--; depth == 0 {
				return nil
			}
			continue
		}
		if depth == 0 {
			return errors.New("its data is no list; send one")
		}
		if err := v.add(token); err != nil {
			return err
		}
	}
}

func (v *values) add(token json.Token) error {
	text, isText := token.(string)
	n, isNumber := token.(json.Number)
	switch {
	case v.datatype == texts && isText:
		v.texts = append(v.texts, []byte(text))
		return nil
	case v.datatype == texts || !isNumber:
		return fmt.Errorf("an element is %v, which is no %s", token, v.datatype)
	case v.datatype == number || v.datatype == double:
		f, err := strconv.ParseFloat(n.String(), 32)
		if err != nil {
			return fmt.Errorf("an element is %s, which no 32 bit number holds", n)
		}
		v.floats = append(v.floats, float32(f))
		return nil
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil {
		return fmt.Errorf("an element is %s, which is no id: send whole numbers below 2^63", n)
	}
	v.ints = append(v.ints, i)
	return nil
}

// readBytes takes the elements from their bytes, least significant first; each text has its length
// before it, 4 bytes.
func (v *values) readBytes(raw []byte, width int) error {
	if width == 0 {
		for len(raw) > 0 {
			if len(raw) < 4 || uint64(binary.LittleEndian.Uint32(raw)) > uint64(len(raw)-4) {
				return errors.New("its bytes end within a text; send each behind its length of 4 bytes")
			}
			end := 4 + int(binary.LittleEndian.Uint32(raw))
			v.texts, raw = append(v.texts, raw[4:end]), raw[end:]
		}
		return nil
	}
	if len(raw)%width != 0 {
		return fmt.Errorf("it has %d bytes, which are no whole elements of %d", len(raw), width)
	}
	for ; len(raw) > 0; raw = raw[width:] {
		var word [8]byte
		copy(word[:], raw[:width])
		u := binary.LittleEndian.Uint64(word[:])
		switch v.datatype {
		case number:
			v.floats = append(v.floats, math.Float32frombits(uint32(u)))
		case double:
			v.floats = append(v.floats, float32(math.Float64frombits(u)))
		case "INT8", "INT16", "INT32":
			shift := 64 - 8*width
			v.ints = append(v.ints, int64(u<<shift)>>shift)
		default:
			if v.datatype == "UINT64" {
				if err := v.addUnsigned(u); err != nil {
					return err
				}
				continue
			}
			v.ints = append(v.ints, int64(u))
		}
	}
	return nil
}

func (v *values) addUnsigned(u uint64) error {
	if u > math.MaxInt64 {
		return fmt.Errorf("an element is %d, which is no id: send whole numbers below 2^63", u)
	}
	v.ints = append(v.ints, int64(u))
	return nil
}
