package replicaregistry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/internal/role"
)

// One node of a foreign agent that makes no fact stops no other's.
func TestOneForeignNodeStopsNoOther(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s, err := New(Config{ZKListen: "127.0.0.1:0"}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	c := zkClient(t, s.ZKAddr())
	made := func(path, data string) {
		t.Helper()
		if _, err := c.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/test", "/test/resource", "/test/service", "/test/service/m1", "/test/service/m1/ps:0"} {
		made(path, "")
	}
	meta := func(address string) string { return fmt.Sprintf(`{"address": %q, "stat": 30}`, address) }
	made("/test/service/m1/ps:0/0", `{"address": "`+strings.Repeat("\xff", 200_000)+`", "stat": 30}`) // 600 KB of U+FFFD
	made("/test/resource/0:0", `{"address": "`+strings.Repeat("é", 100_000)+`", "memory": 1}`)
	made("/test/resource/1:0", `{"address": "h:1", "memory": 1, "cpu": 1e999}`)
	made("/test/service/m1/ps:0/1", meta("h:1"))
	made("/test/service/m1/ps:0/1099511627774", meta("h:2")) // of 40 bits
	made("/test/resource/0:1099511627773", `{"address": "h:3", "shard_id": 0, "replica_id": 1099511627773, "memory": 1}`)
	list := ""
	wait.Seen(t, "the agents that are well to be known", func() (string, bool) {
		list = controltest.MustCall(t, b, "registry.replicas", "")
		var foreign fleet.Container
		s.fleet.Read(func(f fleet.State) { foreign = f.Containers["znode-0:1099511627773"] })
		return list, strings.Contains(list, "h:1") && foreign.Alive
	})
	if !strings.Contains(list, `"m1/ps:0/1"`) || strings.Contains(list, `"m1/ps:0/0"`) {
		t.Errorf("replicas %s", list)
	}
}

// A fact that no rule foresaw and the log refuses is found among all that are appended
// together, and the others are stored.
func TestTheFactThatTheLogRefusesIsFound(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	refusing := &refusing{Bus: b, of: events.Join("test", "replica", "m1/ps:0/5")}
	env := controltest.Env(refusing)
	tree, known := follow.New(b.Log(), registry.Znode.Only("test"), follow.Options{}), follow.New(b.Log(), registry.Fleet.Only("test"), follow.Options{})
	for _, run := range []func() error{func() error { return tree.Run(t.Context()) }, func() error { return known.Run(t.Context()) }} {
		done := make(chan struct{})
		go func() { defer close(done); _ = run() }()
		t.Cleanup(func() { <-done })
	}
	subject := events.Join("test", "znode", znode.Aggregate)
	put := func(path, data string) {
		t.Helper()
		seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: subject, Expect: bus.Any, Event: &znode.Event{Body: &znode.Event_Proposed{
			Proposed: &znode.Proposed{Ops: []*znode.Op{{Op: &znode.Op_Create{Create: &znode.Create{
				Path: path, Data: []byte(data), Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}}}}}})
		if err == nil {
			err = tree.Wait(t.Context(), seqs[0])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/test", "/test/service", "/test/service/m1", "/test/service/m1/ps:0"} {
		put(path, "")
	}
	for i := range 12 {
		put(fmt.Sprintf("/test/service/m1/ps:0/%d", i), `{"address": "h:1", "stat": 30}`)
	}
	x := newForeigners(env, tree, known, role.Store{Log: refusing.Log(), Source: source, Wait: known.Wait})
	for range 2 { // the second time there is nothing left to say
		if err := x.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	known.Read(func(f fleet.State) {
		if n := len(f.Available("m1")); n != 11 {
			t.Errorf("%d of 11 replicas are known", n)
		}
	})
	if refusing.asked > 12 {
		t.Errorf("%d appends were refused to find one fact among twelve", refusing.asked)
	}
}

// refusing is a bus whose log takes no event on one subject.
type refusing struct {
	bus.Bus
	of    events.Subject
	asked int
}

func (r *refusing) Log() bus.Log { return refusingLog{r.Bus.Log(), r} }

type refusingLog struct {
	bus.Log
	r *refusing
}

func (l refusingLog) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	if slices.ContainsFunc(drafts, func(d bus.Draft) bool { return d.Subject == l.r.of }) {
		l.r.asked++
		return nil, fmt.Errorf("%w: not that one", events.ErrInvalid)
	}
	return l.Log.Append(ctx, drafts...)
}
