package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/compat/modeldir"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// export and take run monolith checkpoint export and import.
func (r room) export(args ...string) (w modeldir.Written) {
	r.t.Helper()
	c := parsed(r.t, &CheckpointExport{}, append([]string{"--json"}, args...)...)
	if err := c.Validate(); err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Run(r.t.Context(), &out); err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &w); err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r room) take(args ...string) (string, error) {
	c := parsed(r.t, &CheckpointImport{}, append([]string{"--spec", "model.yaml"}, args...)...)
	if err := c.Validate(); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err := c.Run(r.t.Context(), strings.NewReader(""), &out)
	return out.String(), err
}

// A job that begins with a checkpoint which has been to a model_dir of the original and back ends with the
// bits of one that begins with the checkpoint itself.
func TestCheckpointThereAndBack(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 1000))
	r.write("b.json", ratings(2, 600))
	r.train("", "--files", "a.json", "--dir", "first", "--shards", "2", "--batch", "50", "--deterministic")
	w := r.export("--dir", "first", "--to", "python", "--layout", "single")
	if w.Servers != 2 || len(w.Tables) != 2 || w.Tables[0].Rows != 40 || w.Tables[1].Rows != 30 || w.Variables != 1 || filepath.Base(w.Checkpoint) != "model.ckpt-20" {
		t.Errorf("%+v", w)
	}
	page, err := r.take("--from", "python", "--to", "back")
	if err != nil || !strings.Contains(page, "40 rows, there ") || !strings.Contains(page, "[ps_0 ps_1]") {
		t.Fatalf("%s, %v", page, err)
	}
	goesOn := func(dir, from string) *Learnt {
		return r.train("", "--files", "b.json", "--dir", dir, "--shards", "2", "--batch", "50", "--deterministic", "--restore-dir", from)
	}
	direct, around := goesOn("direct", "first"), goesOn("around", "back")
	for shard := range 2 {
		if a, b := hash(t, around, shard), hash(t, direct, shard); a != b {
			t.Errorf("shard %d differs: %s by way of the model_dir, %s directly", shard, a, b)
		}
	}
	if !strings.Contains(around.Parent, "back") {
		t.Errorf("it began from %q", around.Parent)
	}
	if _, err := r.take("--from", "python", "--to", "back"); !errors.Is(err, os.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	if _, err := r.take("--from", "python", "--ckpt", "19", "--to", "other"); err == nil || !strings.Contains(err.Error(), "name another checkpoint with --ckpt") {
		t.Error(err)
	}
	if _, err := os.Stat("other"); !os.IsNotExist(err) {
		t.Errorf("a refused import has left something: %v", err)
	}
}

func TestCheckpointFlags(t *testing.T) {
	r := newRoom(t)
	for want, args := range map[string][]string{
		"--from is missing":           {"--to", "x"},
		"--shards -1 must be 1 to":    {"--from", "a", "--to", "x", "--shards", "-1"},
		`--table "movie" must be`:     {"--from", "a", "--to", "x", "--table", "movie"},
		`--variable "a=c" must be`:    {"--from", "a", "--to", "x", "--variable", "a=b", "--variable", "a=c"},
		`--table "=theirs" must be O`: {"--from", "a", "--to", "x", "--table", "=theirs"},
	} {
		if _, err := r.take(args...); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	for want, args := range map[string][]string{
		"--to must name":         {},
		"--ps 5000 must be 1 to": {"--to", "x", "--ps", "5000"},
		`--layout "both" must`:   {"--to", "x", "--layout", "both"},
	} {
		if err := parsed(t, &CheckpointExport{}, args...).Validate(); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
