package tpurunner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/host/jobs"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// room is a folder with a model, which the test works in.
type room struct{ t *testing.T }

const spec = `
name: likes
label: {field: rating, threshold: 3.5}
features:
- {name: user, field: userId, slot: 1, table: user}
- {name: movie, field: movieId, slot: 2, table: movie}
tables:
- {name: user, dim: 1, initializer: {zeros: {}}}
- {name: movie, dim: 1, initializer: {zeros: {}}}
dense_optimizer: {adagrad: {learning_rate: 0.1}}
outputs:
- {name: w, type: ADDN, slices: ["*"]}
layers:
- {name: logit, add: {bias: true}, inputs: [w]}
tasks:
- {logit: logit}
`

func newRoom(t *testing.T) room {
	t.Chdir(t.TempDir())
	r := room{t}
	r.write("model.yaml", spec)
	return r
}

func (r room) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// ratings are records in which odd users like and even ones do not.
func ratings(seed uint64, n int) string {
	var b strings.Builder
	rng := rand.New(rand.NewPCG(seed, 1))
	for range n {
		user := 1 + rng.IntN(40)
		fmt.Fprintf(&b, "{\"userId\":%d,\"movieId\":%d,\"rating\":%d}\n", user, 1+rng.IntN(30), 2+user%2*2)
	}
	return b.String()
}

// parsed is a runner with these flags.
func parsed(t *testing.T, args ...string) *Runner {
	t.Helper()
	c, fs := new(Runner), pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

// newest is the shard of a job's last checkpoint.
func newest(t *testing.T, dir string) *checkpoint.Shard {
	t.Helper()
	all, over, err := (&jobs.Place{Dir: dir, BZID: "demo"}).Checkpoints(t.Context())
	if err != nil || len(all) == 0 || !over {
		t.Fatalf("%d checkpoints, over: %v, %v", len(all), over, err)
	}
	last := all[len(all)-1]
	shard, err := checkpoint.ReadShardIn(last.GetDir(), last.GetShards()[0].GetPath())
	if err != nil {
		t.Fatal(err)
	}
	return shard
}

// tpu runs the runner on task.yaml and gives what it prints; refused is what its error says, "" for none.
func (r room) tpu(refused string, args ...string) (stdout, stderr string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), wait.Patience)
	defer cancel()
	c := parsed(r.t, append([]string{"--task", "task.yaml", "--model_dir", "tpu", "--json"}, args...)...)
	var out, notes bytes.Buffer
	err := c.Validate()
	if err == nil {
		err = c.Run(ctx, &out, &notes)
	}
	if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		r.t.Fatalf("tpu-runner %q: %v; want %q", args, err, refused)
	}
	return out.String(), notes.String()
}

// summaries are the scalars of the only event file in a folder, as "tag@step".
func summaries(t *testing.T, dir string) map[string]float32 {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("event files %q, %v", names, err)
	}
	raw, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float32{}
	for r := tfrecord.NewReader(bytes.NewReader(raw), 0); ; {
		event, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		step := uint64(0)
		each(event, func(num protowire.Number, v uint64, b []byte) {
			if num == 2 {
				step = v
			}
		})
		each(event, func(num protowire.Number, _ uint64, b []byte) {
			if num != 5 {
				return
			}
			each(b, func(_ protowire.Number, _ uint64, value []byte) {
				tag, simple := "", float32(math.NaN())
				each(value, func(num protowire.Number, v uint64, b []byte) {
					switch num {
					case 1:
						tag = string(b)
					case 2:
						simple = math.Float32frombits(uint32(v))
					}
				})
				all[fmt.Sprintf("%s@%d", tag, step)] = simple
			})
		})
	}
}

// each walks the fields of a message.
func each(b []byte, f func(protowire.Number, uint64, []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		b = b[n:]
		var v uint64
		var content []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(b)
			v = uint64(x)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		default:
			content, n = protowire.ConsumeBytes(b)
		}
		f(num, v, content)
		b = b[n:]
	}
}

const task = `
spec: model.yaml
format: json
vocab_file_path: vocab.tsv
qr_multi_hashing: true
qr_hashing_threshold: 20
enable_caching_with_tpu_var_mode: true
enable_host_call_scalar_metrics: true
files_interleave_cycle_length: 1
train:
  file_folder: data
  start_date: "20260101"
  end_date: "20260102"
  per_core_batch_size: 5
  save_checkpoints_steps: 20
eval: {file_pattern: test.json, steps_per_eval: 5}
`

// rowsOfVocabularies fails unless the rows are those of the vocabularies.
func rowsOfVocabularies(t *testing.T) {
	t.Helper()
	rows := map[uint32][]int64{}
	for _, table := range newest(t, "tpu").Tables {
		for _, row := range table {
			rows[modelspec.SlotOf(row.ID)] = append(rows[modelspec.SlotOf(row.ID)], row.ID&modelspec.MaxID)
		}
	}
	for slot, most := range map[uint32]int{1: 16, 2: 20} { // users 1 to 40, movies 1 to 30
		slices.Sort(rows[slot])
		if n := len(rows[slot]); n != most || rows[slot][n-1] != int64(most-1) {
			t.Errorf("slot %d has the rows %v, want 0 to %d", slot, rows[slot], most-1)
		}
	}
}

// evaluates runs mode eval, and gives the steps of the checkpoints and how good the last one is.
func (r room) evaluates() (steps []uint64, last jobs.Quality) {
	t := r.t
	t.Helper()
	stdout, _ := r.tpu("", "--mode", "eval")
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		var e struct {
			Step uint64
			jobs.Quality
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		steps, last = append(steps, e.Step), e.Quality
		if e.Samples != 200 || e.Refused != 0 {
			t.Errorf("step %d: %+v", e.Step, e.Quality)
		}
	}
	return steps, last
}

// A task learns the files of its days with the vocabularies of its file, tells TensorBoard of it, and its
// checkpoints are evaluated one after the other.
func TestTPURunner(t *testing.T) {
	r := newRoom(t)
	r.write("task.yaml", task)
	r.write("vocab.tsv", "slot\tcount\n1\t47\n2\t20\n")
	r.write("test.json", ratings(9, 1000))
	for i, day := range []string{"20251231", "20260101", "20260102", "20260103"} {
		dir := filepath.Join("data", day, "00")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r.write(filepath.Join(dir, "part-0.json"), ratings(uint64(i), 40000))
	}
	stdout, notes := r.tpu("", "--host_call_every_n_steps", "900", "--enable_stopping_signals", "--tpu", "a-tpu")
	var l jobs.Learnt
	if err := json.Unmarshal([]byte(stdout), &l); err != nil {
		t.Fatal(err)
	}
	if l.Learnt != 80000 || l.Steps < 2000 || l.Steps > 2200 || l.Files != 2 || l.Parked != 0 {
		t.Errorf("learnt %+v", l)
	}
	for _, want := range []string{"feature user: 47 ids, as 12 remainders and 4 quotients\n", "feature movie: 20 ids\n", "--tpu does nothing"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}

	rowsOfVocabularies(t)

	// Two windows of 900 steps were told.
	told := summaries(t, "tpu/host_call/trainer-0")
	if !(told["auc@1800"] >= told["auc@900"]) || !(told["auc@900"] > 0.9) || len(told) != 10 || !(told["prediction_max@1800"] >= told["prediction_avg@1800"]) || math.Abs(float64(told["label_avg@1800"])-.5) > .3 {
		t.Errorf("host calls %v", told)
	}
	steps, last := r.evaluates()
	if n := len(steps); n < 2 || steps[n-1] != l.Steps || !slices.IsSorted(steps) {
		t.Errorf("checkpoints of the steps %v are evaluated", steps)
	}
	if evaluated := summaries(t, "tpu/eval"); float64(evaluated[fmt.Sprint("auc@", l.Steps)]) != float64(float32(*last.Tasks[0].AUC)) || !(*last.Tasks[0].AUC > 0.9) {
		t.Errorf("summaries %v, %+v", evaluated, last)
	}

	// It goes on where it is, and says that all is learnt; up to max_steps no later checkpoint is evaluated.
	stdout, _ = r.tpu("", "--host_call_every_n_steps", "0", "--enable_stopping_signals")
	if err := json.Unmarshal([]byte(stdout), &l); err != nil || l.Learnt != 80000 {
		t.Errorf("again: %s, %v", stdout, err)
	}
	least := max(steps[0], 1)
	r.write("task.yaml", strings.Replace(task, "train:", fmt.Sprintf("train:\n  max_steps: %d", least), 1))
	if stdout, _ = r.tpu("", "--mode", "eval"); strings.Count(stdout, "\n") != 1+slices.IndexFunc(steps, func(n uint64) bool { return n >= least }) {
		t.Errorf("of steps %v, up to %d:\n%s", steps, least, stdout)
	}
	r.tpu("has learnt from 2 files", "--overwrite_end_date", "20260101", "--host_call_every_n_steps", "0")
}

// A checkpoint that was deleted, which no fact says yet, is passed over.
func TestEvaluationPassesOverWhatIsGone(t *testing.T) {
	r := newRoom(t)
	r.write("train.json", ratings(1, 1000))
	r.write("test.json", ratings(2, 100))
	r.write("task.yaml", "spec: model.yaml\nformat: json\ntrain: {file_pattern: train.json}\neval: {file_pattern: test.json}\n")
	r.tpu("")
	all, _, err := (&jobs.Place{Dir: "tpu", BZID: "demo"}).Checkpoints(t.Context())
	if err != nil || len(all) < 2 {
		t.Fatalf("%d checkpoints, %v", len(all), err)
	}
	if err := os.RemoveAll(filepath.Join(all[0].GetDir(), fmt.Sprintf("model.ckpt-%d", all[0].GetId()))); err != nil {
		t.Fatal(err)
	}
	if stdout, _ := r.tpu("", "--mode", "eval"); strings.Count(stdout, "\n") != len(all)-1 {
		t.Errorf("%d checkpoints of which one is gone:\n%s", len(all), stdout)
	}
}

// A CPU test is a few small steps, of which two have the same bits.
func TestTPURunnerCPUTest(t *testing.T) {
	r := newRoom(t)
	r.write("train.json", ratings(1, 100))
	r.write("task.yaml", "spec: model.yaml\nformat: json\nvocab_size_per_slot: 50\ntrain: {file_pattern: train.json}\n")
	var hashes []string
	for _, dir := range []string{"one", "two"} {
		stdout, _ := r.tpu("", "--cpu_test", "--model_dir", dir, "--pipeline_execution")
		var l jobs.Learnt
		if err := json.Unmarshal([]byte(stdout), &l); err != nil {
			t.Fatal(err)
		}
		if l.Samples != 100*8-4*7 && l.Steps != 100 {
			t.Errorf("%d samples in %d steps", l.Samples, l.Steps)
		}
		hashes = append(hashes, newest(t, dir).Manifest.Hash)
	}
	if hashes[0] != hashes[1] {
		t.Errorf("the bits differ: %q", hashes)
	}
}

// The vocabulary of the last day counts where it is in exactly one file.
func TestTheVocabularyOfADay(t *testing.T) {
	r := newRoom(t)
	r.write("train.json", ratings(1, 100))
	r.write("own.tsv", "1\t7\n")
	r.write("task.yaml", "spec: model.yaml\nformat: json\nvocab_file_path: own.tsv\ntrain: {file_pattern: train.json, vocab_file_folder_prefix: vocab/, end_date: \"20260101\"}\n")
	size := func() (uint64, string) {
		c := parsed(t, "--task", "task.yaml", "--model_dir", "tpu")
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		return modelspec.Feature(c.bound, "user").GetVocabulary().GetSize(), strings.Join(c.notes, "\n")
	}
	if n, notes := size(); n != 7 || !strings.Contains(notes, "names 0 files") || !strings.Contains(notes, "slots of movie") {
		t.Errorf("without a day's: %d, %s", n, notes)
	}
	if err := os.MkdirAll("vocab/20260101", 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("vocab/20260101/part-0.csv", "1\t8\n")
	if n, notes := size(); n != 8 || strings.Contains(notes, "names") {
		t.Errorf("of the day: %d, %s", n, notes)
	}
	r.write("vocab/20260101/part-1.csv", "1\t9\n")
	if n, notes := size(); n != 7 || !strings.Contains(notes, "names 2 files") {
		t.Errorf("of two files: %d, %s", n, notes)
	}
}

func TestTPURunnersThatAreRefused(t *testing.T) {
	r := newRoom(t)
	r.write("train.json", ratings(1, 10))
	const whole = "spec: model.yaml\nformat: json\ntrain: {file_pattern: train.json, max_steps: 5}\n"
	for says, tc := range map[string]struct {
		task string
		args []string
	}{
		"train_and_eval is not done in one": {whole, []string{"--mode", "train_and_eval"}},
		`--mode "test" must be`:             {whole, []string{"--mode", "test"}},
		"--task must name":                  {whole, []string{"--task", ""}},
		"--model_dir must name":             {whole, []string{"--model_dir", ""}},
		"rows are shared out by mod":        {whole, []string{"--partition_strategy", "div"}},
		"must not be negative":              {whole, []string{"--host_call_every_n_steps", "-1"}},
		"give eval.file_pattern":            {whole, []string{"--mode", "eval"}},
		"x is no parameter":                 {"x: 1\n", nil},
		"no such file":                      {strings.Replace(whole, "model.yaml", "gone.yaml", 1), nil},
		"no file is there":                  {strings.Replace(whole, "train.json", "gone.json", 1), nil},
		"vocab_file_path":                   {whole + "vocab_file_path: gone.tsv\n", nil},
		"end_date \"soon\" must be":         {whole, []string{"--overwrite_end_date", "soon"}},
		"has no end, which":                 {strings.Replace(whole, "max_steps: 5", "repeat: true", 1), []string{"--enable_stopping_signals"}},
		"give train.max_steps":              {strings.Replace(whole, "max_steps: 5", "repeat: true", 1), nil},
		"--batch 8008 must be":              {strings.Replace(whole, "max_steps: 5", "per_core_batch_size: 1001", 1), nil},
	} {
		r.write("task.yaml", tc.task)
		r.tpu(says, tc.args...)
	}
}
