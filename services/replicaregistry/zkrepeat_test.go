package replicaregistry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/internal/role"
)

// A log that says of an append that some of its ids are stored already, because the answer
// of the first attempt was lost, has stored it once: nothing is stored again under new ids.
func TestARepeatedAppendIsStoredOnce(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		c := &counted{Bus: open()}
		s := newTestWriter(t, c)
		s.leads(t)
		c.mu.Lock()
		c.fail = func(n int) error {
			if n%2 == 0 {
				return fmt.Errorf("%w: %w: not all of them are seen", events.ErrInvalid, bus.ErrRepeated)
			}
			return nil
		}
		c.mu.Unlock()
		const n = 200
		got := make(chan answer, n)
		for range n {
			s.Propose(write(0, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL)), func(zxid uint64, o *view.Outcome, err error) { got <- answer{zxid, o, err} })
		}
		seen := map[string]bool{}
		for range n {
			if a := <-got; a.err != nil || a.o.Code != 0 || seen[a.o.Results[0].Path] {
				t.Fatalf("%+v %v, or twice", a.o, a.err)
			} else {
				seen[a.o.Results[0].Path] = true
			}
		}
		s.tree.Read(func(t2 view.State) {
			if names := t2.Children("/"); len(names) != n+1 { // zookeeper beside them
				t.Errorf("%d nodes for %d writes", len(names)-1, n)
			}
		})
	})
}

// While the tree is locked, by whoever, nobody's requests are read: that time expires no
// session whose client goes on as soon as it is heard again.
func TestNoSessionExpiresWhileTheTreeIsLocked(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	z := newZKSessions("b", clock)
	z.add(7, 1000)
	z.add(8, 1000)
	z.silent()
	for range 3 { // for 1.8 s of 2.4 s
		now = now.Add(200 * time.Millisecond)
		z.touch(7)
		before := z.since()
		now = now.Add(600 * time.Millisecond) // the lock
		z.excuse(z.since() - before)
		if dead := z.silent(); len(dead) > 0 {
			t.Fatalf("expired: %v", dead)
		}
	}
	now = now.Add(600 * time.Millisecond) // 8 has not been heard of for 1.2 s in which it could
	z.touch(7)
	if dead := z.silent(); len(dead) != 1 || dead[0] != 8 {
		t.Errorf("expired: %v, want the one that was silent", dead)
	}
}

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
	for deadline := time.Now().Add(controltest.Patience); ; <-time.After(5 * time.Millisecond) {
		list := controltest.MustCall(t, b, "registry.replicas", "")
		var foreign fleet.Container
		s.fleet.Read(func(f fleet.State) { foreign = f.Containers["znode-0:1099511627773"] })
		if strings.Contains(list, "h:1") && foreign.Alive {
			if !strings.Contains(list, `"m1/ps:0/1"`) || strings.Contains(list, `"m1/ps:0/0"`) {
				t.Errorf("replicas %s", list)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agents that are well are not known: %s", list)
		}
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
		seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: subject, Expect: bus.Any, Event: write(0, makeNode(path, data, 0))})
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
