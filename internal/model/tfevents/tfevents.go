// Package tfevents writes event files, which TensorBoard shows: TFRecords of tensorflow.Event, of
// which the first names the version (tensorflow/core/util/event.proto, summary.proto).
package tfevents

import (
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

// version is that of files whose values are Summary messages.
const version = "brain.Event:2"

// Fields of tensorflow.Event, Summary and Summary.Value.
const (
	eventWallTime, eventStep, eventVersion, eventSummary = 1, 2, 3, 5
	summaryValue                                         = 1
	valueTag, valueSimple                                = 1, 2
)

// Scalar is one value of a curve.
type Scalar struct {
	Tag   string
	Value float64 // kept as a float32
}

// Writer writes one file.
type Writer struct{ to *tfrecord.Writer }

// New begins a file that was begun at that time.
func New(w io.Writer, at time.Time) (*Writer, error) {
	f := &Writer{tfrecord.NewWriter(w)}
	return f, f.to.Write(protowire.AppendString(protowire.AppendTag(stamp(at), eventVersion, protowire.BytesType), version))
}

// Scalars writes values of one step as a record, whole or not at all unless the machine stops.
func (f *Writer) Scalars(at time.Time, step int64, values []Scalar) error {
	var summary []byte
	for _, v := range values {
		value := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), v.Tag)
		value = protowire.AppendFixed32(protowire.AppendTag(value, valueSimple, protowire.Fixed32Type), math.Float32bits(float32(v.Value)))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), value)
	}
	return f.write(at, step, summary)
}

// write appends the event of a summary.
func (f *Writer) write(at time.Time, step int64, summary []byte) error {
	e := protowire.AppendVarint(protowire.AppendTag(stamp(at), eventStep, protowire.VarintType), uint64(step))
	return f.to.Write(protowire.AppendBytes(protowire.AppendTag(e, eventSummary, protowire.BytesType), summary))
}

// stamp begins an event of that time.
func stamp(at time.Time) []byte {
	seconds := float64(at.UnixMicro()) / 1e6
	return protowire.AppendFixed64(protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type), math.Float64bits(seconds))
}
