package replicaregistry_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// kazoo, as Monolith's agents use it, lives in the real ensemble: what it writes are
// facts here, its ephemerals, its lock and its candidacy are here as long as there, our
// watchers see them, and its own watches see what is written here.
func TestOracleKazooAgent(t *testing.T) {
	t.Parallel()
	python := oracle.Python(t)
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, nil)
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	put(t, here, "/test/service", "", 0)
	cmd := exec.CommandContext(t.Context(), python, "testdata/kazoo_agent.py", ensemble.Addr) // it knows only the ensemble
	agent := oracle.Run(t, cmd)
	made := agent.Next(t)
	if diff := cmp.Diff([]any{map[string]any{"data": "one"}, map[string]any{"children": []any{"config"}}}, made["first"]); diff != "" {
		t.Errorf("its watches begin with (-want +got):\n%s", diff)
	}
	replicasSeen(t, b, "it is registered", func(l string) bool { return strings.Contains(l, `"key":"m1/ps:1/7","state":"AVAILABLE"`) })
	const node = "/test/service/m1/ps:1/7"
	data, st, changed, err := here.GetW(node)
	if err != nil || float64(st.EphemeralOwner) != made["session"] || !strings.Contains(string(data), "10.0.0.1:4003") {
		t.Errorf("here stands %s, of %x: %v", data, st.EphemeralOwner, err)
	}
	same(t, "registered", here, there, "")
	for _, kind := range []string{"reported", "resourceReported"} {
		if controltest.Count(t, b, controltest.Of(kind)) != 1 {
			t.Errorf("no fact %s of its resource", kind)
		}
	}

	// What is written here wakes its watches.
	if _, err := here.Set("/test/kazoo/config", []byte("two"), -1); err != nil {
		t.Fatal(err)
	}
	put(t, here, "/test/kazoo/job", "", 0)
	if diff := cmp.Diff(map[string]any{"data": "two", "children": []any{"config", "job"}}, agent.Next(t)); diff != "" {
		t.Errorf("its watches hear (-want +got):\n%s", diff)
	}

	// What it writes wakes ours.
	agent.Say(t, "unload")
	if e := <-changed; e.Type != zk.EventNodeDataChanged || e.Path != node {
		t.Errorf("our watch says %+v", e)
	}
	replicasSeen(t, b, "it unloads", func(l string) bool { return strings.Contains(l, `"key":"m1/ps:1/7","state":"UNLOADING"`) })

	agentHolds(t, agent, here, made["session"])

	// It dies without a word: its nodes stay for as long as its session there.
	_, _, gone, err := here.ExistsW(node)
	if err != nil {
		t.Fatal(err)
	}
	agent.Say(t, "die")
	_ = cmd.Wait() // it was told to fail
	if ok, _, err := here.Exists(node); !ok || err != nil {
		t.Errorf("its node went with its process, not with its session: %v", err)
	}
	if e := <-gone; e.Type != zk.EventNodeDeleted {
		t.Errorf("our watch says %+v", e)
	}
	if ok, _, err := there.Exists(node); ok || err != nil {
		t.Errorf("its node is gone here and not there: %v", err)
	}
	replicasSeen(t, b, "it is lost", func(l string) bool { return !strings.Contains(l, "m1/") })
	same(t, "the end", here, there, "")
}

// agentHolds has the agent take and give back a lock and a candidacy: they are here as long as
// there, under its session.
func agentHolds(t *testing.T, agent oracle.Talk, here *zk.Conn, session any) {
	t.Helper()
	ephemerals := func(dir string, n int) func() (string, bool) {
		return func() (string, bool) {
			names, _, err := here.Children(dir)
			if err == zk.ErrNoNode && n == 0 {
				return "", true
			}
			for _, name := range names {
				if _, st, err := here.Exists(dir + "/" + name); err != nil || float64(st.EphemeralOwner) != session {
					return fmt.Sprintf("%s: %+v, %v", name, st, err), false
				}
			}
			return fmt.Sprint(names, err), err == nil && len(names) == n
		}
	}
	agent.Say(t, "lock")
	if diff := cmp.Diff(map[string]any{"locked": []any{"kazoo's"}}, agent.Next(t)); diff != "" {
		t.Errorf("the lock (-want +got):\n%s", diff)
	}
	wait.Seen(t, "its lock is here", ephemerals("/test/kazoo/job", 1))
	agent.Say(t, "release")
	wait.Seen(t, "its lock is gone", ephemerals("/test/kazoo/job", 0))
	agent.Say(t, "elect")
	if diff := cmp.Diff(map[string]any{"leads": true}, agent.Next(t)); diff != "" {
		t.Errorf("the election (-want +got):\n%s", diff)
	}
	wait.Seen(t, "its candidacy is here", ephemerals("/test/kazoo/election", 1))
	agent.Say(t, "resign")
	agent.Next(t)
	wait.Seen(t, "its candidacy is gone", ephemerals("/test/kazoo/election", 0))
}
