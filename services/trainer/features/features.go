// Package features writes what a trainer learns as Monolith's ExampleBatch files, a record for each batch.
package features

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
)

// Folder is where the files lie, below a job's.
const Folder = "features"

const (
	// Capacity is how many batches a file holds.
	Capacity = 100
	// maxBytes ends a file before: a batch may be of many MiB.
	maxBytes = 256 << 20
)

// Framing is that of the files: 8 bytes of zeros, the record's size in 8 bytes, the record.
var Framing = instances.Framing{LagrangeX: true}

// File is one that was written.
type File struct {
	Path           string
	Batches        int
	Samples, Bytes uint64
}

// Writer writes batches into files of Capacity, the last of which may hold fewer. A file is there as a whole
// or not at all; a process that is killed leaves at most one with a name that begins with a dot. The zero
// value of what is not exported is a writer that has no file yet.
type Writer struct {
	Dir   string // the job's folder
	Index int    // of the trainer, which names its files

	f   *os.File // nil: none is under way
	out *bufio.Writer
	now File
	buf []byte
}

// name is the original's: its worker 0 is the chief.
func (w *Writer) name() string {
	by := "chief"
	if w.Index > 0 {
		by = "worker" + strconv.Itoa(w.Index)
	}
	return by + "_" + uuid.NewString() + ".pb"
}

// Add writes a batch that was sealed. It returns the file that the batch has filled, nil if none. After an
// error the file under way is gone, and the next batch begins another one.
func (w *Writer) Add(e *runtime.Engine, b *runtime.Batch) (*File, error) {
	if b.Len() == 0 {
		return nil, nil
	}
	record, err := proto.Marshal(Batch(e, b))
	if err == nil && w.f == nil {
		err = w.begin()
	}
	if err != nil {
		return nil, err
	}
	w.buf = Framing.Append(w.buf[:0], record)
	if _, err := w.out.Write(w.buf); err != nil {
		return nil, errors.Join(err, w.drop())
	}
	w.now.Batches++
	w.now.Samples += uint64(b.Len())
	w.now.Bytes += uint64(len(w.buf))
	if w.now.Batches < Capacity && w.now.Bytes < maxBytes {
		return nil, nil
	}
	return w.End()
}

func (w *Writer) begin() error {
	dir := filepath.Join(w.Dir, Folder)
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := w.name()
	f, err := os.OpenFile(filepath.Join(dir, "."+name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w.f, w.out, w.now = f, bufio.NewWriterSize(f, 1<<20), File{Path: filepath.Join(dir, name)}
	return nil
}

// End closes the file under way and returns it, nil if there is none: unlike the original's, no file is empty.
func (w *Writer) End() (*File, error) {
	if w.f == nil {
		return nil, nil
	}
	if err := w.out.Flush(); err != nil {
		return nil, errors.Join(err, w.drop())
	}
	f, done := w.f, w.now
	w.f = nil
	if err := durable.Rename(f, done.Path); err != nil {
		return nil, err
	}
	return &done, nil
}

// drop takes the file under way away.
func (w *Writer) drop() error {
	f := w.f
	w.f = nil
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Batch is a batch as the original writes it: a list for each feature by its name, ids with their slots as
// fid_v2_list and numbers as float_list, one element a sample. The labels are under the name that readers of
// the format know.
func Batch(e *runtime.Engine, b *runtime.Batch) *matrixpb.ExampleBatch {
	spec, n := e.Spec(), b.Len()
	out := &matrixpb.ExampleBatch{BatchSize: int32(n)}
	add := func(name string, of func(sample int) *matrixpb.Feature) {
		list := &matrixpb.NamedFeatureList{Name: name, Type: matrixpb.FeatureListType_INDIVIDUAL, Feature: make([]*matrixpb.Feature, n)}
		for i := range n {
			list.Feature[i] = of(i)
		}
		out.NamedFeatureList = append(out.NamedFeatureList, list)
	}
	for f, x := range spec.GetFeatures() {
		add(x.GetName(), func(i int) *matrixpb.Feature {
			ids := b.IDs(f, i)
			fids := make([]uint64, len(ids))
			for k, id := range ids {
				fids[k] = uint64(id)
			}
			return &matrixpb.Feature{Type: &matrixpb.Feature_FidV2List{FidV2List: &matrixpb.FidList{Value: fids}}}
		})
	}
	numbers := func(v ...float32) *matrixpb.Feature {
		return &matrixpb.Feature{Type: &matrixpb.Feature_FloatList{FloatList: &matrixpb.FloatList{Value: v}}}
	}
	for f, x := range spec.GetFloats() {
		add(x.GetName(), func(i int) *matrixpb.Feature { return numbers(b.Floats(f, i)...) })
	}
	if tasks := len(e.Tasks()); tasks > 0 {
		add(input.LabelName, func(i int) *matrixpb.Feature {
			labels := make([]float32, tasks)
			for t := range labels {
				labels[t] = b.Labels(t)[i]
			}
			return numbers(labels...)
		})
	}
	return out
}
