package tfevents

import (
	"encoding/binary"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of Summary.Value, SummaryMetadata and TensorProto, and values of DataType.
const (
	valueTensor, valueMetadata = 8, 9
	metadataPlugin, pluginName = 1, 1

	tensorType, tensorShape, tensorContent, tensorStrings = 1, 2, 4, 8
	shapeDim, dimSize                                     = 2, 1

	dtFloat, dtString, dtInt64 = 1, 7, 9
)

// Text is a value that TensorBoard shows as text.
type Text struct {
	Tag   string
	Value []byte
}

// Texts writes values of one step as a record, as TensorFlow's text summaries are.
func (f *Writer) Texts(at time.Time, step int64, values []Text) error {
	var summary []byte
	plugin := protowire.AppendString(protowire.AppendTag(nil, pluginName, protowire.BytesType), "text")
	metadata := protowire.AppendBytes(protowire.AppendTag(nil, metadataPlugin, protowire.BytesType), plugin)
	for _, v := range values {
		tensor := protowire.AppendVarint(protowire.AppendTag(nil, tensorType, protowire.VarintType), dtString)
		tensor = protowire.AppendBytes(protowire.AppendTag(tensor, tensorShape, protowire.BytesType), nil)
		tensor = protowire.AppendBytes(protowire.AppendTag(tensor, tensorStrings, protowire.BytesType), v.Value)
		value := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), v.Tag)
		value = protowire.AppendBytes(protowire.AppendTag(value, valueTensor, protowire.BytesType), tensor)
		value = protowire.AppendBytes(protowire.AppendTag(value, valueMetadata, protowire.BytesType), metadata)
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), value)
	}
	return f.write(at, step, summary)
}

// Floats is a vector as TensorFlow serializes tensors.
func Floats(v []float32) []byte {
	content := make([]byte, 0, 4*len(v))
	for _, x := range v {
		content = binary.LittleEndian.AppendUint32(content, math.Float32bits(x))
	}
	return vector(dtFloat, len(v), content)
}

// Ints is a vector of 64 bits as TensorFlow serializes tensors.
func Ints(v []int64) []byte {
	content := make([]byte, 0, 8*len(v))
	for _, x := range v {
		content = binary.LittleEndian.AppendUint64(content, uint64(x))
	}
	return vector(dtInt64, len(v), content)
}

func vector(dtype uint64, n int, content []byte) []byte {
	dim := protowire.AppendVarint(protowire.AppendTag(nil, dimSize, protowire.VarintType), uint64(n))
	shape := protowire.AppendBytes(protowire.AppendTag(nil, shapeDim, protowire.BytesType), dim)
	tensor := protowire.AppendVarint(protowire.AppendTag(nil, tensorType, protowire.VarintType), dtype)
	tensor = protowire.AppendBytes(protowire.AppendTag(tensor, tensorShape, protowire.BytesType), shape)
	return protowire.AppendBytes(protowire.AppendTag(tensor, tensorContent, protowire.BytesType), content)
}
