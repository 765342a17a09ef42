package replicaregistry_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// mirrored is a registry that mirrors into a real ensemble.
type mirrored struct {
	*replicaregistry.Server
	stop func()
}

func startMirrored(t *testing.T, b bus.Bus, ensemble string, with func(*replicaregistry.Config)) *mirrored {
	t.Helper()
	cfg := replicaregistry.Config{ZKListen: "127.0.0.1:0", Lease: longLease, Mirror: replicaregistry.ZKMirror{
		Servers: []string{ensemble}, Bridge: true, Session: 3 * time.Second}}
	if with != nil {
		with(&cfg)
	}
	s, err := replicaregistry.New(cfg, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	return &mirrored{s, controltest.Start(t, s)}
}

// session is a client of the stock library at addr. It sets no watches.
func session(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	c, ev, err := zk.Connect([]string{addr}, wait.Patience, zk.WithLogInfo(false), zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for timeout := time.After(controltest.Patience); ; {
		select {
		case e := <-ev:
			if e.State == zk.StateHasSession {
				return c
			}
		case <-timeout:
			t.Fatalf("no session at %s", addr)
		}
	}
}

// dump is everything below the roots: path, data, and whether it is ephemeral.
func dump(t *testing.T, c *zk.Conn, chroot string, roots ...string) string {
	t.Helper()
	var out bytes.Buffer
	var walk func(p string)
	walk = func(p string) {
		data, st, err := c.Get(chroot + p)
		if err == zk.ErrNoNode {
			return
		}
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", p, err)
			return
		}
		fmt.Fprintf(&out, "%s %q ephemeral=%v\n", p, data, st.EphemeralOwner != 0)
		names, _, err := c.Children(chroot + p)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", p, err)
		}
		slices.Sort(names)
		for _, n := range names {
			walk(p + "/" + n)
		}
	}
	for _, root := range roots {
		walk(root)
	}
	return out.String()
}

func same(t *testing.T, what string, here, there *zk.Conn, chroot string) {
	t.Helper()
	wait.Seen(t, what, func() (string, bool) {
		a, b := dump(t, here, "", "/test", "/monolith"), dump(t, there, chroot, "/test", "/monolith")
		return "ours:\n" + a + "theirs:\n" + b, a == b
	})
}

func put(t *testing.T, c *zk.Conn, p, data string, flags int32) {
	t.Helper()
	for _, up := range parents(p) {
		if _, err := c.Create(up, []byte{}, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
			t.Fatalf("%s: %v", up, err)
		}
	}
	if _, err := c.Create(p, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
}

func parents(p string) (ups []string) {
	for up := path.Dir(p); up != "/"; up = path.Dir(up) {
		ups = append(ups, up)
	}
	slices.Reverse(ups)
	return ups
}

const foreignMeta = `{"address": "10.0.0.1:4003", "address_ipv6": "[::]:4003", "stat": 30, "model_name": null, "server_type": null, "task": -1, "replica": -1, "archon_address": "10.0.0.1:4001", "archon_address_ipv6": "[::]:4001"}`

// The same paths and the same bytes stand in a real ensemble, ephemerals as ephemerals,
// whoever made them; what goes here goes there.
func TestMirrorShowsTheTree(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) { c.Mirror.Chroot = "/some/where" })
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	client := session(t, s.ZKAddr())
	put(t, client, "/test/locks/l", "mine", zk.FlagEphemeral)
	put(t, client, "/test/free/deep/er", "\x00\xff", 0)
	put(t, client, "/elsewhere", "not mirrored", 0)
	same(t, "the first state", here, there, "/some/where")
	if d := dump(t, there, "/some/where", "/test"); !strings.Contains(d, `/locks/l "mine" ephemeral=true`) || !strings.Contains(d, "/service/m/ps:0/0") {
		t.Errorf("the ensemble shows\n%s", d)
	}
	if ok, _, _ := there.Exists("/some/where/elsewhere"); ok {
		t.Error("what lies outside the roots is mirrored")
	}
	if _, err := client.Set("/test/free/deep/er", []byte("new"), -1); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete("/test/free/deep/er", -1); err != nil {
		t.Fatal(err)
	}
	client.Close() // with it goes its ephemeral
	same(t, "after changes", here, there, "/some/where")
	if d := dump(t, there, "/some/where", "/test"); strings.Contains(d, "mine") || strings.Contains(d, "/er") {
		t.Errorf("the ensemble still shows\n%s", d)
	}
}

// replicasSeen waits until the registry's list of replicas is as wanted.
func replicasSeen(t *testing.T, b *mem.Bus, what string, is func(list string) bool) {
	t.Helper()
	wait.Seen(t, what, func() (string, bool) {
		l := controltest.MustCall(t, b, "registry.replicas", "")
		return l, is(l)
	})
}

// An agent that knows only the real ensemble registers there: the fleet has it, and loses
// it with its session. What it writes by hand is imported; what is a service's is kept.
func TestBridge(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	agent := session(t, ensemble.Addr)
	put(t, agent, "/test/service/m1/ps:1/7", foreignMeta, zk.FlagEphemeral) // before anybody looks
	s := startMirrored(t, b, ensemble.Addr, nil)
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	replicasSeen(t, b, "the agent is known", func(l string) bool { return strings.Contains(l, `"key":"m1/ps:1/7","state":"AVAILABLE"`) })
	if _, err := agent.Set("/test/service/m1/ps:1/7", []byte(strings.Replace(foreignMeta, `"stat": 30`, `"stat": 40`, 1)), -1); err != nil {
		t.Fatal(err)
	}
	replicasSeen(t, b, "it unloads", func(l string) bool { return strings.Contains(l, `"key":"m1/ps:1/7","state":"UNLOADING"`) })
	_, st, err := here.Get("/test/service/m1/ps:1/7")
	if err != nil || st.EphemeralOwner != agent.SessionID() {
		t.Errorf("our node is owned by %x, the agent's session is %x: %v", st.EphemeralOwner, agent.SessionID(), err)
	}
	same(t, "both trees", here, there, "")

	// Ours is repaired, theirs is imported.
	beatsThere(t, b, there)
	same(t, "with an agent of ours", here, there, "")
	vandalize(t, here, there, shownNode)
	annotate(t, here, there)

	// The publisher's nodes are nobody else's: refused, and put right.
	put(t, there, "/test/publish/0:0:m1", "{}", 0)
	same(t, "a refused write", here, there, "")
	if ok, _, _ := there.Exists("/test/publish/0:0:m1"); ok {
		t.Error("the refused node is still there")
	}
	agent.Close()
	replicasSeen(t, b, "the agent has left", func(l string) bool { return !strings.Contains(l, "m1/") })
	same(t, "the end", here, there, "")
}

// shownNode is the node of the replica whose heartbeat ps is.
const shownNode = "/test/service/m/ps:0/0"

// beatsThere sends a heartbeat and waits until the ensemble shows it: before the tree here does,
// the two are the same as well.
func beatsThere(t *testing.T, b bus.Bus, there *zk.Conn) {
	t.Helper()
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	wait.Seen(t, "the replica's node in the ensemble", func() (string, bool) {
		ok, _, err := there.Exists(shownNode)
		return fmt.Sprint(err), ok && err == nil
	})
}

// vandalize changes and removes a node of ours in the ensemble: both are put right.
func vandalize(t *testing.T, here, there *zk.Conn, ours string) {
	t.Helper()
	if _, err := there.Set(ours, []byte("vandal"), -1); err != nil {
		t.Fatal(err)
	}
	same(t, "a vandal's write", here, there, "")
	if data, _, err := here.Get(ours); err != nil || string(data) == "vandal" {
		t.Errorf("our node is %s, %v", data, err)
	}
	if err := there.Delete(ours, -1); err != nil {
		t.Fatal(err)
	}
	same(t, "a vandal's deletion", here, there, "")
	if ok, _, err := here.Exists(ours); !ok || err != nil {
		t.Errorf("our node is gone: %v", err)
	}
}

// annotate writes, changes and removes nodes that are nobody's, on either side: each does
// so on the other.
func annotate(t *testing.T, here, there *zk.Conn) {
	t.Helper()
	put(t, there, "/test/notes/n", "from there", 0)
	put(t, here, "/test/mine/n", "from here", 0)
	same(t, "notes", here, there, "")
	if data, _, err := here.Get("/test/notes/n"); string(data) != "from there" {
		t.Errorf("imported as %q, %v", data, err)
	}
	if _, err := there.Set("/test/mine/n", []byte("changed there"), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Set("/test/notes/n", []byte("changed here"), -1); err != nil {
		t.Fatal(err)
	}
	wait.Seen(t, "each other's changes", func() (string, bool) {
		a, _, _ := here.Get("/test/mine/n")
		b, _, _ := there.Get("/test/notes/n")
		return fmt.Sprintf("%s, %s", a, b), string(a) == "changed there" && string(b) == "changed here"
	})
	if err := there.Delete("/test/mine/n", -1); err != nil {
		t.Fatal(err)
	}
	if err := here.Delete("/test/notes/n", -1); err != nil {
		t.Fatal(err)
	}
	same(t, "each other's deletions", here, there, "")
	if ok, _, _ := here.Exists("/test/mine/n"); ok {
		t.Error("what was deleted there is still here")
	}
}

// Random writes on both sides at once: they settle, the trees are the same, and nothing
// goes round: no write causes more than one import and one write of the mirror.
func TestBridgeSettles(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, nil)
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	put(t, here, "/test/free", "", 0)
	same(t, "the beginning", here, there, "")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const n = 400
	before, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	for i, c := range []*zk.Conn{here, there} {
		go func() {
			rnd, writes := rand.New(rand.NewPCG(seed, uint64(i))), 0
			for j := range n {
				p := fmt.Sprintf("/test/free/%d", rnd.IntN(12))
				if rnd.IntN(3) == 0 {
					p += "/x"
				}
				var err error
				switch rnd.IntN(4) {
				case 0:
					_, err = c.Create(p, fmt.Append(nil, i, j), 0, zk.WorldACL(zk.PermAll))
				case 1:
					_, err = c.Create(p, fmt.Append(nil, i, j), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				case 2:
					_, err = c.Set(p, fmt.Append(nil, i, j), -1)
				default:
					err = c.Delete(p, -1)
				}
				if err == nil {
					writes++
				}
			}
			done <- writes
		}()
	}
	writes := <-done + <-done
	same(t, "the end", here, there, "")
	last := func() (uint64, int64) {
		seq, err := b.Log().Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names, st, err := there.Children("/test/free")
		if err != nil {
			t.Fatal(err)
		}
		sum := st.Pzxid
		for _, name := range names {
			if _, st, err := there.Get("/test/free/" + name); err == nil {
				sum += st.Mzxid
			}
		}
		return seq, sum
	}
	seq, zxid := last()
	for end := time.Now().Add(controltest.Patience); time.Now().Before(end); {
		<-time.After(1100 * time.Millisecond) // longer than anything that is tried again waits
		if s2, z2 := last(); s2 != seq || z2 != zxid {
			t.Logf("still moving: %d to %d, %d to %d", seq, s2, zxid, z2)
			seq, zxid = s2, z2
			continue
		}
		if imports := controltest.Count(t, b, controltest.Of("imported")); imports > writes {
			t.Errorf("%d imports of %d writes", imports, writes)
		}
		if seq-before > 2*n+10 { // what is tried here is an event each, refused or not; the rest are sessions
			t.Errorf("%d events of 2x%d attempts", seq-before, n)
		}
		return
	}
	t.Errorf("the trees do not come to rest\n%s", dump(t, here, "", "/test"))
}

// The ensemble is killed and comes back, with its data and without: everything is there
// again, ephemerals too, and what was written there meanwhile is not lost.
func TestEnsembleComesBack(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, nil)
	here := session(t, s.ZKAddr())
	put(t, here, "/test/free/a", "1", 0)
	put(t, here, "/test/locks/e", "held", zk.FlagEphemeral)
	func() {
		there := session(t, ensemble.Addr)
		put(t, there, "/test/free/theirs", "1", 0)
		same(t, "before", here, there, "")
		there.Close()
	}()
	ensemble.Kill()
	put(t, here, "/test/free/b", "2", 0)
	if err := here.Delete("/test/free/a", -1); err != nil {
		t.Fatal(err)
	}
	ensemble.Restart(t)
	there := session(t, ensemble.Addr)
	same(t, "with its data", here, there, "")
	if d := dump(t, there, "", "/test"); strings.Contains(d, "/free/a") || !strings.Contains(d, "/free/b") || !strings.Contains(d, "theirs") {
		t.Errorf("the ensemble shows\n%s", d)
	}
	there.Close()
	ensemble.Kill()
	ensemble.Wipe(t)
	ensemble.Restart(t)
	there = session(t, ensemble.Addr)
	same(t, "without its data", here, there, "")
	if d := dump(t, there, "", "/test"); !strings.Contains(d, `/locks/e "held" ephemeral=true`) || !strings.Contains(d, "theirs") {
		t.Errorf("the ensemble shows\n%s", d)
	}
}

// A mirror dies and another registry takes over: no watcher in the ensemble sees an
// ephemeral absent, not even when the first one's session ends.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	first := startMirrored(t, b, ensemble.Addr, nil)
	there := session(t, ensemble.Addr)
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	const node = "/test/service/m/ps:0/0"
	var before int64
	wait.Seen(t, "the first mirror's node", func() (string, bool) {
		_, st, err := there.Exists(node)
		if err != nil {
			t.Fatal(err)
		}
		before = st.EphemeralOwner
		return "", before != 0
	})
	stopWatching, absent := make(chan struct{}), make(chan int, 1)
	go func() { // a reader that looks as often as it can
		n := 0
		for {
			select {
			case <-stopWatching:
				absent <- n
				return
			default:
			}
			if ok, _, err := there.Exists(node); err == nil && !ok {
				n++
			}
		}
	}()
	startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) { c.Mirror.Session = 6 * time.Second })
	first.stop()
	var after int64
	wait.Seen(t, "the second mirror's node", func() (string, bool) {
		_, st, _ := there.Exists(node)
		after = st.EphemeralOwner
		return fmt.Sprintf("%x, was %x", after, before), after != 0 && after != before
	})
	wait.Seen(t, "the first session's end", func() (string, bool) {
		out := oracle.FourLetters(t, ensemble.Addr, "dump")
		return out, !strings.Contains(out, fmt.Sprintf("0x%x", before))
	})
	close(stopWatching)
	if n := <-absent; n > 0 {
		t.Errorf("it was seen absent %d times", n)
	}
	if _, st, err := there.Exists(node); err != nil || st.EphemeralOwner != after {
		t.Errorf("at the end it is owned by %x, not %x: %v", st.EphemeralOwner, after, err)
	}
}
