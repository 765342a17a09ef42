package publisher_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/publisher"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func start(t *testing.T, b bus.Bus, debounce time.Duration) (stop func()) {
	t.Helper()
	s, err := publisher.New(publisher.Config{Debounce: debounce}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	return controltest.Start(t, s)
}

func store(t *testing.T, b bus.Bus, drafts ...bus.Draft) uint64 {
	t.Helper()
	for i := range drafts {
		drafts[i].Expect = bus.Any
	}
	seqs, err := b.Log().Append(t.Context(), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return seqs[len(seqs)-1]
}

func up(id, kind string, shard int32) bus.Draft {
	return bus.Draft{Subject: events.Join(controltest.BZID, "container", id), Event: &container.Event{Body: &container.Event_Reported{
		Reported: &container.Reported{Container: &container.Container{Id: id, Kind: "serving", ServerType: kind, Shard: shard}}}}}
}

func down(id string) bus.Draft {
	return bus.Draft{Subject: events.Join(controltest.BZID, "container", id), Event: &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "test"}}}}
}

func load(name, dir string, version int64, shards int32, replicas uint32) bus.Draft {
	return bus.Draft{Subject: events.Join(controltest.BZID, "model", name), Header: events.Header{Correlation: "the request"},
		Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
			Load: &model.Load{ModelName: name, ModelDir: dir, Version: version, NumShard: shards, Replicas: replicas}}}}}
}

func unload(name string) bus.Draft {
	return bus.Draft{Subject: events.Join(controltest.BZID, "model", name),
		Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{}}}}
}

func assignments(r events.Recorded) string {
	out := ""
	for _, a := range r.Event.(*publish.Event).GetPlanned().GetAssignments() {
		for sub := range a.GetSubModels() {
			out += fmt.Sprintf("%s/%d@%s ", sub, a.GetReplica(), a.GetContainer())
		}
	}
	return out
}

func TestLife(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1, 2)
	stop := start(t, b, time.Millisecond)
	seq := store(t, b, load("m", dir, 1, 1, 2))
	failed := controltest.Next(t, b, seq, controltest.Of("planFailed"))
	accepted, err := b.Log().Get(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	if h := failed.Header; h.Source != "publisher" || h.Correlation != "the request" || h.Causation != accepted.Header.ID {
		t.Errorf("header %+v", h)
	}

	seq = store(t, b, up("e", "entry", -1), up("p", "ps", 0))
	planned := controltest.Next(t, b, seq, controltest.Of("planned"))
	if got := assignments(planned); got != "entry/0@e ps_0/0@p " {
		t.Errorf("planned %s", got)
	}
	if a := planned.Event.(*publish.Event).GetPlanned().GetAssignments()[1]; a.GetBytes()["ps_0"] == 0 || a.GetSubModels()["ps_0"] != filepath.Join(dir, "ps_0", "1") {
		t.Errorf("assignment %v", a)
	}
	seq = store(t, b, up("q", "ps", 0))
	if got := assignments(controltest.Next(t, b, seq, controltest.Of("planned"))); got != "entry/0@e ps_0/0@p ps_0/1@q " {
		t.Errorf("with one more %s", got)
	}
	seq = store(t, b, down("p"), up("r", "ps", 0))
	planned = controltest.Next(t, b, seq, func(r events.Recorded) bool {
		return controltest.Of("planned")(r) && assignments(r) == "entry/0@e ps_0/0@r ps_0/1@q "
	})
	seq = store(t, b, load("m", dir, 2, 1, 2))
	if p := controltest.Next(t, b, seq, controltest.Of("planned")).Event.(*publish.Event).GetPlanned(); p.GetVersion() != 2 || p.GetCause() != seq {
		t.Errorf("the next version: %v", p)
	}

	// A restart finds all as it should be and says nothing.
	stop()
	before := len(controltest.All(t, b))
	stop = start(t, b, time.Millisecond)
	if all := controltest.All(t, b); len(all) != before+1 || !controltest.Of("led")(all[before]) {
		t.Errorf("%d events after a restart, want who leads and nothing else\n%s", len(all)-before, controltest.Story(t, b))
	}
	stop()
	seq = store(t, b, unload("m"))
	start(t, b, time.Millisecond)
	controltest.Next(t, b, seq, controltest.Of("withdrawn"))

	junk := controltest.Publish(t, b, events.Join(controltest.BZID, "publish", "m"), `junk`)
	if l := controltest.Letter(t, b, junk); l.By != "publisher" {
		t.Errorf("letter %+v", l)
	}
}

// A load that follows its export is planned anew when a newer version is whole.
func TestFollowsItsExport(t *testing.T) {
	b := mem.New()
	root := filepath.Join(t.TempDir(), "exported_models")
	dir := controltest.Export(t, root, controltest.Spec("m"), 1, 3)
	s, err := publisher.New(publisher.Config{Debounce: time.Millisecond, Recheck: 5 * time.Millisecond}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	store(t, b, up("e", "entry", -1), up("p", "ps", 0))
	follows := load("m", dir, 3, 1, 1)
	follows.Event.(*model.Event).GetLoadAccepted().Load.Follow = true
	seq := store(t, b, follows, load("stays", dir, 3, 1, 1))
	planned := func(version int64) func(events.Recorded) bool {
		return func(r events.Recorded) bool {
			p, ok := r.Event.(*publish.Event)
			return ok && p.GetPlanned().GetVersion() == version
		}
	}
	controltest.Next(t, b, seq, planned(3))
	// The entry alone is no version yet.
	if err := os.MkdirAll(filepath.Join(root, "entry", "9"), 0o700); err != nil {
		t.Fatal(err)
	}
	controltest.Export(t, root, controltest.Spec("m"), 1, 5)
	p := controltest.Next(t, b, seq, planned(5)).Event.(*publish.Event).GetPlanned()
	if p.GetModelName() != "m" || p.GetCause() == 0 || p.GetAssignments()[1].GetSubModels()["ps_0"] != filepath.Join(dir, "ps_0", "5") {
		t.Errorf("planned %v", p)
	}
	// Gone again, it stays planned.
	if err := os.RemoveAll(filepath.Join(root, "entry", "5")); err != nil {
		t.Fatal(err)
	}
	seq = store(t, b, load("other", controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1), 1, 1, 1))
	controltest.Next(t, b, seq, controltest.Of("planned"))
	if n := controltest.Count(t, b, planned(3)); n != 2 {
		t.Errorf("version 3 is planned %d times, want once each\n%s", n, controltest.Story(t, b))
	}
}

// A lost container is replaced at once; new ones are waited for.
func TestDebounce(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	store(t, b, up("e", "entry", -1), up("p", "ps", 0), up("q", "ps", 0))
	start(t, b, time.Minute)
	seq := store(t, b, load("m", dir, 1, 1, 1))
	if got := assignments(controltest.Next(t, b, seq, controltest.Of("planned"))); got != "entry/0@e ps_0/0@p " {
		t.Fatalf("planned %s", got)
	}
	store(t, b, up("r", "ps", 0)) // nothing to hurry for
	seq = store(t, b, down("p"))
	if got := assignments(controltest.Next(t, b, seq, controltest.Of("planned"))); got != "entry/0@e ps_0/0@q " {
		t.Fatalf("planned %s", got)
	}
}

// Two publishers decide the same; the expected sequence lets one of them say it.
func TestTwoPublishers(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	start(t, b, time.Millisecond)
	start(t, b, time.Millisecond)
	store(t, b, up("e", "entry", -1), up("p", "ps", 0))
	const models = 10
	for i := range models {
		store(t, b, load(fmt.Sprintf("m%d", i), dir, 1, 1, 1))
	}
	for i := range models {
		controltest.Next(t, b, 1, func(r events.Recorded) bool {
			return controltest.Of("planned")(r) && r.Subject == events.Join(controltest.BZID, "publish", fmt.Sprintf("m%d", i))
		})
	}
	seq := store(t, b, unload("m0"))
	controltest.Next(t, b, seq, controltest.Of("withdrawn"))
	if n := controltest.Count(t, b, controltest.Of("planned")); n != models {
		t.Errorf("%d plans for %d loads\n%s", n, models, controltest.Story(t, b))
	}
}

// Versions count anew in another folder: what was planned of the first says nothing about
// the second.
func TestFollowsAnotherFolder(t *testing.T) {
	b := mem.New()
	first := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 57)
	second := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1, 2)
	store(t, b, up("any", "", -1))
	start(t, b, time.Millisecond)
	following := func(dir string, version int64) bus.Draft {
		d := load("m", dir, version, 1, 1)
		d.Event.(*model.Event).GetLoadAccepted().GetLoad().Follow = true
		return d
	}
	for _, tc := range []struct {
		dir             string
		accepted, wants int64
	}{{first, 57, 57}, {second, 1, 2}, {first, 57, 57}} {
		seq := store(t, b, following(tc.dir, tc.accepted))
		p := controltest.Next(t, b, seq, controltest.Of("planned", "planFailed")).Event.(*publish.Event)
		if p.GetPlanned().GetVersion() != tc.wants || p.GetPlanned().GetModelDir() != tc.dir {
			t.Fatalf("a load of %s is answered by %v", tc.dir, p)
		}
	}
}
