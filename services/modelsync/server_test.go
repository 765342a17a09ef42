package modelsync_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/sync"
	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelsync"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, b bus.Bus, dir string) (stop func()) {
	t.Helper()
	s, err := modelsync.New(modelsync.Config{Host: "h", Dir: dir, Retry: time.Millisecond, Flush: 5 * time.Millisecond}, controltest.Env(b))
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
		e, _ := r.Event.(*sync.Event)
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
		c := r.Event.(*sync.Event).GetModelCopied()
		if want := filepath.Join(dir, "m", sub, "1"); c.GetPath() != want || c.GetHost() != "h" || c.GetBytes() == 0 {
			t.Errorf("copied %v, want %s", c, want)
		}
		if r.Header.Correlation != "the request" || r.Header.Causation == "" {
			t.Errorf("header %+v", r.Header)
		}
	}
	if _, err := ckpt.ReadShard(filepath.Join(dir, "m", "ps_0", "1")); err != nil {
		t.Error(err)
	}
	if _, err := ckpt.ReadEntry(filepath.Join(dir, "m", "entry", "1")); err != nil {
		t.Error(err)
	}

	// A restart finds its copies and says nothing new; what is gone is copied again.
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "m", "entry", "1")); err != nil {
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
	until(t, "version 1 is gone", func() bool {
		return fmt.Sprint(versions(t, dir, "ps_0"), versions(t, dir, "entry")) == "[2 3] [2 3]"
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

func versions(t *testing.T, dir, sub string) []int64 {
	t.Helper()
	v, err := ckpt.Versions(filepath.Join(dir, "m", sub))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// until waits for something on disk, of which nobody tells.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(controltest.Patience)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not so: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
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
	if f := failed.Event.(*sync.Event).GetTargetFailed(); f.GetTarget() != "h" || !strings.Contains(f.GetReason(), "cannot be read") {
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

func TestDeltasApplied(t *testing.T) {
	b := mem.New()
	stop := start(t, b, filepath.Join(t.TempDir(), "copies"))
	subject := bus.PulseSubject(controltest.BZID, "applied", "c1")
	say := func(seq uint64) {
		body, err := events.Marshal(&sync.DeltasApplied{ModelName: "m", SubModel: "ps_0", Container: "c1",
			Applied: []*sync.Applied{{SyncSeq: seq, UnixUs: 5}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Signals().Signal(t.Context(), subject, body); err != nil {
			t.Fatal(err)
		}
	}
	recorded := func(seq uint64) func(events.Recorded) bool {
		return func(r events.Recorded) bool {
			e, _ := r.Event.(*sync.Event)
			for _, a := range e.GetDeltasApplied().GetApplied() {
				if a.GetSyncSeq() == seq {
					return r.Subject == events.Join(controltest.BZID, "sync", "m/ps_0/c1")
				}
			}
			return false
		}
	}
	// Listening begins with the lease, of which Ready does not tell: signals may be lost.
	until(t, "somebody listens", func() bool { say(1); return controltest.Count(t, b, recorded(1)) > 0 })
	if err := b.Signals().Signal(t.Context(), subject, []byte("junk")); err != nil {
		t.Fatal(err)
	}
	say(2)
	controltest.Next(t, b, 1, recorded(2))
	stop()

	// Two of them: one records.
	start(t, b, filepath.Join(t.TempDir(), "copies"))
	start(t, b, filepath.Join(t.TempDir(), "copies"))
	until(t, "somebody listens", func() bool { say(3); return controltest.Count(t, b, recorded(3)) > 0 })
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
