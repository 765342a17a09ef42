package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/host/dlq"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// room is a folder with a model and files of records that it can learn, which the test works in.
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

// parsed binds a command's flags to its arguments.
func parsed[C interface{ Register(*pflag.FlagSet) }](t *testing.T, c C, args ...string) C {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

// train runs the command; refused is what its error says, "" for none.
func (r room) train(refused string, args ...string) *Learnt {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), wait.Patience)
	defer cancel()
	c := parsed(r.t, &Train{}, append([]string{"--spec", "model.yaml", "--dir", "job"}, args...)...)
	var l *Learnt
	err := c.Validate()
	if err == nil {
		l, err = c.Learn(ctx, r.t.Output())
	}
	if refused != "" {
		if err == nil || !strings.Contains(err.Error(), refused) {
			r.t.Fatalf("train %q: %v; want %q", args, err, refused)
		}
		return nil
	}
	if err != nil {
		r.t.Fatalf("train %q: %v", args, err)
	}
	return l
}

func (r room) evaluate(args ...string) *Quality {
	r.t.Helper()
	c := parsed(r.t, &Evaluate{}, append([]string{"--dir", "job", "--json"}, args...)...)
	if err := c.Validate(); err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Run(r.t.Context(), &out); err != nil {
		r.t.Fatal(err)
	}
	q := new(Quality)
	if err := json.Unmarshal(out.Bytes(), q); err != nil {
		r.t.Fatal(err)
	}
	return q
}

// A job learns its files once, whatever is parked, tells what came of it, and goes on to more
// steps and epochs of the same files alone.
func TestTrain(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 1000))
	r.write("b.json", ratings(2, 500)+"{\"userId\":1}\n"+ratings(3, 300))
	files := []string{"--files", "*.json", "--batch", "50", "--shards", "2"}
	begun := r.train("", append(files, "--steps", "10")...)
	if begun.Learnt != 500 || begun.Left != 1301 || begun.Samples != 500 || begun.Steps != 10 || begun.MaxSteps != 10 || begun.Records != 1801 || begun.Files != 2 {
		t.Errorf("after 10 steps: %+v", begun)
	}
	if begun.Loss == nil || begun.AUC == nil || !(begun.SamplesPerSecond > 0) || begun.Version == 0 || begun.Version != begun.Checkpoint {
		t.Errorf("after 10 steps: %+v", begun)
	}
	if more := r.train("", append(files, "--steps", "10", "--max-steps", "15")...); more.Learnt != 750 || more.Samples != 250 || more.MaxSteps != 15 {
		t.Errorf("after 5 more: %+v", more)
	}
	if same := r.train("", append(files, "--max-steps", "15")...); same.Learnt != 750 || same.Samples != 0 || same.Loss != nil {
		t.Errorf("of what is learnt already: %+v", same)
	}
	whole := r.train("", files...)
	if whole.Learnt != 1801 || whole.Left != 0 || whole.Samples != 1050 || whole.Parked != 1 || whole.Stopped != "end of the topic" {
		t.Errorf("at the end: %+v", whole)
	}
	twice := r.train("", append(files, "--epochs", "2")...)
	if twice.Learnt != 3602 || twice.Samples != 1800 || twice.Parked != 2 || twice.FilesHash != whole.FilesHash {
		t.Errorf("after the second epoch: %+v", twice)
	}
	r.letter()
	var page bytes.Buffer
	if err := twice.Print(&page); err != nil || !strings.Contains(page.String(), "3602 records in all, 2 parked, 0 left") {
		t.Errorf("%v:\n%s", err, page.String())
	}
	r.refusals(files)
}

// letter finds the record that was parked by the words of its letter, in the folder of a job that has
// ended, and takes it away.
func (r room) letter() {
	r.t.Helper()
	letters := func(args ...string) string {
		r.t.Helper()
		var out bytes.Buffer
		cmd := dlq.Command()
		cmd.SetOut(&out)
		cmd.SetArgs(append(args, "--dir", "job"))
		if err := cmd.ExecuteContext(r.t.Context()); err != nil {
			r.t.Fatalf("dlq %q: %v", args, err)
		}
		return out.String()
	}
	var all []bus.Parked
	if err := json.Unmarshal([]byte(letters("ls", "--json")), &all); err != nil || len(all) != 2 {
		r.t.Fatalf("%d letters, %v", len(all), err)
	}
	p := all[0]
	if got := fmt.Sprintf("%s %d %v %v %s", p.Stream, p.StreamSeq, p.Header["file"], p.Header["record"], p.Data); got != `files/1 500 [b.json] [500] {"userId":1}` {
		r.t.Errorf("%q", got)
	}
	letters("rm", fmt.Sprint(all[1].Seq))
	if list := letters("ls"); strings.Count(list, "\n") != 2 || !strings.Contains(list, `field "movieId" is missing`) {
		r.t.Errorf("then there are\n%s", list)
	}
}

// refusals are of starts that would learn something else.
func (r room) refusals(files []string) {
	r.t.Helper()
	r.train("offsets would name other records", append(files, "--partitions", "1")...)
	r.train("offsets would name other records", "--files", "b.json,a.json")
	r.write("c.json", ratings(9, 10))
	r.train("--files names 3 with 1811", files...)
	r.write("c.json", "")
	r.train("the 1 files hold no record", "--files", "c.json")
	if err := os.Remove("c.json"); err != nil {
		r.t.Fatal(err)
	}
	r.write("model.yaml", strings.Replace(spec, "3.5", "2.5", 1))
	r.train("learns another declaration of model likes", files...)
	r.write("model.yaml", strings.Replace(spec, "likes", "other", 1))
	r.train("job is the folder of job [likes]", files...)
	r.train("--files: no file is there that no-such names", "--files", "no-such")
	r.train("--files must name the records")
	r.train("--epochs 0 must be 1 to 1000", "--files", "a.json", "--epochs", "0")
	r.train("--batch 0 must be 1 to 4096", "--files", "a.json", "--batch", "0")
}

// A checkpoint is evaluated, predicted by and exported from its files alone: nothing of the job
// changes, and the export is the one that the job made of it.
func TestWhatACheckpointSays(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 4000))
	files := []string{"--files", "a.json", "--shards", "3", "--batch", "32"}
	early := r.train("", append(files, "--steps", "3")...).Checkpoint
	learnt := r.train("", files...)
	r.write("new.json", ratings(7, 700)+"broken\n")
	q := r.evaluate("--files", "new.json")
	if q.Samples != 700 || q.Records != 701 || q.Refused != 1 || len(q.Reasons) != 1 || q.Reasons[0].Record != 700 || q.Checkpoint != learnt.Checkpoint {
		t.Errorf("%+v", q)
	}
	if q.AUC() < 0.99 || q.Loss == nil || *q.Loss > 0.4 || q.Rows != 70 {
		t.Errorf("AUC %v, loss %v, %d rows", q.AUC(), q.Loss, q.Rows)
	}
	if again := r.evaluate("--files", "new.json"); *again.Loss != *q.Loss || again.Checkpoint != q.Checkpoint {
		t.Errorf("then %+v", again)
	}
	if some := r.evaluate("--files", "new.json", "--steps", "3"); some.Records != 3*64 || some.Samples != 3*64 {
		t.Errorf("3 steps are %d records", some.Records)
	}
	if other := r.evaluate("--files", "new.json", "--batch", "7"); *other.Loss < *q.Loss*0.999 || *other.Loss > *q.Loss*1.001 {
		t.Errorf("in other batches the loss is %v, not %v", *other.Loss, *q.Loss)
	}
	if was := r.evaluate("--files", "new.json", "--checkpoint", fmt.Sprint(early)); !(*was.Loss > *q.Loss+0.2) || was.Checkpoint != early {
		t.Errorf("checkpoint %d predicts as well as the last one: %+v", early, was)
	}
	r.predicts()
	r.exports(learnt)
	for _, place := range [][]string{{"--checkpoint", "99"}, {"--bzid", "other"}, {"--dir", "nowhere"}} {
		c := parsed(t, &Evaluate{}, append([]string{"--dir", "job", "--files", "new.json"}, place...)...)
		if err := errors.Join(c.Validate(), c.Run(t.Context(), t.Output())); err == nil {
			t.Errorf("%q is taken", place)
		}
	}
}

// A job that is learnt in slices, with an evaluation after each, is the job that is learnt at once; in
// one order it has its bits.
func TestTrainAndEvaluate(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 1000))
	r.write("b.json", ratings(2, 730))
	r.write("test.json", ratings(3, 300))
	args := []string{"--spec", "model.yaml", "--files", "a.json,b.json", "--batch", "50", "--deterministic", "--shards", "2"}
	c := parsed(t, &TrainAndEvaluate{}, append([]string{"--dir", "slices", "--eval-files", "test.json", "--eval-every", "13", "--json"}, args...)...)
	var out bytes.Buffer
	if err := errors.Join(c.Validate(), c.Run(t.Context(), &out, t.Output())); err != nil {
		t.Fatal(err)
	}
	var slices []Slice
	for d := json.NewDecoder(&out); d.More(); {
		var s Slice
		if err := d.Decode(&s); err != nil {
			t.Fatal(err)
		}
		slices = append(slices, s)
	}
	if len(slices) != 3 || slices[0].Learnt.Learnt != 650 || slices[1].Learnt.Learnt != 1300 || slices[2].Learnt.Learnt != 1730 || slices[2].Eval.Checkpoint != slices[2].Learnt.Checkpoint {
		t.Fatalf("%+v", slices)
	}
	if !(*slices[2].Eval.Loss < *slices[0].Eval.Loss) || slices[2].Eval.Samples != 300 {
		t.Errorf("%+v, then %+v", slices[0].Eval, slices[2].Eval)
	}
	c.AsJSON = false
	if err := c.Run(t.Context(), &out, t.Output()); err != nil || !strings.HasPrefix(out.String(), "1730 learnt, checkpoint ") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("once more: %v, %q", err, out.String())
	}
	whole := parsed(t, &Train{}, append([]string{"--dir", "whole"}, args...)...)
	if err := whole.Validate(); err != nil {
		t.Fatal(err)
	}
	once, err := whole.Learn(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if a, b := hash(t, slices[2].Learnt, i), hash(t, once, i); a != b {
			t.Errorf("shard %d differs: %s in slices, %s at once", i, a, b)
		}
	}
	r.train("was begun with --epochs 1, from which its order follows", append(args, "--dir", "whole", "--epochs", "2", "--batch", "10")...)
	r.train("which is no multiple of --batch 40", append(args, "--dir", "whole", "--epochs", "2", "--batch", "40")...)
	for _, refused := range [][]string{{"--eval-every", "0"}, {"--steps", "3"}, {"--eval-files", "no-such"}, {}} {
		c := parsed(t, &TrainAndEvaluate{}, append(append([]string{"--dir", "new"}, args...), refused...)...)
		if err := c.Validate(); !errors.Is(err, flags.ErrUsage) {
			t.Errorf("%q: %v", refused, err)
		}
	}
}

// hash is that of a shard's state in the newest checkpoint.
func hash(t *testing.T, l *Learnt, shard int) string {
	t.Helper()
	m, err := checkpoint.ReadManifest(filepath.Join(filepath.Dir(l.Exports), fmt.Sprintf("model.ckpt-%d", l.Checkpoint), fmt.Sprintf("ps_%d", shard)))
	if err != nil {
		t.Fatal(err)
	}
	return m.Hash
}

// AUC is the first task's.
func (q *Quality) AUC() float64 { return *q.Tasks[0].AUC }

func (r room) predicts() {
	r.t.Helper()
	r.write("ask.json", "{\"userId\":1,\"movieId\":1}\n{\"userId\":2,\"movieId\":1}\n[]\n{\"userId\":100,\"movieId\":100}\n")
	c := parsed(r.t, &Predict{}, "--dir", "job", "--files", "ask.json", "--to", "scores")
	var complaints bytes.Buffer
	if err := errors.Join(c.Validate(), c.Run(r.t.Context(), nil, &complaints)); err != nil {
		r.t.Fatal(err)
	}
	raw, err := os.ReadFile("scores")
	if err != nil {
		r.t.Fatal(err)
	}
	var odd, even, unknown float64
	if n, err := fmt.Sscanf(strings.Replace(string(raw), "-\n", "", 1), "%g\n%g\n%g\n", &odd, &even, &unknown); n != 3 || err != nil || !(odd > 0.7 && even < 0.3 && unknown > 0.3 && unknown < 0.7) {
		r.t.Errorf("%q, %v", raw, err)
	}
	if !strings.HasPrefix(complaints.String(), "record 2: ") {
		r.t.Errorf("%q", complaints.String())
	}
	if err := c.Run(r.t.Context(), nil, &complaints); !errors.Is(err, fs.ErrExist) {
		r.t.Errorf("scores that are there: %v", err)
	}
	c.To, c.AsJSON = "", true
	var out bytes.Buffer
	if err := c.Run(r.t.Context(), &out, &complaints); err != nil || strings.Count(out.String(), "\n") != 4 || !strings.Contains(out.String(), "{\"record\":2,\"scores\":null}\n{\"record\":3,\"scores\":{\"") {
		r.t.Errorf("%v:\n%s", err, out.String())
	}
}

func (r room) exports(learnt *Learnt) {
	r.t.Helper()
	c := parsed(r.t, &Export{}, "--dir", "job", "--to", "out")
	if err := errors.Join(c.Validate(), c.Run(r.t.Context(), r.t.Output())); err != nil {
		r.t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir("out", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Name() == modelinfo.StateFile {
			return nil // the job has facts for it
		}
		files++
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(filepath.Join(learnt.Exports, strings.TrimPrefix(path, "out")))
		if !bytes.Equal(got, want) {
			r.t.Errorf("%s is not what the job exported", path)
		}
		return err
	})
	if err != nil || files < 9 {
		r.t.Errorf("%d files, %v", files, err)
	}
	if err := c.Run(r.t.Context(), r.t.Output()); err == nil {
		r.t.Error("an export was written over")
	}
	if err := parsed(r.t, &Export{}, "--dir", "job").Validate(); !errors.Is(err, flags.ErrUsage) {
		r.t.Errorf("without a folder: %v", err)
	}
}
