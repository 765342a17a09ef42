package controltest_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/wait"
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
func twoOfEach(t *testing.T, srv *natsserver.Server, lease time.Duration) {
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
		run(replicaregistry.New(replicaregistry.Config{Lease: lease}, controltest.Env(env.Bus)))
		run(modelsync.New(modelsync.Config{Host: "h", Dir: filepath.Join(copies, fmt.Sprint(i))}, controltest.Env(env.Bus)))
	}
}

// Two of every owner on the real log, each over a connection of its own, and a container
// that dies: expected sequences, group commits and signals of NATS instead of a mutex.
//
// Where a machine was so busy that a heartbeat came later than a lease lasts, a container was
// lost rightly: it is told again with longer leases.
func TestTwoOfEverybodyOnJetStream(t *testing.T) {
	for lease := 1500 * time.Millisecond; ; lease *= 2 {
		var silence time.Duration
		t.Run(fmt.Sprint("leases of ", lease), func(t *testing.T) { silence = twoOfEverybody(t, lease) })
		if silence < lease || t.Failed() {
			return
		}
		t.Logf("an agent was not heard of for %v: nothing was tested", silence)
		if lease > wait.Patience {
			t.Fatal("this machine is too busy")
		}
	}
}

// twoOfEverybody returns the longest time for which an agent was not heard of while it lived;
// what it counts says something if that is less than a lease.
func twoOfEverybody(t *testing.T, lease time.Duration) (silence time.Duration) {
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
	twoOfEach(t, srv, lease)
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
	silence = agents[2].silence()
	lost := controltest.Next(t, b, 1, func(r events.Recorded) bool {
		return controltest.Of("lost")(r) && r.Subject == events.Join(controltest.BZID, "container", "p1")
	})
	available(lost.Seq, "m/ps:1/0")

	wants := map[string]int{"declared": 1, "loadAccepted": 1, "planned": 2, "lost": 2, "registered": 4, "reported": 4}
	counts := map[string]int{}
	for what := range wants {
		counts[what] = controltest.Count(t, b, controltest.Of(what))
	}
	for i, a := range agents {
		if i != 2 {
			silence = max(silence, a.silence())
		}
	}
	if silence < lease && !maps.Equal(counts, wants) {
		t.Errorf("counted %v, want %v\n%s", counts, wants, controltest.Story(t, b))
	}
	return silence
}
