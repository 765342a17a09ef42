package tfgraph_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/compat/tfgraph"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/table"
)

// asked is a model's folder with samples, and what the engine scores them.
type asked struct {
	Folder string         `json:"folder"`
	Inputs map[string]any `json:"inputs"`
	want   map[string][]float64
}

const samples = 37

// bound is how far TensorFlow's score may be off.
const bound = 1e-5

// written makes a model with random rows and variables, writes it, and asks the engine. One id in eight
// has no row.
func written(t *testing.T, spec *model.ModelSpec, dir string) asked {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(len(spec.GetName()))))
	e, err := runtime.New(spec, 1, samples)
	if err != nil {
		t.Fatal(err)
	}
	m := &tfgraph.Model{Spec: spec, Dense: map[string]checkpoint.Variable{}, Tables: map[string][]table.Row{}}
	var values [][]float32
	for _, v := range e.Variables() {
		some := random(rng, v.Size, 0.3)
		values = append(values, some)
		m.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: some}
	}
	w, err := e.Weights(1, values)
	if err != nil {
		t.Fatal(err)
	}
	b := e.NewBatch()
	drawn, given := make([][][]float32, len(spec.GetFloats())), make([][][]int64, len(spec.GetFeatures()))
	for range samples {
		s := drawSample(rng, spec)
		for i, f := range spec.GetFeatures() {
			given[i] = append(given[i], s.IDs[i])
			for _, id := range f.GetDefaultIds() { // as the reader of records does
				if len(given[i][len(given[i])-1]) == 0 {
					s.IDs[i] = append(s.IDs[i], modelspec.FID(f.GetSlot(), int64(id)))
				}
			}
		}
		for i, x := range s.Floats {
			drawn[i] = append(drawn[i], x)
		}
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	for _, block := range b.Blocks(0) {
		for i, id := range block.IDs {
			row := block.Rows[i*block.Dim:][:block.Dim]
			if clear(row); rng.IntN(8) > 0 {
				copy(row, random(rng, block.Dim, 0.3))
				m.Tables[block.Table] = append(m.Tables[block.Table], table.Row{ID: id, Values: append([]float32(nil), row...)})
			}
		}
	}
	scores, err := e.Score(&runtime.Lane{}, b, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tfgraph.Write(dir, m); err != nil {
		t.Fatal(err)
	}
	a := asked{Folder: dir, Inputs: map[string]any{}, want: map[string][]float64{}}
	for i, task := range e.Tasks() {
		for _, x := range scores[i] {
			a.want[task.Name] = append(a.want[task.Name], float64(x))
		}
		if slices.Max(scores[i])-slices.Min(scores[i]) < 100*bound {
			t.Errorf("%s: the scores of %s are all alike, and show nothing", dir, task.Name)
		}
	}
	for i, f := range spec.GetFeatures() {
		if len(f.GetCross()) > 0 {
			for sample := range given[i] {
				given[i][sample] = b.IDs(i, sample)
			}
		}
		a.Inputs[f.GetName()] = padded(given[i], f.GetIds() == model.Feature_FID)
	}
	for i, f := range spec.GetFloats() {
		a.Inputs[f.GetName()] = drawn[i]
	}
	return a
}

func random(rng *rand.Rand, n int, most float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = most * (2*rng.Float32() - 1)
	}
	return x
}

func drawSample(rng *rand.Rand, spec *model.ModelSpec) (s runtime.Sample) {
	for _, f := range spec.GetFeatures() {
		n := 1
		switch {
		case len(f.GetCross()) > 0:
			n = 0
		case f.GetPooling() == model.Feature_FIRSTN:
			n = rng.IntN(int(f.GetMaxSequenceLength()) + 3)
		case f.GetPooling() == model.Feature_MEAN || f.GetMissing() != model.Feature_REJECT:
			n = rng.IntN(4)
		}
		var ids []int64
		for range n {
			ids = append(ids, modelspec.FID(f.GetSlot(), rng.Int64N(50)))
		}
		s.IDs = append(s.IDs, ids)
	}
	for _, f := range spec.GetFloats() {
		s.Floats = append(s.Floats, random(rng, int(max(f.GetDim(), 1)), 1))
	}
	for range max(len(spec.GetTasks()), 1) {
		s.Labels = append(s.Labels, 1)
	}
	return s
}

// padded are the samples' ids of a feature, as the signature takes them.
func padded(given [][]int64, whole bool) (all [][]int64) {
	most := 1
	for _, ids := range given {
		most = max(most, len(ids))
	}
	for _, ids := range given {
		row := make([]int64, most)
		for k := range row {
			row[k] = -1
		}
		for k, id := range ids {
			if row[k] = id; !whole {
				row[k] = id & modelspec.MaxID
			}
		}
		all = append(all, row)
	}
	return all
}

// TensorFlow, by the loaders of both its versions, gives every ready model's scores, and those of one that has
// what they lack, to 1e-5.
func TestOracleScores(t *testing.T) {
	dir := t.TempDir()
	files, err := filepath.Glob("../../../docs/models/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("ready models: %q, %v", files, err)
	}
	var lines bytes.Buffer
	cases := map[string]asked{}
	for _, file := range append(files, "testdata/rich.yaml", "testdata/bounded.yaml") {
		spec, err := specfile.Read(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := written(t, spec, filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".yaml"), "1"))
		cases[a.Folder] = a
		if err := json.NewEncoder(&lines).Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	list := filepath.Join(dir, "cases")
	if err := os.WriteFile(list, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), oracle.Python(t), "testdata/score.py", list)
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, complaints.Bytes()[max(0, complaints.Len()-4000):])
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var got struct {
			Folder string
			Scores map[string]map[string][]float64
		}
		if err := json.Unmarshal(s.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		a := cases[got.Folder]
		delete(cases, got.Folder)
		for loader, scores := range got.Scores {
			name := filepath.Base(filepath.Dir(a.Folder))
			if len(scores) != len(a.want) {
				t.Errorf("%s, %s: %d tasks, want %d", name, loader, len(scores), len(a.want))
			}
			worst := 0.0
			for task, want := range a.want {
				for i := range want {
					if i >= len(scores[task]) {
						t.Fatalf("%s, %s: task %q has %d scores", name, loader, task, len(scores[task]))
					}
					worst = max(worst, math.Abs(scores[task][i]-want[i]))
				}
			}
			if t.Logf("%s, %s: differs by %.1e", name, loader, worst); !(worst <= bound) {
				t.Errorf("%s, %s: a score differs by %g", name, loader, worst)
			}
		}
	}
	if len(cases) > 0 {
		t.Errorf("%d models were not scored", len(cases))
	}
}

func TestWriteRefuses(t *testing.T) {
	spec, err := specfile.Read("../../../docs/models/lr.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "1")
	if err := tfgraph.Write(dir, &tfgraph.Model{Spec: spec}); err == nil || !strings.Contains(err.Error(), "lacks variable") {
		t.Errorf("a model without variables: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
		t.Errorf("it has left %v, %v", entries, err)
	}
	deep, err := specfile.Read("../../../docs/models/deepfm.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	deep.ServingCompute = model.ModelSpec_INT8
	m := &tfgraph.Model{Spec: deep, Dense: map[string]checkpoint.Variable{}}
	compiled, err := modelspec.Compile(deep)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range compiled.Variables {
		m.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(deep, v)}
	}
	if err := tfgraph.Write(dir, m); err == nil || !strings.Contains(err.Error(), "(matmul)") || !strings.Contains(err.Error(), "FP32 or BF16") {
		t.Errorf("whole numbers: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tfgraph.Write(dir, &tfgraph.Model{Spec: spec}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a folder that is there: %v", err)
	}
}
