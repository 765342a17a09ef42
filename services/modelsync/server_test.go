package modelsync_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelsync"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func start(t *testing.T, b bus.Bus, dir string, change ...func(*modelsync.Config, *services.Env)) (stop func()) {
	t.Helper()
	cfg, env := modelsync.Config{Host: "h", Dir: dir, Retry: time.Millisecond, Flush: 5 * time.Millisecond}, controltest.Env(b)
	for _, f := range change {
		f(&cfg, &env)
	}
	s, err := modelsync.New(cfg, env)
	if err != nil {
		t.Fatal(err)
	}
	return controltest.Start(t, s)
}

// publishPlan puts ps_0 and the entry of one version on two containers.
func publishPlan(t *testing.T, b bus.Bus, export string, version int64) uint64 {
	t.Helper()
	path := func(sub string) map[string]string {
		return map[string]string{sub: filepath.Join(export, sub, fmt.Sprint(version))}
	}
	seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "publish", "m"), Expect: bus.Any, Header: events.Header{Correlation: "the request"},
		Event: &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{ModelName: "m", ModelDir: export, Version: version, NumPs: 1, Assignments: []*publish.Assignment{
			{Container: "a", SubModels: path("ps_0")}, {Container: "b", Replica: 1, SubModels: path("ps_0")}, {Container: "a", SubModels: path("entry")},
		}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return seqs[0]
}

func copied(sub string, version int64) func(events.Recorded) bool {
	return func(r events.Recorded) bool {
		e, _ := r.Event.(*transfer.Event)
		c := e.GetModelCopied()
		return c.GetSubModel() == sub && c.GetVersion() == version
	}
}

func TestCopies(t *testing.T) {
	b := mem.New()
	export := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1, 2, 3)
	dir := filepath.Join(t.TempDir(), "copies")
	stop := start(t, b, dir)
	seq := publishPlan(t, b, export, 1)
	for _, sub := range []string{"ps_0", "entry"} {
		r := controltest.Next(t, b, seq, copied(sub, 1))
		c := r.Event.(*transfer.Event).GetModelCopied()
		if c.GetPath() != copyOf(dir, export, sub, 1) || c.GetSource() != filepath.Join(export, sub, "1") || len(c.GetExport()) != 64 ||
			c.GetHost() != "h" || c.GetBytes() == 0 {
			t.Errorf("copied %v, want %s", c, copyOf(dir, export, sub, 1))
		}
		if r.Header.Correlation != "the request" || r.Header.Causation == "" {
			t.Errorf("header %+v", r.Header)
		}
	}
	if _, err := checkpoint.ReadShard(copyOf(dir, export, "ps_0", 1)); err != nil {
		t.Error(err)
	}
	if _, err := checkpoint.ReadEntry(copyOf(dir, export, "entry", 1)); err != nil {
		t.Error(err)
	}

	// A restart finds its copies and says nothing new; what is gone is copied again.
	stop()
	if err := os.RemoveAll(copyOf(dir, export, "entry", 1)); err != nil {
		t.Fatal(err)
	}
	last, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop = start(t, b, dir)
	controltest.Next(t, b, last+1, copied("entry", 1))

	// Later versions push out the older ones but one.
	seq = publishPlan(t, b, export, 2)
	controltest.Next(t, b, seq, copied("ps_0", 2))
	controltest.Next(t, b, seq, copied("entry", 2))
	seq = publishPlan(t, b, export, 3)
	controltest.Next(t, b, seq, copied("ps_0", 3))
	controltest.Next(t, b, seq, copied("entry", 3))
	wait.For(t, "version 1 is gone", func() bool {
		return fmt.Sprint(versions(t, dir, export, "ps_0"), versions(t, dir, export, "entry")) == "[2 3] [2 3]"
	})
	stop()
	if n := controltest.Count(t, b, controltest.Of("modelCopied")); n != 7 {
		t.Errorf("%d copies recorded, want 7\n%s", n, controltest.Story(t, b))
	}
	junk := controltest.Publish(t, b, events.Join(controltest.BZID, "sync", "m/ps_0/h"), `junk`)
	start(t, b, dir)
	if l := controltest.Letter(t, b, junk); l.By != "model-sync" {
		t.Errorf("letter %+v", l)
	}
}

// copyOf is where the copy of one version of an export lies.
func copyOf(dir, export, sub string, version int64) string {
	origin := sha256.Sum256([]byte(export))
	return filepath.Join(dir, "m", hex.EncodeToString(origin[:6]), sub, fmt.Sprint(version))
}

func versions(t *testing.T, dir, export, sub string) []int64 {
	t.Helper()
	v, err := checkpoint.Versions(filepath.Dir(copyOf(dir, export, sub, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A source that is not there yet is said once and tried until it is.
func TestSourceMissing(t *testing.T) {
	b := mem.New()
	root := t.TempDir()
	export := controltest.Export(t, filepath.Join(root, "away"), controltest.Spec("m"), 1, 1)
	here := filepath.Join(root, "exported_models")
	start(t, b, filepath.Join(root, "copies"))
	seq := publishPlan(t, b, here, 1)
	failed := controltest.Next(t, b, seq, controltest.Of("targetFailed"))
	controltest.Next(t, b, failed.Seq+1, controltest.Of("targetFailed")) // the other sub-model
	if f := failed.Event.(*transfer.Event).GetTargetFailed(); f.GetTarget() != "h" || !strings.Contains(f.GetReason(), "cannot be read") {
		t.Errorf("failed %v", f)
	}
	if err := os.Rename(export, here); err != nil {
		t.Fatal(err)
	}
	controltest.Next(t, b, seq, copied("ps_0", 1))
	controltest.Next(t, b, seq, copied("entry", 1))
	if n := controltest.Count(t, b, controltest.Of("targetFailed")); n != 2 {
		t.Errorf("%d failures said, want one for each sub-model\n%s", n, controltest.Story(t, b))
	}
}

// jobExport is an export whose ps_0 says which job made it.
func jobExport(t *testing.T, dir, job string, bias float32) string {
	t.Helper()
	controltest.Export(t, dir, controltest.Spec("m"), 1, 1)
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: job, Checkpoint: 1, Shard: 0, Shards: 1},
		Dense: map[string]checkpoint.Variable{"bias": {Shape: []uint32{1}, Values: []float32{bias}}}}
	if _, err := checkpoint.WriteShard(filepath.Join(dir, "ps_0", "1"), s); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Versions count from 1 in each job: version 1 of another folder, or of a folder made
// anew, is another model.
func TestSameVersionOfAnotherExport(t *testing.T) {
	b := mem.New()
	root := t.TempDir()
	first := jobExport(t, filepath.Join(root, "one", "exported_models"), "one", 1)
	second := jobExport(t, filepath.Join(root, "two", "exported_models"), "two", 2)
	dir := filepath.Join(root, "copies")
	start(t, b, dir)
	holds := func(seq uint64, export, job string) {
		t.Helper()
		c := controltest.Next(t, b, seq, copied("ps_0", 1)).Event.(*transfer.Event).GetModelCopied()
		if want := filepath.Join(export, "ps_0", "1"); c.GetSource() != want {
			t.Errorf("the fact says that %s was copied, want %s", c.GetSource(), want)
		}
		if s, err := checkpoint.ReadShard(c.GetPath()); err != nil || s.Manifest.Job != job {
			t.Errorf("the copy in %s is of job %q, %v; want %q", c.GetPath(), s.Manifest.Job, err, job)
		}
	}
	holds(publishPlan(t, b, first, 1), first, "one")
	holds(publishPlan(t, b, second, 1), second, "two")
	holds(publishPlan(t, b, first, 1), first, "one")

	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	jobExport(t, first, "again", 3)
	holds(publishPlan(t, b, first, 1), first, "again")
}

// A host holds what its own containers serve, and no more for longer than the grace.
func TestCopiesWhatItsContainersServe(t *testing.T) {
	b := mem.New()
	export := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	for id, host := range map[string]string{"a": "h", "b": "other"} {
		_, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "container", id), Event: &container.Event{Body: &container.Event_Reported{
			Reported: &container.Reported{Container: &container.Container{Id: id, Kind: "serving", Host: host}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "copies")
	start(t, b, dir, func(c *modelsync.Config, _ *services.Env) { c.Grace = time.Nanosecond })
	plan := func(assignments ...*publish.Assignment) uint64 {
		seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "publish", "m"), Expect: bus.Any, Event: &publish.Event{Body: &publish.Event_Planned{
			Planned: &publish.Planned{ModelName: "m", ModelDir: export, Version: 1, NumPs: 1, Assignments: assignments}}}})
		if err != nil {
			t.Fatal(err)
		}
		return seqs[0]
	}
	on := func(id, sub string) *publish.Assignment {
		return &publish.Assignment{Container: id, SubModels: map[string]string{sub: filepath.Join(export, sub, "1")}}
	}
	controltest.Next(t, b, plan(on("a", "entry"), on("b", "ps_0")), copied("entry", 1))
	// It is the other way round now: once this copy is said, the first round was over.
	controltest.Next(t, b, plan(on("b", "entry"), on("a", "ps_0")), copied("ps_0", 1))
	if n := controltest.Count(t, b, controltest.Of("modelCopied")); n != 2 {
		t.Errorf("%d copies, want one for each plan\n%s", n, controltest.Story(t, b))
	}
	wait.For(t, "the entry is gone", func() bool {
		return fmt.Sprint(versions(t, dir, export, "ps_0"), versions(t, dir, export, "entry")) == "[1] []"
	})
	_, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "publish", "m"), Expect: bus.Any, Event: &publish.Event{Body: &publish.Event_Withdrawn{
		Withdrawn: &publish.Withdrawn{ModelName: "m", Reason: "unloaded", Cause: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "nothing is left of the unloaded model", func() bool { _, err := os.Stat(filepath.Join(dir, "m")); return os.IsNotExist(err) })
}

// Files may have names that no text holds: what fails because of them is told all the same.
func TestFailuresWithOddNamesAreTold(t *testing.T) {
	b := mem.New()
	root := t.TempDir()
	export := controltest.Export(t, filepath.Join(root, "exported_models"), controltest.Spec("m"), 1, 1)
	if err := os.Symlink("nowhere", filepath.Join(export, "ps_0", "1", "\xff")); err != nil {
		t.Fatal(err)
	}
	start(t, b, filepath.Join(root, "copies"))
	failed := controltest.Next(t, b, publishPlan(t, b, export, 1), controltest.Of("targetFailed")).Event.(*transfer.Event).GetTargetFailed()
	if failed.GetSubModel() != "ps_0" || !strings.Contains(failed.GetReason(), "no such file") {
		t.Errorf("failed %v", failed)
	}
}

// A copy that fails for ever is a state of the role, until it succeeds.
func TestFailingCopiesAreAProblem(t *testing.T) {
	b := mem.New()
	root := t.TempDir()
	export := controltest.Export(t, filepath.Join(root, "away"), controltest.Spec("m"), 1, 1)
	state := health.New()
	start(t, b, filepath.Join(root, "copies"), func(_ *modelsync.Config, e *services.Env) { e.Health = state })
	publishPlan(t, b, filepath.Join(root, "exported_models"), 1)
	wait.For(t, "the role says that copies fail", func() bool {
		return strings.Contains(state.Summary(), "copies: m/entry version 1: the source cannot be read") && strings.Contains(state.Summary(), "(and 1 more)")
	})
	if err := os.Rename(export, filepath.Join(root, "exported_models")); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the role is well again", func() bool { return state.Summary() == "" })
}

// What happens in other contexts and namespaces makes nobody look, and what happens often
// makes nobody look often.
func TestRoundsAreFew(t *testing.T) {
	b := mem.New()
	reg := prometheus.NewRegistry()
	const many = 2000
	began := time.Now() // its rounds before the first event count too
	start(t, b, filepath.Join(t.TempDir(), "copies"), func(_ *modelsync.Config, e *services.Env) { e.Metrics = reg })
	for i := range many {
		_, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "publish", "m"), Expect: bus.Any, Event: &publish.Event{Body: &publish.Event_PlanFailed{
			PlanFailed: &publish.PlanFailed{ModelName: "m", Reason: fmt.Sprint("no container, ", i), Cause: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var rounds int // counted before the time is taken, so that what comes meanwhile is allowed
	wait.For(t, "a round", func() bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "monolith_modelsync_rounds_total" {
				rounds = int(f.GetMetric()[0].GetCounter().GetValue())
			}
		}
		return rounds > 0
	})
	if most := int(time.Since(began)/(50*time.Millisecond)) + 3; rounds > most {
		t.Errorf("%d rounds for %d events, at most %d are allowed", rounds, many, most)
	}
}

func TestDeltasApplied(t *testing.T) {
	b := mem.New()
	stop := start(t, b, filepath.Join(t.TempDir(), "copies"))
	subject := bus.PulseSubject(controltest.BZID, "applied", "c1")
	say := func(seq uint64) {
		body, err := events.Marshal(&transfer.DeltasApplied{ModelName: "m", SubModel: "ps_0", Container: "c1",
			Applied: []*transfer.Applied{{SyncSeq: seq, UnixUs: 5}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Signals().Signal(t.Context(), subject, body); err != nil {
			t.Fatal(err)
		}
	}
	recorded := func(seq uint64) func(events.Recorded) bool {
		return func(r events.Recorded) bool {
			e, _ := r.Event.(*transfer.Event)
			for _, a := range e.GetDeltasApplied().GetApplied() {
				if a.GetSyncSeq() == seq {
					return r.Subject == events.Join(controltest.BZID, "sync", "m/ps_0/c1")
				}
			}
			return false
		}
	}
	// Listening begins with the lease, of which Ready does not tell: signals may be lost.
	wait.For(t, "somebody listens", func() bool { say(1); return controltest.Count(t, b, recorded(1)) > 0 })
	if err := b.Signals().Signal(t.Context(), subject, []byte("junk")); err != nil {
		t.Fatal(err)
	}
	say(2)
	controltest.Next(t, b, 1, recorded(2))
	stop()

	// Two of them: one records.
	start(t, b, filepath.Join(t.TempDir(), "copies"))
	start(t, b, filepath.Join(t.TempDir(), "copies"))
	wait.For(t, "somebody listens", func() bool { say(3); return controltest.Count(t, b, recorded(3)) > 0 })
	say(4)
	controltest.Next(t, b, 1, recorded(4))
	say(5)
	controltest.Next(t, b, 1, recorded(5))
	if n := controltest.Count(t, b, recorded(4)); n != 1 {
		t.Errorf("recorded %d times\n%s", n, controltest.Story(t, b))
	}
}

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  modelsync.Config
		ok   bool
	}{
		{"given", modelsync.Config{Host: "h", Dir: "/copies"}, true},
		{"no host", modelsync.Config{Dir: "/copies"}, false},
		{"no dir", modelsync.Config{Host: "h"}, false},
		{"relative dir", modelsync.Config{Host: "h", Dir: "copies"}, false},
		{"a path as host", modelsync.Config{Host: "a/b", Dir: "/copies"}, false},
		{"negative", modelsync.Config{Host: "h", Dir: "/copies", Retry: -1}, false},
	} {
		if err := tc.cfg.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
