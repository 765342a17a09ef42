package portal_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/portal"
)

// loadRequest is a request for a load of the export in dir under a name.
func loadRequest(name, dir string) string {
	return fmt.Sprintf(`{"loadRequested":{"load":{"modelName":%q,"modelDir":%q}}}`, name, dir)
}

// Two requests that carry the same id, as a script that names its deployment may send
// them, have two answers, also across a restart.
func TestRequestsOfOneID(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	ask := func(name string) uint64 {
		t.Helper()
		seq, err := b.Publish(t.Context(), string(events.Join(controltest.BZID, "model", name).Request()), map[string][]string{"ce-id": {"deploy-42"}}, []byte(loadRequest(name, dir)))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	accepted := func(seq uint64, name string) {
		t.Helper()
		controltest.Next(t, b, seq, func(r events.Recorded) bool {
			return controltest.Of("loadAccepted")(r) && r.Subject == events.Join(controltest.BZID, "model", name) && r.Header.Causation == "deploy-42"
		})
	}
	stop := start(t, b)
	one, two := ask("m1"), ask("m2")
	accepted(one, "m1")
	accepted(two, "m2")
	stop()
	three, four := ask("m3"), ask("m4")
	start(t, b)
	accepted(three, "m3")
	accepted(four, "m4")
	if n := controltest.Count(t, b, controltest.Of("loadAccepted", "loadRefused")); n != 4 {
		t.Errorf("%d answers to 4 requests\n%s", n, controltest.Story(t, b))
	}
}

// A portal whose letters were purged, behind a log that was trimmed, starts, and parks
// nothing again.
func TestPurgeAndTrim(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	snapshots := t.TempDir()
	begin := func() (stop func()) {
		t.Helper()
		s, err := portal.New(portal.Config{SnapshotDir: snapshots}, controltest.Env(b))
		if err != nil {
			t.Fatal(err)
		}
		return controltest.Start(t, s)
	}
	subject := events.Join(controltest.BZID, "model", "m")
	stop := begin()
	junk := controltest.Publish(t, b, subject.Request(), `junk`)
	controltest.Letter(t, b, junk)
	stop()
	var last uint64
	for i := range 30 {
		seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "container", "c"), Expect: bus.Any,
			Event: &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: int64(i)}}}})
		if err != nil {
			t.Fatal(err)
		}
		last = seqs[0]
	}
	begin()() // a snapshot at the end
	if err := b.Log().(bus.Trimmer).Trim(t.Context(), last-5); err != nil {
		t.Fatal(err)
	}
	if n, err := b.DeadLetters().Purge(t.Context(), func(bus.Parked) bool { return true }); err != nil || n != 1 {
		t.Fatalf("purge = %d, %v", n, err)
	}
	begin()
	controltest.Next(t, b, controltest.Publish(t, b, subject.Request(), loadRequest("m", dir)), controltest.Of("loadAccepted"))
	if all, err := b.DeadLetters().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("letters %+v, %v, want none", all, err)
	}
}

// Bad requests that fill the dead letters do not keep good ones from their answers.
func TestFullLetters(t *testing.T) {
	b := mem.New(mem.LetterLimit(64 << 10))
	start(t, b)
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	for range 4 {
		controltest.Publish(t, b, events.Join(controltest.BZID, "model", "junk").Request(), string(make([]byte, 30<<10)))
	}
	good := controltest.Publish(t, b, events.Join(controltest.BZID, "model", "m").Request(), loadRequest("m", dir))
	controltest.Next(t, b, good, controltest.Of("loadAccepted"))
	all, err := b.DeadLetters().List(t.Context())
	if err != nil || len(all) != 1 || all[0].More == nil || all[0].More.Count != 4 || all[0].By != "portal" {
		t.Errorf("letters %+v, %v, want a summary of 4", all, err)
	}
}
