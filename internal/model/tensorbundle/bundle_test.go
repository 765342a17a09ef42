package tensorbundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// some are tensors of every kind, and so many that the index has several blocks.
func some() []Tensor {
	all := []Tensor{
		{Name: "global_step", Ints: []int64{1<<40 + 3}},
		{Name: "deep/kernel", Shape: []int64{2, 3}, Floats: []float32{1, -2.5, 3, 0.1, float32(math.Inf(1)), -0}},
		{Name: "none", Shape: []int64{0, 4}},
		{Name: "scalar", Floats: []float32{7}},
	}
	for i := range 9000 {
		all = append(all, Tensor{Name: fmt.Sprintf("layer_%05d/%s", i, strings.Repeat("x", i%40)), Shape: []int64{2}, Floats: []float32{float32(i), 1}})
	}
	return all
}

func written(t *testing.T) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "model.ckpt-7")
	if err := Write(prefix, some()); err != nil {
		t.Fatal(err)
	}
	return prefix
}

// check compares a bundle with tensors.
func check(t *testing.T, b *Bundle, want []Tensor) {
	t.Helper()
	for _, w := range want {
		e := b.Entry(w.Name)
		if e == nil || !cmp.Equal(append([]int64{}, e.Shape...), append([]int64{}, w.Shape...)) {
			t.Fatalf("%s is %+v", w.Name, e)
		}
		if w.Ints != nil {
			if got, err := b.Ints(w.Name); err != nil || !cmp.Equal(got, w.Ints) {
				t.Fatalf("%s is %v, %v", w.Name, got, err)
			}
			continue
		}
		if got, err := b.Floats(w.Name); err != nil || !cmp.Equal(got, append([]float32{}, w.Floats...)) {
			t.Fatalf("%s is %v, %v", w.Name, got, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	b, err := Open(written(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Entries) != len(some()) {
		t.Errorf("%d tensors of %d", len(b.Entries), len(some()))
	}
	check(t, b, some())
	if _, err := b.Floats("global_step"); err == nil || !strings.Contains(err.Error(), `"global_step" is of int64, float32 is read`) {
		t.Error(err)
	}
	if _, err := b.Floats("nobody"); err == nil || !strings.Contains(err.Error(), `has no tensor "nobody"`) {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, bad := range [][]Tensor{{{Name: "a", Shape: []int64{2}, Floats: []float32{1}}}, {{Name: "a"}, {Name: "a"}}, {{}}} {
		if err := Write(filepath.Join(t.TempDir(), "x"), bad); err == nil {
			t.Errorf("%v was written", bad)
		}
	}
}

// What is cut short or changed is an error that names the file, wherever it is.
func TestDamage(t *testing.T) {
	prefix := written(t)
	for _, path := range []string{IndexName(prefix), DataName(prefix, 0, 1)} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		damage := map[string][]byte{"empty": {}, "without its last byte": whole[:len(whole)-1], "half": whole[:len(whole)/2]}
		for range 40 {
			i := rng.IntN(len(whole))
			if path == IndexName(prefix) && i >= len(whole)-footerSize && i < len(whole)-8 {
				continue // padding of the footer means nothing
			}
			changed := bytes.Clone(whole)
			changed[i] ^= 1 << rng.IntN(8)
			damage[fmt.Sprintf("with another byte %d", i)] = changed
		}
		for what, data := range damage {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			b, err := Open(prefix)
			for _, w := range some() {
				if err == nil && w.Ints == nil {
					_, err = b.Floats(w.Name)
				} else if err == nil {
					_, err = b.Ints(w.Name)
				}
			}
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v", path, what, err)
			}
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzParse: any bytes are an index or an error.
func FuzzParse(f *testing.F) {
	f.Add(appendTable(nil, []pair{{"", appendHeader(1)}, {"a", (&Entry{Type: Float, Shape: []int64{2}, size: 8}).encode()}}))
	f.Add(appendTable(nil, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := parse(data); err == nil {
			for _, e := range b.Entries {
				if e.Type.width() > 0 && !e.sliced && e.size != e.Numbers()*int64(e.Type.width()) {
					t.Errorf("%+v", e)
				}
			}
		}
		if pairs, err := readBlock(data); err == nil {
			for _, p := range pairs {
				_ = new(Entry).decode(p.value)
			}
		}
	})
}

// TestOracleTensorFlow has TensorFlow read what is written here, and reads what it writes.
func TestOracleTensorFlow(t *testing.T) {
	python := oracle.Python(t)
	ours, theirs := written(t), filepath.Join(t.TempDir(), "theirs")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "tf_bundle.py"), ours, theirs)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	type tensor struct {
		Type    string
		Shape   []int64
		Numbers []float64
	}
	got, want := map[string]tensor{}, map[string]tensor{}
	if err := json.Unmarshal(bytes.ReplaceAll(stdout.Bytes(), []byte("Infinity"), []byte("1e300")), &got); err != nil {
		t.Fatal(err)
	}
	for _, w := range some() {
		x := tensor{"float32", append([]int64{}, w.Shape...), []float64{}}
		for _, f := range w.Floats {
			x.Numbers = append(x.Numbers, min(float64(f), 1e300))
		}
		for _, i := range w.Ints {
			x.Type, x.Numbers = "int64", append(x.Numbers, float64(i))
		}
		want[w.Name] = x
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("as TensorFlow reads it (-want +got):\n%.2000s", diff)
	}

	b, err := Open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if b.shards != 2 || len(b.Entries) != 6005 {
		t.Errorf("%d files of %d tensors", b.shards, len(b.Entries))
	}
	check(t, b, []Tensor{
		{Name: "global_step", Ints: []int64{1<<40 + 7}},
		{Name: "dense/kernel", Shape: []int64{2, 3}, Floats: []float32{0, 0.25, 0.5, 0.75, 1, 1.25}},
		{Name: "dense/bias", Shape: []int64{2}, Floats: []float32{-1.5, 2.25}},
		{Name: "layer_05999/kernel", Shape: []int64{3}, Floats: []float32{5999, 5999, 5999}},
	})
	for _, name := range []string{"words", "wide"} {
		if _, err := b.Floats(name); err == nil || !strings.Contains(err.Error(), "float32 is read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
