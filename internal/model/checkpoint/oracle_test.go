package checkpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/table"
)

// originalProto writes the .proto files without what is ours, and compiles them for
// Python, as somebody with the original's files would.
func originalProto(t *testing.T) string {
	t.Helper()
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		oracle.Missing(t, "protoc", "install protobuf-compiler")
	}
	dir := t.TempDir()
	pkg := filepath.Join("internal", "model", "monolithpb")
	if err := os.MkdirAll(filepath.Join(dir, pkg), 0o755); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range []string{"hash_table.proto", "optimizer.proto"} {
		text, err := os.ReadFile(filepath.Join("..", "monolithpb", name))
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`(?m)^.* (tag|rest) = 100[01].*;$`).ReplaceAll(text, nil)
		if bytes.Contains(text, []byte("100")) {
			t.Fatalf("%s still has fields of ours", name)
		}
		if err := os.WriteFile(filepath.Join(dir, pkg, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(pkg, name))
	}
	cmd := exec.CommandContext(t.Context(), protoc, append([]string{"-I.", "--python_out=."}, files...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	return dir
}

// records are all records of a file, by our reader.
func records(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all [][]byte
	for r := tfrecord.NewReader(f, 0); ; {
		data, err := r.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return all
		}
		all = append(all, bytes.Clone(data))
	}
}

// TestOracleTensorFlow has TensorFlow read a table file of ours, and our reader a file of
// TensorFlow's; between them stands the original's EntryDump as protobuf's Python reads
// and writes it.
func TestOracleTensorFlow(t *testing.T) {
	python := oracle.Python(t)
	protos := originalProto(t)
	s := small()
	for id := range int64(300) {
		s.Tables["user"] = append(s.Tables["user"], table.Row{ID: 1<<50 + id, Values: []float32{float32(id) / 3, -float32(id)}, Slots: []float32{0.1, float32(id)},
			UnixSec: uint32(id), Tag: uint64(id)})
	}
	dir, m := write(t, s)
	var file string
	for _, info := range m.Tables {
		if info.Name == "user" {
			file = filepath.Join(dir, info.File)
		}
	}
	theirs := filepath.Join(t.TempDir(), "theirs.tfrecord")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "tf_records.py"), protos, file, theirs)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}

	type dumped struct {
		Raw  string
		ID   int64
		Num  []float32
		Norm [][]float32
		Kind []string
		TS   int64
	}
	var got, want []dumped
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v", &stdout, err)
	}
	raw := records(t, file)
	if len(raw) != len(s.Tables["user"]) {
		t.Fatalf("our reader finds %d records of %d", len(raw), len(s.Tables["user"]))
	}
	for i, r := range s.Tables["user"] {
		want = append(want, dumped{hex.EncodeToString(raw[i]), r.ID, r.Values, [][]float32{r.Slots}, []string{"adagrad"}, int64(r.UnixSec)})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what TensorFlow reads (-want +got):\n%s", diff)
	}

	raw = records(t, theirs)
	if len(raw) != 4 || len(raw[0]) != 0 || len(raw[1]) != 256*5000 || raw[1][255] != 255 {
		t.Fatalf("our reader finds %d records in TensorFlow's file", len(raw))
	}
	var rows []table.Row
	for _, data := range raw[2:] {
		r, err := decodeRow(data)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	wrote := []table.Row{
		{ID: -9, Values: []float32{0.5, -1.5}, Slots: []float32{0.1, 0.25}, UnixSec: 1700000000},
		{ID: 1<<48 | 5, Values: []float32{3, 1e-30}, Slots: []float32{0.1, 0.25}, UnixSec: 1700000000},
	}
	if diff := cmp.Diff(wrote, rows); diff != "" {
		t.Errorf("what TensorFlow wrote (-want +got):\n%s", diff)
	}
}
