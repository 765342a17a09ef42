package entrydump

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// originalProto compiles the original's messages, without what is ours, for Python.
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
	args := []string{"-I.", "--python_out=."}
	for _, name := range []string{"hash_table.proto", "optimizer.proto"} {
		text := must(os.ReadFile(filepath.Join("..", "monolithpb", name)))
		text = regexp.MustCompile(`(?m)^.* (tag|rest) = 100[01].*;$`).ReplaceAll(text, nil)
		if bytes.Contains(text, []byte("100")) {
			t.Fatalf("%s still has fields of ours", name)
		}
		if err := os.WriteFile(filepath.Join(dir, pkg, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Join(pkg, name))
	}
	cmd := exec.CommandContext(t.Context(), protoc, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	return dir
}

// dumped is a row as the Python side tells of it.
type dumped struct {
	ID  int64
	Num []float32
	TS  uint32
	Opt []dumpedOpt
}

type dumpedOpt struct {
	Kind   string
	Planes map[string][]float64
}

// TestOracleTensorFlow has TensorFlow's record reader, its snappy one too, and protobuf's
// Python code read every optimizer's rows, and reads what those write.
func TestOracleTensorFlow(t *testing.T) {
	python, protos := oracle.Python(t), originalProto(t)
	dir := t.TempDir()
	all := every()
	var parts []Part
	for _, kind := range []string{"adadelta", "adagrad", "adam", "amsgrad", "batch_softmax", "dc", "dynamic_wd_adagrad", "ftrl", "group_adagrad", "group_ftrl", "momentum", "moving_average", "rmsprop", "rmspropv2", "sgd"} {
		cfg := config(kind, all[kind], all["ftrl"])
		parts = append(parts, Part{Config: cfg, Table: taught(t, cfg, 40)})
	}
	wide := config("wide", table.Segment{Dim: 8000, Optimizer: all["adam"].Optimizer, Initializer: table.RandomUniform{Min: -1, Max: 1}})
	parts = append(parts, Part{Config: wide, Table: taught(t, wide, 30)}) // records of 120 KB across blocks
	single, multi, theirs := filepath.Join(dir, "single"), filepath.Join(dir, "multi"), filepath.Join(dir, "theirs")
	if err := Save(single, parts[2], Options{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	if err := SaveMulti(multi, parts, Options{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "tf_tables.py"), protos, single, multi, theirs)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got struct {
		Single []dumped
		Multi  map[string][]dumped
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected(parts[2]), got.Single); diff != "" {
		t.Errorf("one table, as TensorFlow reads it (-want +got):\n%s", diff)
	}
	for _, p := range parts {
		if diff := cmp.Diff(expected(p), got.Multi[p.Config.Name]); diff != "" {
			t.Errorf("table %s of several, as TensorFlow reads it (-want +got):\n%.2000s", p.Config.Name, diff)
		}
	}

	big := config("big", table.Segment{Dim: 40000, Optimizer: all["adagrad"].Optimizer, Initializer: table.Zeros{}})
	small := config("small", table.Segment{Dim: 2, Optimizer: all["adagrad"].Optimizer, Initializer: table.Zeros{}})
	restored, err := RestoreMulti(theirs, []table.Config{big, small}, nil, Reading{})
	if err != nil {
		t.Fatal(err)
	}
	rows := restored.Tables["small"].Snapshot()
	if want := (table.Row{ID: 102, Values: []float32{2, 2.25}, Slots: []float32{1, 1.125}, UnixSec: 1700000002}); len(rows) != 6 || !cmp.Equal(rows[5], want) {
		t.Errorf("of TensorFlow's rows the last is %+v, want %+v", rows[len(rows)-1], want)
	}
	if rows = restored.Tables["big"].Snapshot(); len(rows) != 4 || rows[3].Values[39999] != 1+39999./4 || rows[3].Slots[39999] != 1+39999./8 {
		t.Errorf("of TensorFlow's wide rows %d came through", len(rows))
	}
}

// expected is what p's rows say, by the names of optim's planes.
func expected(p Part) []dumped {
	l, _ := LayoutOf(p.Config)
	var out []dumped
	for _, r := range p.Table.Snapshot() {
		d := dumped{ID: r.ID, Num: r.Values, TS: r.UnixSec, Opt: []dumpedOpt{}}
		for _, dump := range l.Dumps {
			o := dumpedOpt{dump.Kind, map[string][]float64{}}
			for _, plane := range dump.Planes {
				v := r.Slots[plane.From:plane.To]
				if plane.Integer {
					o.Planes[plane.Name] = []float64{float64(optim.Int(v))}
					continue
				}
				for _, x := range v {
					o.Planes[plane.Name] = append(o.Planes[plane.Name], float64(x))
				}
			}
			d.Opt = append(d.Opt, o)
		}
		out = append(out, d)
	}
	return out
}
