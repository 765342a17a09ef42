package entrydump

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// The original's file_ops_test: test_basic.
func TestWritableFileBasic(t *testing.T) {
	name := filepath.Join(t.TempDir(), "test_basic", "deep", "file")
	f, err := NewWritableFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := f.Append("1234"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := must(os.ReadFile(name)); string(got) != strings.Repeat("1234", 1000) {
		t.Errorf("%d bytes were written", len(got))
	}
	// Opening it again empties it.
	if f, err = NewWritableFile(name); err != nil {
		t.Fatal(err)
	}
	if got := must(os.ReadFile(name)); len(got) > 0 {
		t.Errorf("%d bytes are left", len(got))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// The original's file_ops_test: test_hook.
func TestFileCloseHook(t *testing.T) {
	dir := t.TempDir()
	var files []*WritableFile
	for _, name := range []string{"a", "b"} {
		f := must(NewWritableFile(filepath.Join(dir, name)))
		if err := f.Append("1234"); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if _, err := NewFileCloseHook([]*WritableFile{nil}); err == nil {
		t.Error("a hook of no file is made")
	}
	hook := must(NewFileCloseHook(files))
	files[0] = nil // the hook has its own list
	for range 2 {  // the second end of a session changes nothing
		if err := hook.End(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if got := must(os.ReadFile(filepath.Join(dir, name))); string(got) != "1234" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if err := files[1].Append("5"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("append after the hook: %v", err)
	}
}

func TestAppendEntryDump(t *testing.T) {
	name := filepath.Join(t.TempDir(), "MonolithHashTable_cached_item_embeddings-00000-of-00001")
	f := must(NewWritableFile(name))
	if err := f.AppendEntryDump([]int64{7, -9}, []float32{0.5, 1.5}, []float32{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if err := f.AppendEntryDump([]int64{8}, []float32{2.5}, nil); err != nil {
		t.Fatal(err)
	}
	whole := f.w.Buffered()
	for _, tc := range []struct {
		name      string
		ids       []int64
		bias, emb []float32
		says      string
	}{
		{"no rows", nil, nil, nil, "no ids"},
		{"a bias too few", []int64{1, 2}, []float32{1}, []float32{1, 2}, "1 biases for 2 ids"},
		{"a bias too many", []int64{1}, []float32{1, 2}, []float32{1}, "2 biases for 1 ids"},
		{"an uneven embedding", []int64{1, 2}, []float32{1, 2}, []float32{1, 2, 3}, "3 numbers for 2 ids"},
		{"a huge row", []int64{1}, []float32{1}, make([]float32, table.MaxDim), "at most"},
	} {
		if err := f.AppendEntryDump(tc.ids, tc.bias, tc.emb); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if f.w.Buffered() != whole {
		t.Error("a refused call has written something")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"text": f.Append("x"), "rows": f.AppendEntryDump([]int64{1}, []float32{1}, []float32{1}),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	in := must(os.Open(name))
	defer in.Close()
	want := []*monolithpb.EntryDump{
		{Id: proto.Int64(7), Num: []float32{0.5, 1, 2}}, {Id: proto.Int64(-9), Num: []float32{1.5, 3, 4}}, {Id: proto.Int64(8), Num: []float32{2.5}},
	}
	r := tfrecord.NewReader(in, 0)
	for i := 0; ; i++ {
		data, err := r.Next()
		if err == io.EOF && i == len(want) {
			break
		}
		var d monolithpb.EntryDump
		if err != nil || proto.Unmarshal(data, &d) != nil || !proto.Equal(&d, want[i]) {
			t.Fatalf("record %d: %v, %v", i, &d, err)
		}
		if data[0] != 0x09 || bytes.Count(data, []byte{0x15}) < len(want[i].Num) {
			t.Errorf("record %d is not written unpacked: %x", i, data)
		}
	}
	// A table reads it back.
	if err := os.Rename(name, name+"x"); err != nil {
		t.Fatal(err)
	}
	f = must(NewWritableFile(name))
	if err := f.AppendEntryDump([]int64{7, -9}, []float32{0.5, 1.5}, []float32{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	tab, err := Restore(strings.TrimSuffix(name, "-00000-of-00001"), config("items", every()["adagrad"]), Reading{Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	if rows, ok := tab.LookupEntries([]int64{-9}); !ok[0] || !slices.Equal(rows[0].Values, []float32{1.5, 3, 4}) {
		t.Errorf("restored %v", rows)
	}
}

// TestAppendersTogether: rows of one call stay together, and none is lost.
func TestAppendersTogether(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := must(NewWritableFile(name))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for k := range 50 {
				base := int64(w*1000 + k*10)
				if err := f.AppendEntryDump([]int64{base, base + 1, base + 2}, make([]float32, 3), make([]float32, 6)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	in := must(os.Open(name))
	defer in.Close()
	r, ids := tfrecord.NewReader(in, 0), []int64(nil)
	for {
		data, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var d monolithpb.EntryDump
		if err := proto.Unmarshal(data, &d); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.GetId())
	}
	if len(ids) != 600 {
		t.Fatalf("%d rows of 600", len(ids))
	}
	for i := 0; i < len(ids); i += 3 {
		if ids[i+1] != ids[i]+1 || ids[i+2] != ids[i]+2 {
			t.Fatalf("rows %v were torn apart", ids[i:i+3])
		}
	}
}

// TestCrashedWriter: what is left of a file that was never closed reads up to its last
// whole record, and then says that it is cut.
func TestCrashedWriter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := must(NewWritableFile(name))
	for id := range int64(5000) {
		if err := f.AppendEntryDump([]int64{id}, []float32{1}, []float32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
	}
	defer f.Close()
	in := bytes.NewReader(must(os.ReadFile(name))) // only what the buffer has let go
	n := 0
	for r := tfrecord.NewReader(in, 0); ; n++ {
		if _, err := r.Next(); err != nil {
			if !errors.Is(err, tfrecord.ErrTruncated) {
				t.Fatal(err)
			}
			break
		}
	}
	if n < 1000 || n >= 5000 {
		t.Errorf("%d of 5000 records are there", n)
	}
}

func TestWriteErrorsAreTold(t *testing.T) {
	f := must(NewWritableFile(filepath.Join(t.TempDir(), "f")))
	if err := f.f.Close(); err != nil { // as a disk that fails
		t.Fatal(err)
	}
	big := strings.Repeat("x", 1<<17)
	if err := f.Append(big); err == nil {
		t.Error("the failed write is not told")
	}
	if err := f.Append("x"); err == nil {
		t.Error("it is forgotten")
	}
	if err := f.Close(); err == nil || f.Close() == nil {
		t.Error("Close does not tell, or forgets")
	}
	if _, err := NewWritableFile(t.TempDir()); err == nil {
		t.Error("a directory is opened for writing")
	}
}
