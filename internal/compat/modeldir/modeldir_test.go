package modeldir

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/table"
)

const declared = `
name: likes
label: {field: rating, threshold: 3.5}
features:
- {name: user_id, field: userId, slot: 1, table: user}
- {name: movie_id, field: movieId, slot: 2, table: movie}
- {name: last_id, field: lastId, slot: 3, table: movie}
tables:
- name: user
  admission: {threshold: 2, sliding_counter: {capacity: 1000}}
  segments: [{name: w, dim: 1, optimizer: {ftrl: {}}}, {name: v, dim: 3}]
- {name: movie, dim: 4, optimizer: {adam: {}}, expire: {days: 7}}
outputs:
- {name: all, type: CONCAT, slices: ["*"]}
layers:
- {name: deep, mlp: {units: [5, 1]}, inputs: [all]}
tasks:
- {logit: deep}
variables:
- {match: "deep/*/bias", optimizer: {adam: {}}}
dense_optimizer: {adagrad: {learning_rate: 0.1}}
`

func spec(t *testing.T, text string) *model.ModelSpec {
	t.Helper()
	s, err := specfile.Parse([]byte(text))
	if err == nil {
		err = modelspec.Validate(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trained is a checkpoint of n shards with numbers drawn by seed.
func trained(t *testing.T, s *model.ModelSpec, n, rows int) []*checkpoint.Shard {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 9))
	drawn := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = rng.Float32() + 0.1
		}
		return v
	}
	r := reader{Reading: &Reading{Shards: n}, spec: s, out: &Read{Step: 41}}
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	slots := []uint32{1, 2, 3}
	for i := range rows {
		slot := slots[i%3]
		id := modelspec.FID(slot, rng.Int64())
		at := 0
		if slot > 1 {
			at = 1
		}
		shard := r.out.Shards[modelspec.ShardOf(id, n)]
		info := &shard.Manifest.Tables[at]
		row := table.Row{ID: id, Values: drawn(info.Dim), Slots: drawn(info.Slots), UnixSec: uint32(1_700_000_000 + i)}
		shard.Tables[info.Name] = append(shard.Tables[info.Name], row)
		info.Clock = max(info.Clock, row.UnixSec)
	}
	d, err := readDense(nil, s, &Names{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.parts {
		v := &d.parts[i].value
		v.Values, v.Slots = drawn(len(v.Values)), drawn(len(v.Slots))
	}
	d.put(r.out.Shards, modelspec.Variables(s))
	for _, shard := range r.out.Shards {
		f, err := modelspec.Filter(s.GetTables()[0], s.GetSeed())
		if err != nil {
			t.Fatal(err)
		}
		if _, none := f.(filter.None); none {
			continue
		}
		for range 50 {
			f.Admit(rng.Int64N(40), 1)
		}
		if shard.Filters["user"], err = f.MarshalBinary(); err != nil {
			t.Fatal(err)
		}
	}
	return r.out.Shards
}

func write(t *testing.T, s *model.ModelSpec, shards []*checkpoint.Shard, how Writing) *Written {
	t.Helper()
	w, err := try(t, s, shards, how)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func try(t *testing.T, s *model.ModelSpec, shards []*checkpoint.Shard, how Writing) (*Written, error) {
	t.Helper()
	how.Now = time.Unix(1_700_000_123, 0)
	read := func(i int) (*checkpoint.Shard, error) { return shards[i], nil }
	return Write(t.Context(), Source{Spec: s, Step: 41, Shards: len(shards), Read: read}, how)
}

func hashes(t *testing.T, shards []*checkpoint.Shard) (all []string) {
	t.Helper()
	for _, s := range shards {
		h, err := checkpoint.HashShard(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// What is written and read again is the same to the bit, with filters where the number of servers stays.
func TestThereAndBack(t *testing.T) {
	s := spec(t, declared)
	for _, layout := range []Layout{Multi, Single} {
		shards := trained(t, s, 3, 400)
		dir := filepath.Join(t.TempDir(), "model_dir")
		w := write(t, s, shards, Writing{Dir: dir, Layout: layout})
		if w.Checkpoint != filepath.Join(dir, "model.ckpt-41") || w.Servers != 3 || w.Tables[0].Rows+w.Tables[1].Rows != 400 || w.Uncounted != nil {
			t.Errorf("%+v", w)
		}
		got, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(hashes(t, shards), hashes(t, got.Shards)); diff != "" {
			t.Errorf("%s: %s", layout, diff)
		}
		for i, shard := range got.Shards {
			if diff := cmp.Diff(shards[i].Manifest.Tables, shard.Manifest.Tables); diff != "" || shard.Manifest.Step != 41 {
				t.Errorf("%s: shard %d at step %d: %s", layout, i, shard.Manifest.Step, diff)
			}
		}
		if got.Untrained != nil || got.Anew != nil || got.Left != nil || got.Uncounted != nil || got.Variables != 4 {
			t.Errorf("%+v", got)
		}
	}
}

// Another number of servers, on either way, deals the rows anew; only filters cannot be taken apart.
func TestAnotherNumberOfServers(t *testing.T) {
	s := spec(t, declared)
	shards, dir := trained(t, s, 3, 400), t.TempDir()
	w := write(t, s, shards, Writing{Dir: dir, Layout: Multi, Servers: 2})
	if w.Servers != 2 || len(w.Uncounted) != 1 {
		t.Errorf("%+v", w)
	}
	got, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir, Shards: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Uncounted) != 1 || got.Uncounted[0] != "user" {
		t.Errorf("%+v", got)
	}
	for _, shard := range shards {
		shard.Filters = nil
	}
	if diff := cmp.Diff(hashes(t, shards), hashes(t, got.Shards)); diff != "" {
		t.Error(diff)
	}
}

// The state files are what TensorFlow and Monolith keep; older checkpoints stay named.
func TestStateFiles(t *testing.T) {
	s, dir := spec(t, declared), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("model_checkpoint_path: \"model.ckpt-7\"\nall_model_checkpoint_paths: \"model.ckpt-7\"\nall_model_checkpoint_timestamps: 1.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "monolith_checkpoint"), []byte("exempt_model_checkpoint_paths: \"model.ckpt-7\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	shards := trained(t, s, 1, 30)
	write(t, s, shards, Writing{Dir: dir, Layout: Single})
	for name, want := range map[string][]string{
		"checkpoint":          {`"model.ckpt-41"`, `"model.ckpt-7"`},
		"monolith_checkpoint": {"exempt_model_checkpoint_paths:", "builtin_hash_table_type:", "CUCKOO_HASH_MAP", "1700000123"},
		"ckpt.info-41":        {"slot_counts"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range want {
			if !strings.Contains(string(text), x) {
				t.Errorf("%s lacks %s:\n%s", name, x, text)
			}
		}
	}
	var info CkptInfo
	if _, err := readText(t.Context(), filepath.Join(dir, "ckpt.info-41"), &info); err != nil || !cmp.Equal(info.GetSlotCounts(), map[int32]int64{1: 10, 2: 10, 3: 10}) {
		t.Errorf("%v, %v", info.GetSlotCounts(), err)
	}
	if _, err := try(t, s, shards, Writing{Dir: dir, Layout: Single}); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second time: %v", err)
	}
	if got, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir, Ckpt: "41"}); err != nil || got.Step != 41 {
		t.Error(err)
	}
	if _, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir, Ckpt: "7"}); err == nil || !strings.Contains(err.Error(), "model.ckpt-7.index") {
		t.Error(err)
	}
}

// Files that are cut, missing, or another model's are errors that say which.
func TestRefuses(t *testing.T) {
	s := spec(t, declared)
	multi, single := t.TempDir(), t.TempDir()
	write(t, s, trained(t, s, 2, 200), Writing{Dir: multi, Layout: Multi})
	write(t, s, trained(t, s, 2, 200), Writing{Dir: single, Layout: Single})
	user := "MonolithHashTable_" + digest([]string{"user_id"})
	for _, c := range []struct {
		name, dir, file string
		keep            int // bytes; -1: none
		unsealed        bool
		is              error
		want            string
	}{
		{"cut inside a record", single, user + "_1-00000-of-00001", 100, true, entrydump.ErrCorrupt, "record 1"},
		{"cut at a block", multi, "MonolithMultiHashTable_1-00000-of-00001", 50, true, entrydump.ErrCorrupt, "MonolithMultiHashTable_1-00000-of-00001: record 0"},
		{"cut counts", multi, "MonolithMultiHashTable_0.meta-00000-of-00001", 5, true, entrydump.ErrCorrupt, "MonolithMultiHashTable_0.meta-00000-of-00001: record 0"},
		{"a lost file", multi, "MonolithMultiHashTable_1-00000-of-00001", -1, false, entrydump.ErrIncomplete, "bring it back"},
		{"a lost server's table", single, user + "_1-00000-of-00001", -1, true, entrydump.ErrIncomplete, user + "_1 is missing"},
		{"a lost server", multi, "MonolithMultiHashTable_0-00000-of-00001", -1, true, fs.ErrNotExist, "MonolithMultiHashTable_0-*-of-*"},
		{"a cut index", multi, "../model.ckpt-41.index", 60, false, tensorbundle.ErrCorrupt, "model.ckpt-41.index"},
		{"cut numbers", multi, "../model.ckpt-41.data-00000-of-00001", 9, false, tensorbundle.ErrCorrupt, `tensor "`},
		{"no index", multi, "../model.ckpt-41.index", -1, false, nil, "by --sparse-only"},
		{"a broken state", multi, "../checkpoint", 9, false, nil, "checkpoint is not what TensorFlow or Monolith writes"},
		{"a cut filter", multi, "admission_user_id_0-00000-of-00001", 20, true, entrydump.ErrCorrupt, "admission_user_id_0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "model.ckpt-41.assets", c.file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.keep < 0 {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, data[:c.keep], 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.unsealed { // as the original's sets are
				sums, _ := filepath.Glob(filepath.Join(dir, "model.ckpt-41.assets", "*.sums"))
				for _, path := range sums {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir})
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %v, %q", got, err, c.is, c.want)
			}
		})
	}
}

// What the model does not fit is named; what is said to be missing begins anew.
func TestMisfits(t *testing.T) {
	s, dir := spec(t, declared), t.TempDir()
	write(t, s, trained(t, s, 2, 90), Writing{Dir: dir, Layout: Multi})
	for _, c := range []struct{ was, is, want string }{
		{"dim: 4, optimizer", "dim: 5, optimizer", "has the shape [14 5]"},
		{"dim: 4, optimizer: {adam: {}}", "dim: 4, optimizer: {adagrad: {learning_rate: 1}}", "was saved by adam, the table has adagrad"},
		{"units: [5, 1]", "units: [5, 1, 1]", `there is no tensor "deep/2/kernel": name that of the shape [1 1]`},
		{"name: movie, dim", "name: film, dim", `has no table "film" or "`},
	} {
		text := strings.Replace(declared, c.was, c.is, 1)
		if strings.Contains(c.is, "film") {
			text = strings.ReplaceAll(text, "table: movie", "table: film")
		}
		if _, err := ReadCheckpoint(t.Context(), spec(t, text), Reading{Dir: dir}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.is, err, c.want)
		}
		if strings.Contains(c.is, "film") {
			got, err := ReadCheckpoint(t.Context(), spec(t, text), Reading{Dir: dir, Names: Names{Tables: map[string]string{"film": "movie"}}})
			if err != nil || got.Tables[1].Rows != 60 {
				t.Errorf("renamed: %+v, %v", got, err)
			}
		}
	}
	got, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir, Names: Names{Tables: map[string]string{"movie": ""}, Variables: map[string]string{"deep/0/bias": ""}}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Tables[1].Rows != 0 || got.Tables[0].Rows != 30 || !cmp.Equal(got.Untrained, []string{"deep/0/bias"}) || len(got.Left) != 3 || got.Left[2] != "movie" {
		t.Errorf("%+v", got)
	}
	for _, n := range []Names{{Tables: map[string]string{"none": "x"}}, {Variables: map[string]string{"none": "x"}}, {Tables: map[string]string{"user": "x", "movie": "x"}}} {
		if _, err := ReadCheckpoint(t.Context(), s, Reading{Dir: dir, Names: n}); err == nil {
			t.Errorf("%v is taken", n)
		}
	}
	if _, err := ReadCheckpoint(t.Context(), s, Reading{Dir: filepath.Join(dir, "nowhere")}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "model.ckpt-41.index")); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadCheckpoint(t.Context(), s, Reading{Dir: dir, Sparse: true}); err != nil || len(got.Untrained) != 4 || got.Step != 41 {
		t.Errorf("%+v, %v", got, err)
	}
}

const python = `
name: likes
label: {field: rating, threshold: 3.5}
features:
- {name: movie_id, field: movieId, slot: 2, table: movie}
tables:
- {name: movie, dim: 2}
outputs:
- {name: all, type: CONCAT, slices: ["*"]}
layers:
- {name: deep, units: 2, inputs: [all]}
- {name: logit, units: 1, inputs: [deep]}
tasks:
- {logit: logit}
dense_optimizer: {adagrad: {learning_rate: 0.1}}
`

// TestOracleTensorFlow has TensorFlow find and read what is written here, and reads what its Saver and its
// record writers leave.
func TestOracleTensorFlow(t *testing.T) {
	interpreter := oracle.Python(t)
	s, ours, theirs := spec(t, declared), t.TempDir(), t.TempDir()
	shards := trained(t, s, 2, 300)
	write(t, s, shards, Writing{Dir: ours, Layout: Multi, Names: Names{Variables: map[string]string{"deep/0/kernel": "mlp/dense_0/kernel"}}})
	cmd := exec.CommandContext(t.Context(), interpreter, filepath.Join("testdata", "tf_model_dir.py"), ours, theirs)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got struct {
		Latest    string
		All       []string
		Variables map[string][]float64
		Tables    map[string][]struct {
			ID  int64
			Num []float32
			TS  []uint32
		}
		Trained map[string][]float64
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(ours, "model.ckpt-41"); got.Latest != want || len(got.All) != 1 {
		t.Errorf("the newest of %v is %s, want %s", got.All, got.Latest, want)
	}
	kernel := shards[0].Dense["deep/0/kernel"]
	if !same(got.Variables["mlp/dense_0/kernel"], kernel.Values) || !same(got.Variables["mlp/dense_0/kernel/Adagrad"], kernel.Slots) || !cmp.Equal(got.Variables["global_step"], []float64{41}) {
		t.Errorf("TensorFlow reads %v", got.Variables)
	}
	rows := map[int64]table.Row{}
	for _, shard := range shards {
		for _, of := range shard.Tables {
			for _, r := range of {
				rows[r.ID] = r
			}
		}
	}
	for _, name := range []string{"user_id", "movie"} {
		for _, r := range got.Tables[name] {
			if w := rows[r.ID]; !cmp.Equal(w.Values, r.Num) || !cmp.Equal([]uint32{w.UnixSec}, r.TS) {
				t.Fatalf("table %s: TensorFlow reads %+v, want %+v", name, r, w)
			}
			delete(rows, r.ID)
		}
	}
	if len(rows) != 0 {
		t.Errorf("TensorFlow does not see %d rows", len(rows))
	}

	p := spec(t, python)
	names := Names{Variables: map[string]string{"deep/kernel": "mlp/dense_0/kernel", "deep/bias": "mlp/dense_0/bias", "logit/kernel": "", "logit/bias": ""}}
	read, err := ReadCheckpoint(t.Context(), p, Reading{Dir: theirs, Names: names})
	if err != nil {
		t.Fatal(err)
	}
	if read.Step != 3 || len(read.Shards) != 3 || read.Tables[0].Rows != 12 || !cmp.Equal(read.Left, []string{"unused"}) || read.Anew != nil {
		t.Errorf("%+v", read)
	}
	trained := read.Shards[0].Dense["deep/kernel"]
	if !same(got.Trained["mlp/dense_0/kernel"], trained.Values) || !same(got.Trained["mlp/dense_0/kernel/Adagrad"], trained.Slots) || trained.Slots[0] != 3.25 {
		t.Errorf("the kernel is %+v, TensorFlow had %v", trained, got.Trained)
	}
	for i, shard := range read.Shards {
		for k, r := range shard.Tables["movie"] {
			if n := r.Values[1]; r.Values[0] != -n+float32(i)/4 || r.Slots[0] != 1-n || r.Slots[1] != 2 || modelspec.SlotOf(r.ID) != 2 {
				t.Errorf("row %d of shard %d is %+v", k, i, r)
			}
		}
	}
}

func same(got []float64, want []float32) bool {
	if len(got) != len(want) || len(want) == 0 {
		return false
	}
	for i, x := range want {
		if float64(x) != got[i] {
			return false
		}
	}
	return true
}
