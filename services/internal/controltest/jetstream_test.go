package controltest_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelsync"
	"github.com/monolith-go/monolith/services/portal"
	"github.com/monolith-go/monolith/services/publisher"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// connect is a connection of its own.
func connect(t *testing.T, srv *natsserver.Server, name string) *jetstream.Bus {
	t.Helper()
	b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: srv.URL(), Name: name, BZID: controltest.BZID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// twoOfEach starts every owner twice.
func twoOfEach(t *testing.T, srv *natsserver.Server) {
	t.Helper()
	run := func(r services.Role, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		controltest.Start(t, r)
	}
	copies := t.TempDir()
	for i := range 2 {
		env := controltest.Env(connect(t, srv, fmt.Sprint("roles-", i)))
		run(portal.New(portal.Config{}, env))
		run(publisher.New(publisher.Config{Debounce: 50 * time.Millisecond}, controltest.Env(env.Bus)))
		run(replicaregistry.New(replicaregistry.Config{Lease: 1500 * time.Millisecond}, controltest.Env(env.Bus)))
		run(modelsync.New(modelsync.Config{Host: "h", Dir: filepath.Join(copies, fmt.Sprint(i))}, controltest.Env(env.Bus)))
	}
}

// Two of every owner on the real log, each over a connection of its own, and a container
// that dies: expected sequences, group commits and signals of NATS instead of a mutex.
func TestTwoOfEverybodyOnJetStream(t *testing.T) {
	srv, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	b := connect(t, srv, "test")
	twoOfEach(t, srv)
	agents := []*agent{{id: "entry", kind: "entry", shard: -1}, {id: "p0", kind: "ps", shard: 0}, {id: "p1", kind: "ps", shard: 1}, {id: "spare", kind: "ps", shard: -1}}
	for _, a := range agents {
		a.start(t, b)
		defer a.stop()
	}
	for _, a := range agents {
		controltest.Next(t, b, 1, func(r events.Recorded) bool {
			return controltest.Of("reported")(r) && r.Subject == events.Join(controltest.BZID, "container", a.id)
		})
	}

	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 2, 7)
	var wg sync.WaitGroup
	replies := make([]string, 8)
	for i := range replies {
		wg.Go(func() {
			replies[i], _ = controltest.Call(t, b, "portal.load", fmt.Sprintf(`{"modelName":"m","modelDir":%q}`, dir))
		})
	}
	wg.Wait()
	for _, r := range replies {
		if r == "" || r != replies[0] {
			t.Fatalf("answers differ: %q\n%s", replies, controltest.Story(t, b))
		}
	}
	available := func(from uint64, key string) {
		t.Helper()
		controltest.Next(t, b, from, func(r events.Recorded) bool {
			return controltest.Of("stateChanged")(r) && r.Subject == events.Join(controltest.BZID, "replica", key)
		})
	}
	for _, key := range []string{"m/entry:0/0", "m/ps:0/0", "m/ps:1/0"} {
		available(1, key)
	}
	agents[2].stop()
	lost := controltest.Next(t, b, 1, func(r events.Recorded) bool {
		return controltest.Of("lost")(r) && r.Subject == events.Join(controltest.BZID, "container", "p1")
	})
	available(lost.Seq, "m/ps:1/0")

	for what, want := range map[string]int{"declared": 1, "loadAccepted": 1, "planned": 2, "lost": 2, "registered": 4, "reported": 4} {
		if n := controltest.Count(t, b, controltest.Of(what)); n != want {
			t.Errorf("%s %d times, want %d", what, n, want)
		}
	}
	if t.Failed() {
		t.Log(controltest.Story(t, b))
	}
}
