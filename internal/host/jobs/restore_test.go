package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/registry"
)

// A job that begins with another one's checkpoint, and learns the same records on from there, ends with
// the bits of one that learnt them all: over another number of shards, too.
func TestTrainFromAnotherJob(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 1000))
	r.write("b.json", ratings(2, 730))
	files := []string{"--files", "a.json,b.json", "--batch", "50", "--deterministic"}
	in := func(dir, shards string, args ...string) []string {
		return append(append(args, files...), "--dir", dir, "--shards", shards)
	}
	whole := r.train("", in("whole", "2")...)
	r.train("", in("first", "2", "--steps", "11")...)
	r.train("", in("first", "2", "--steps", "2")...)
	from := []string{"--restore-dir", "first", "--restore-offsets"}

	for _, shards := range []string{"2", "3"} {
		l := r.train("", in("second-"+shards, shards, from...)...)
		if l.Learnt != 1730 || l.Samples != 1730-13*50 || l.Version != l.Checkpoint || !strings.Contains(l.Parent, "of job likes in ") {
			t.Errorf("%+v", l)
		}
		if shards == "2" {
			for i := range 2 {
				if a, b := hash(t, l, i), hash(t, whole, i); a != b {
					t.Errorf("shard %d differs: %s continued, %s at once", i, a, b)
				}
			}
		}
		q, want := r.evaluate("--files", "a.json", "--dir", "second-"+shards), r.evaluate("--files", "a.json", "--dir", "whole")
		if *q.Loss != *want.Loss || q.Rows != want.Rows {
			t.Errorf("over %s shards the loss is %v of %d rows, at once %v of %d", shards, *q.Loss, q.Rows, *want.Loss, want.Rows)
		}
	}
	r.parentOf("second-2", "first")
	if again := r.train("", in("second-2", "2", from...)...); again.Learnt != 1730 || again.Samples != 0 {
		t.Errorf("once more: %+v", again)
	}
	if more := r.train("", in("steps", "2", append(from, "--steps", "3")...)...); more.Learnt != 16*50 || more.Samples != 150 {
		t.Errorf("three steps on: %+v", more)
	}
	r.train("which these files do not have", "--files", "a.json", "--dir", "third", "--restore-dir", "first", "--restore-offsets")
}

// parentOf finds in the log of a job from where it began.
func (r room) parentOf(dir, parent string) {
	r.t.Helper()
	b, closed, err := host.DialFolder(r.t.Context(), dir, connect.Config{BZID: "demo", Level: "warn"}, "test")
	if err != nil {
		r.t.Fatal(err)
	}
	defer closed()
	cuts, err := folded(r.t.Context(), b, registry.Lineage.Only("demo"))
	if err != nil {
		r.t.Fatal(err)
	}
	p := cuts.Jobs["likes"].Started.V.GetParent()
	want, err := filepath.Abs(filepath.Join(parent, "training", "likes"))
	if err != nil {
		r.t.Fatal(err)
	}
	if p.GetJob() != "likes" || p.GetDir() != want || p.GetCheckpoint() < 2 || !p.GetOffsets() || !p.GetOptimizer() {
		r.t.Errorf("the job began from %v, want %s", p, want)
	}
}

// A job may begin with what another one knows and learn other records, all of them; what cannot be taken
// over is named before anything starts.
func TestTrainOnOtherRecords(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 2000))
	r.write("b.json", ratings(2, 300))
	parent := r.train("", "--files", "a.json", "--dir", "first", "--shards", "2")
	untrained := r.train("", "--files", "b.json", "--dir", "untrained")
	warm := r.train("", "--files", "b.json", "--dir", "second", "--restore-dir", filepath.Dir(parent.Exports))
	if warm.Learnt != 300 || warm.Samples != 300 || !(*warm.Loss < *untrained.Loss-0.1) {
		t.Errorf("loss %v of %d records, untrained %v", *warm.Loss, warm.Learnt, *untrained.Loss)
	}
	if piped, err := r.pipe(t.Context(), "piped", strings.NewReader(ratings(2, 300)), "--restore-dir", "first"); err != nil || piped.Learnt != 300 || piped.Parent == "" {
		t.Errorf("%+v, %v", piped, err)
	}
	r.write("model.yaml", strings.Replace(spec, "adagrad: {learning_rate: 0.1}", "adam: {learning_rate: 0.01}", 1))
	begin := time.Now()
	r.train("--restore-optimizer=false begins them anew", "--files", "b.json", "--dir", "third", "--restore-dir", "first")
	if fresh := r.train("", "--files", "b.json", "--dir", "third", "--restore-dir", "first", "--restore-optimizer=false"); !(*fresh.Loss < *untrained.Loss-0.1) {
		t.Errorf("with another optimizer the loss is %v after %v", *fresh.Loss, time.Since(begin))
	}
	r.write("model.yaml", strings.NewReplacer("name: movie, dim: 1", "name: movie, dim: 2", "name: user, dim: 1", "name: user, dim: 2", "add: {bias: true}", "units: 1").Replace(spec))
	r.train(`table "movie" has rows of 1, declared are 2`, "--files", "b.json", "--dir", "fourth", "--restore-dir", "first")
	r.write("model.yaml", strings.NewReplacer("{name: logit, add", "{name: other, add", "{logit: logit}", "{logit: other}").Replace(spec))
	r.train(`variable "other/bias" is not in it`, "--files", "b.json", "--dir", "fourth", "--restore-dir", "first")
	r.write("model.yaml", spec)
	for want, args := range map[string][]string{
		"no checkpoint lies in nowhere":          {"--restore-dir", "nowhere"},
		"holds no checkpoint 99":                 {"--restore-dir", "first", "--restore-ckpt", "model.ckpt-99"},
		"job likes has no checkpoint yet":        {"--restore-ckpt", "3"},
		`restore-ckpt "three" is no checkpoint`:  {"--restore-dir", "first", "--restore-ckpt", "three"},
		"checkpoints of several jobs lie in all": {"--restore-dir", "all"},
	} {
		if err := errors.Join(os.MkdirAll("all/training/a/model.ckpt-1", 0o755), os.MkdirAll("all/training/b/model.ckpt-1", 0o755)); err != nil {
			t.Fatal(err)
		}
		c := parsed(t, &Train{}, append([]string{"--spec", "model.yaml", "--dir", "fifth", "--files", "b.json"}, args...)...)
		err := c.Validate()
		if err == nil {
			_, err = c.Learn(t.Context(), t.Output())
		}
		if !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// A job that has ended learns again from a checkpoint of its own: what came behind it, once.
func TestTrainReturns(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 1000))
	files := []string{"--files", "a.json", "--batch", "50", "--partitions", "1"}
	first := r.train("", append(files, "--steps", "5")...)
	r.train("", append(files, "--steps", "5")...)
	r.train("name one of [1 2", append(files, "--restore-ckpt", "99")...)
	back := append(files, "--restore-ckpt", strconv.FormatInt(first.Checkpoint, 10))
	if l := r.train("", back...); l.Samples != 750 || l.Learnt != 1000 || l.Left != 0 {
		t.Errorf("%d samples were learnt behind checkpoint %d, %d in all, %d are left; want 750 of 1000", l.Samples, first.Checkpoint, l.Learnt, l.Left)
	}
	var said strings.Builder
	again := parsed(t, &Train{}, append([]string{"--spec", "model.yaml", "--dir", "job"}, back...)...)
	if err := again.Validate(); err != nil {
		t.Fatal(err)
	}
	l, err := again.Learn(t.Context(), &said)
	if err != nil || l.Samples != 0 || l.Learnt != 1000 {
		t.Errorf("the same command once more learns %+v, %v", l, err)
	}
	if want := fmt.Sprintf("has been sent back to checkpoint %d before, and goes on from where it stands", first.Checkpoint); !strings.Contains(said.String(), want) {
		t.Errorf("%s; want %q", &said, want)
	}
}
