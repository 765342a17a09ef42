package replicaregistry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// largestLoad is a load whose node is as large as a node may be: of each of its characters
// Python's JSON makes six bytes.
func largestLoad(t *testing.T) *model.Event {
	t.Helper()
	load := &model.Load{ModelName: "m", ModelDir: "/d", Version: 1, NumShard: 1}
	e := &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: load}}}
	for text := strings.Repeat("é", 200); ; {
		load.SpecReplicas = append(load.SpecReplicas, text)
		if err := e.Validate("m"); err != nil {
			load.SpecReplicas = load.SpecReplicas[1:]
			return e
		}
	}
}

// The largest facts that an owner may append are shown to clients of the port and of a
// real ensemble, and come back after a restart from a snapshot.
func TestTheLargestFactsAreShownEverywhere(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	dir := t.TempDir()
	at := func(c *replicaregistry.Config) { c.SnapshotDir = dir }
	s := startMirrored(t, b, ensemble.Addr, at)
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, "model", "m"), Event: largestLoad(t), Expect: bus.Any}); err != nil {
		t.Fatal(err)
	}
	address := strings.Repeat("é", events.MaxText/2)
	controltest.Beat(t, b, &replica.Heartbeat{Container: &container.Container{Id: "c", Kind: "serving", AgentAddress: address, ArchonAddress: address}, Resource: &container.ResourceReported{Memory: 1}})
	there := session(t, ensemble.Addr)
	for round := range 2 {
		here := session(t, s.ZKAddr())
		for path, size := range map[string]int{"/test/portal/m": 850_000, "/test/resource/0:0": 3 * events.MaxText, "/test/container_service/unknown;None;None:c": 3 * events.MaxText} {
			wait.Seen(t, fmt.Sprintf("round %d: %s", round, path), func() (string, bool) {
				ours, _, err := here.Get(path)
				if err != nil {
					return err.Error(), false
				}
				theirs, _, err := there.Get(path)
				return fmt.Sprintf("%d bytes here, %d there, %v", len(ours), len(theirs), err), len(ours) >= size && string(ours) == string(theirs)
			})
		}
		here.Close()
		s.stop()
		s = startMirrored(t, b, ensemble.Addr, at)
	}
}

// What is beyond a bound is refused where it enters; what is in the log all the same, from
// before there was one, is skipped, and the registry serves what comes behind it.
func TestWhatIsBeyondABoundStopsNobody(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	long := strings.Repeat("é", 200_000)
	controltest.Publish(t, b, events.Join(controltest.BZID, "container", "x"), `{"reported":{"container":{"id":"x","kind":"serving","agentAddress":"`+long+`"}}}`)
	controltest.Publish(t, b, events.Join(controltest.BZID, "container", "x"), `{"resourceReported":{"memory":"1"}}`)
	controltest.Publish(t, b, events.Join(controltest.BZID, "model", "m"), `{"loadAccepted":{"load":{"modelName":"m","modelDir":"/m","version":"1","numShard":1,"specReplicas":["`+long+`"]}}}`)
	for range 2 { // the second time it comes back from its log
		s, err := replicaregistry.New(replicaregistry.Config{ZKListen: "127.0.0.1:0"}, controltest.Env(b))
		if err != nil {
			t.Fatal(err)
		}
		stop := controltest.Start(t, s)
		body, err := events.Marshal(&replica.Heartbeat{Container: &container.Container{Id: "x", Kind: "serving", AgentAddress: long}, Resource: &container.ResourceReported{Memory: 1}})
		if err != nil {
			t.Fatal(err)
		}
		var refusal *bus.CommandError
		if _, err := controltest.Call(t, b, "pulse.registry.heartbeat", string(body)); !errors.As(err, &refusal) || refusal.Code != "INVALID" || len(refusal.Message) > 4096 {
			t.Errorf("a heartbeat beyond a bound: %v, want INVALID and a sentence", err)
		}
		controltest.Beat(t, b, ps(replica.State_AVAILABLE))
		c := session(t, s.ZKAddr())
		wait.Seen(t, "what came behind", func() (string, bool) {
			_, _, err := c.Get("/test/service/m/ps:0/0")
			return fmt.Sprint(err), err == nil
		})
		if ok, _, err := c.Exists("/test/portal/m"); ok || err != nil {
			t.Errorf("the load beyond a bound is shown: %v", err)
		}
		c.Close()
		stop()
	}
}
