package features_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/services/trainer/features"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

func engine(t *testing.T, spec *model.ModelSpec) *runtime.Engine {
	t.Helper()
	e, err := runtime.New(spec, 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func batch(t *testing.T, e *runtime.Engine, o input.Options, records ...string) *runtime.Batch {
	t.Helper()
	b := e.NewBatch()
	d := input.New(e.Spec(), o)
	for _, r := range records {
		if err := d.Into(b, []byte(r), input.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	return b
}

// records of a file, in their framing.
func records(t *testing.T, path string) (all []*matrixpb.ExampleBatch, raw []byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for r := bytes.NewReader(raw); ; {
		record, err := features.Framing.Read(r)
		if errors.Is(err, io.EOF) {
			return all, raw
		}
		b := new(matrixpb.ExampleBatch)
		if err == nil {
			err = proto.Unmarshal(record, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
}

// TestReadBack: our own reader finds in a file the ids, numbers and labels that the batch had, and the file has
// the original's names, framing and kinds of lists.
func TestReadBack(t *testing.T) {
	spec := trainertest.SmallSpec()
	e := engine(t, spec)
	b := batch(t, e, input.Options{}, `{"userId":7,"movieId":11,"rating":5}`, `{"userId":8,"movieId":12,"rating":1}`)
	w := features.Writer{Dir: t.TempDir(), Index: 3}
	if f, err := w.Add(e, b); f != nil || err != nil {
		t.Fatal(f, err)
	}
	f, err := w.End()
	if err != nil || f.Batches != 1 || f.Samples != 2 {
		t.Fatal(f, err)
	}
	if rel, err := filepath.Rel(w.Dir, f.Path); err != nil || !regexp.MustCompile(`^features/worker3_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.pb$`).MatchString(rel) {
		t.Errorf("the file is called %s, %v", rel, err)
	}
	all, raw := records(t, f.Path)
	if len(all) != 1 || uint64(len(raw)) != f.Bytes || !bytes.Equal(raw[:8], make([]byte, 8)) || all[0].GetBatchSize() != 2 {
		t.Fatalf("%d records of %d bytes, told are %d", len(all), len(raw), f.Bytes)
	}
	for i, list := range all[0].GetNamedFeatureList() {
		kind := list.GetFeature()[0].GetFidV2List() != nil
		if list.GetType() != matrixpb.FeatureListType_INDIVIDUAL || len(list.GetFeature()) != 2 || kind != (i < len(spec.GetFeatures())) {
			t.Errorf("list %d is %v", i, list)
		}
	}
	reads := proto.CloneOf(spec)
	for _, x := range reads.GetFeatures() {
		x.Field, x.Ids = x.GetName(), model.Feature_FID
	}
	reads.Label = &model.Label{Field: input.LabelName, Threshold: 0.5} // of what is 0 or 1 by now
	format, err := input.ParseFormat("example-batch+lagrangex")
	if err != nil {
		t.Fatal(err)
	}
	e = engine(t, reads)
	again := batch(t, e, input.Options{Format: format}, string(raw))
	if again.Len() != 2 || !slices.Equal(again.Labels(0), b.Labels(0)) || slices.Equal(b.Labels(0), []float32{0, 0}) {
		t.Errorf("%d samples with labels %v, want %v", again.Len(), again.Labels(0), b.Labels(0))
	}
	for f := range spec.GetFeatures() {
		for i := range 2 {
			if !slices.Equal(again.IDs(f, i), b.IDs(f, i)) {
				t.Errorf("feature %d of sample %d is %v, want %v", f, i, again.IDs(f, i), b.IDs(f, i))
			}
		}
	}
}

// TestFiles: a file is there once it is full, the last one when the writer ends; of nothing there is none, and what
// cannot be written leaves nothing.
func TestFiles(t *testing.T) {
	e := engine(t, trainertest.SmallSpec())
	b := batch(t, e, input.Options{}, `{"userId":7,"movieId":11,"rating":5}`)
	w := features.Writer{Dir: t.TempDir()}
	if f, err := w.End(); f != nil || err != nil {
		t.Errorf("nothing was written: %v, %v", f, err)
	}
	if f, err := w.Add(e, batch(t, e, input.Options{})); f != nil || err != nil {
		t.Errorf("a batch of no samples: %v, %v", f, err)
	}
	var files []*features.File
	for i := range features.Capacity + 1 {
		f, err := w.Add(e, b)
		if err != nil || (f != nil) != (i == features.Capacity-1) {
			t.Fatalf("batch %d: %v, %v", i, f, err)
		}
		if f != nil {
			files = append(files, f)
		}
	}
	visible := func() (n int) {
		all, err := filepath.Glob(filepath.Join(w.Dir, features.Folder, "chief_*.pb"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if visible() != 1 {
		t.Errorf("%d files are there, one is full", visible())
	}
	last, err := w.End()
	if err != nil || visible() != 2 {
		t.Fatalf("%v, %d files are there", err, visible())
	}
	for i, want := range []int{features.Capacity, 1} {
		if all, _ := records(t, append(files, last)[i].Path); len(all) != want {
			t.Errorf("file %d has %d batches, want %d", i, len(all), want)
		}
	}
	w = features.Writer{Dir: filepath.Join(w.Dir, features.Folder, filepath.Base(last.Path))} // a file
	if f, err := w.Add(e, b); err == nil {
		t.Errorf("a folder that cannot be: %v", f)
	}
	if f, err := w.End(); f != nil || err != nil {
		t.Errorf("after a failure: %v, %v", f, err)
	}
}
