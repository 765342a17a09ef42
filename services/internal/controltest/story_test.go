package controltest_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelsync"
	"github.com/monolith-go/monolith/services/portal"
	"github.com/monolith-go/monolith/services/publisher"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// agent is a container that serves whatever is planned for it and has been copied: what
// a tfs-supervisor and its model server do, as far as the control plane sees it.
type agent struct {
	id, kind string
	shard    int32
	seen     map[string]bool // replicas that have been reported as LOADING
	stop     func()

	mu      sync.Mutex
	beaten  time.Time     // when the last heartbeat was sent that was answered
	longest time.Duration // from such a moment until the next heartbeat was answered
}

// silence is the longest for which the registry may have heard nothing of it.
func (a *agent) silence() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.longest, time.Since(a.beaten))
}

// heard notes an answer to the heartbeat that was sent then.
func (a *agent) heard(sent time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.beaten.IsZero() {
		a.longest = max(a.longest, time.Since(a.beaten))
	}
	a.beaten = sent
}

func (a *agent) start(t *testing.T, b bus.Bus) {
	a.seen = map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	plans := follow.New(b.Log(), registry.Plan, follow.Options{})
	copies := follow.New(b.Log(), registry.Lineage, follow.Options{})
	done := make(chan struct{}, 3)
	go func() { _ = plans.Run(ctx); done <- struct{}{} }()
	go func() { _ = copies.Run(ctx); done <- struct{}{} }()
	go func() {
		for ctx.Err() == nil {
			hb := a.heartbeat(plans, copies)
			body, err := events.Marshal(hb)
			if err != nil {
				t.Error(err)
			}
			sent := time.Now()
			if _, err := b.Commands().Call(ctx, controltest.BZID, "pulse.registry.heartbeat", body); err == nil {
				a.heard(sent)
			} else if ctx.Err() == nil {
				t.Errorf("heartbeat of %s: %v", a.id, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
		done <- struct{}{}
	}()
	a.stop = sync.OnceFunc(func() {
		cancel()
		for range 3 {
			<-done
		}
	})
}

func (a *agent) heartbeat(plans *follow.Follower[plan.State], copies *follow.Follower[lineage.State]) *replica.Heartbeat {
	hb := &replica.Heartbeat{Container: &container.Container{Id: a.id, Kind: "serving", Shard: a.shard, ServerType: a.kind}, Resource: &container.ResourceReported{Memory: 1 << 30}}
	plans.Read(func(p plan.State) {
		for name, x := range p.Plans {
			for _, as := range x.Planned.V.GetAssignments() {
				for sub := range as.GetSubModels() {
					if as.GetContainer() != a.id {
						continue
					}
					r := &replica.Replica{ModelName: name, ServerType: sub, Container: a.id, Replica: int32(as.GetReplica()), GrpcAddress: a.id + ":1",
						Stat: replica.State_LOADING, Version: x.Planned.V.GetVersion()}
					if _, err := fmt.Sscanf(sub, "ps_%d", &r.Task); err == nil {
						r.ServerType = "ps"
					}
					copies.Read(func(l lineage.State) {
						if l.Copies[lineage.CopyKey(name, sub, r.Version, "h")].V != nil && a.seen[r.Key()] {
							r.Stat = replica.State_AVAILABLE
						}
					})
					a.seen[r.Key()] = true
					hb.Replicas = append(hb.Replicas, r)
				}
			}
		}
	})
	slices.SortFunc(hb.Replicas, func(x, y *replica.Replica) int { return strings.Compare(x.Key(), y.Key()) })
	return hb
}

// The whole control story: loaded, planned, copied, registered, available; a container
// dies and is replaced; unloaded. And every view says the same when it is told again.
func TestControlStory(t *testing.T) {
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("movies"), 2, 7)
	copies := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		var stops []func()
		run := func(r services.Role, err error) {
			if err != nil {
				t.Fatal(err)
			}
			stops = append(stops, controltest.Start(t, r))
		}
		run(portal.New(portal.Config{}, controltest.Env(b)))
		run(publisher.New(publisher.Config{}, controltest.Env(b)))
		run(replicaregistry.New(replicaregistry.Config{}, controltest.Env(b)))
		run(modelsync.New(modelsync.Config{Host: "h", Dir: copies}, controltest.Env(b)))
		agents := map[string]*agent{}
		for _, a := range []*agent{{id: "entry", kind: "entry", shard: -1}, {id: "p0", kind: "ps", shard: 0}, {id: "p1", kind: "ps", shard: 1}, {id: "spare", kind: "ps", shard: -1}} {
			a.start(t, b)
			agents[a.id] = a
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()

		begin := controltest.Publish(t, b, events.Join(controltest.BZID, "model", "movies").Request(),
			fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"movies","modelDir":%q,"replicas":1}}}`, dir))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		expect(t, b, begin, map[string]string{
			"movies/entry:0/0": "entry AVAILABLE", "movies/ps:0/0": "p0 AVAILABLE", "movies/ps:1/0": "p1 AVAILABLE"})

		agents["p1"].stop() // kill -9: no last heartbeat
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, b, begin, map[string]string{
			"movies/entry:0/0": "entry AVAILABLE", "movies/ps:0/0": "p0 AVAILABLE", "movies/ps:1/0": "spare AVAILABLE"})

		controltest.MustCall(t, b, "portal.unload", `{"modelName":"movies","reason":"the end"}`)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		expect(t, b, begin, map[string]string{})

		order(t, b, begin, "loadRequested", "declared", "loadAccepted", "planned", "modelCopied", "registered", "stateChanged",
			"lost", "planned", "registered", "stateChanged", "unloadAccepted", "withdrawn", "lost")
		oneRequest(t, b, begin)
		replayed(t, b, map[string]string{"portal.state": "catalog", "publisher.state": "plan", "registry.state": "fleet", "model-sync.state": "lineage"})
		for _, a := range agents {
			a.stop()
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// expect compares the live replicas with want: key to "container STATE".
func expect(t *testing.T, b bus.Bus, begin uint64, want map[string]string) {
	t.Helper()
	s, err := follow.Replay(t.Context(), b.Log(), registry.Fleet, follow.End)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, r := range s.Replicas {
		if r.Alive {
			got[key] = r.Replica.V.GetContainer() + " " + r.Replica.V.GetStat().String()
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("live replicas are %v, want %v, since %d\n%s", got, want, begin, controltest.Story(t, b))
	}
}

// order checks that the types occur one behind the other.
func order(t *testing.T, b bus.Bus, begin uint64, types ...string) {
	t.Helper()
	for _, r := range controltest.All(t, b) {
		if r.Seq >= begin && len(types) > 0 && r.Header.Type == types[0] {
			types = types[1:]
		}
	}
	if len(types) > 0 {
		t.Errorf("no %s in its place\n%s", types[0], controltest.Story(t, b))
	}
}

// oneRequest checks that facts of the portal, the publisher and model-sync up to the
// first copy name the request that they answer.
func oneRequest(t *testing.T, b bus.Bus, begin uint64) {
	t.Helper()
	request, err := b.Log().Get(t.Context(), begin)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range controltest.All(t, b) {
		if controltest.Of("declared", "loadAccepted", "planned", "modelCopied")(r) && r.Header.Correlation != request.Header.ID {
			t.Errorf("%s at %d has correlation %q, want %q", r.Header.Type, r.Seq, r.Header.Correlation, request.Header.ID)
		}
	}
}

// replayed compares each role's live view with a replay of the log to the same place.
func replayed(t *testing.T, b bus.Bus, live map[string]string) {
	t.Helper()
	for command, view := range live {
		reply := controltest.MustCall(t, b, command, fmt.Sprintf(`{"view":%q}`, view))
		var seq uint64
		if _, err := fmt.Sscanf(reply, `{"seq":%d,`, &seq); err != nil {
			t.Fatalf("%s: %s: %v", command, reply, err)
		}
		_, hash, err := registry.Replay(t.Context(), b.Log(), view, "", seq)
		if err != nil || !strings.Contains(reply, hash) {
			t.Errorf("%s says %s, a replay %s (%v)", command, reply, hash, err)
		}
	}
}
