package replicaregistry_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// superhuman is how a server is told that whoever shows super:secret may do everything.
func superhuman() string {
	return "-Dzookeeper.DigestAuthenticationProvider.superDigest=" + zk.DigestACL(zk.PermAll, "super", "secret")[0].ID
}

func authFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func mirrorStatus(t *testing.T, b bus.Bus) (s ensemble.Status) {
	t.Helper()
	wait.Seen(t, "the mirror's status", func() (string, bool) { // whoever has just started does not write yet
		answer, err := controltest.Call(t, b, "registry.mirror", "")
		return fmt.Sprint(answer, err), err == nil && json.Unmarshal([]byte(answer), &s) == nil
	})
	return s
}

// list is a node's access list with its version.
func list(c *zk.Conn, path string) string {
	acl, st, err := c.GetACL(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v, version %d", acl, st.Aversion)
}

// alike waits until the node has the list, on both sides and equally often set.
func alike(t *testing.T, what string, here, there *zk.Conn, path string, want []zk.ACL) {
	t.Helper()
	wait.Seen(t, what, func() (string, bool) {
		a, b := list(here, path), list(there, path)
		return path + " here " + a + "\nthere " + b, a == b && strings.HasPrefix(a, fmt.Sprint(want)+",")
	})
}

// Access lists are the same on both sides, digests as they are, whoever sets them: here,
// there, when a node is made or later. What is a service's is put right.
func TestMirrorFollowsAccessLists(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t, superhuman())
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) {
		c.Mirror.AuthFile, c.Mirror.Resync = authFile(t, "super:secret"), time.Second
	})
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	for _, c := range []*zk.Conn{here, there} {
		for _, id := range []string{"u:p", "v:q"} {
			if err := c.AddAuth("digest", []byte(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	open, us, them := zk.WorldACL(zk.PermAll), zk.DigestACL(zk.PermAll, "u", "p"), zk.DigestACL(zk.PermAll, "v", "q")
	set := func(c *zk.Conn, path string, acl []zk.ACL) {
		t.Helper()
		if _, err := c.SetACL(path, acl, -1); err != nil {
			t.Fatal(err)
		}
	}
	put(t, here, "/test/a/ours", "1", 0)
	alike(t, "made", here, there, "/test/a/ours", open)
	set(here, "/test/a/ours", them)
	set(here, "/test/a/ours", us)
	alike(t, "set here, twice", here, there, "/test/a/ours", us)
	set(there, "/test/a/ours", them)
	alike(t, "set there", here, there, "/test/a/ours", them)
	set(there, "/test/a/ours", open)
	set(there, "/test/a/ours", us)
	alike(t, "set there, twice", here, there, "/test/a/ours", us)
	if _, err := here.Set("/test/a/ours", []byte("2"), -1); err != nil {
		t.Fatal(err)
	}
	same(t, "a write to what is not everybody's", here, there, "")

	if _, err := there.Create("/test/a/theirs", nil, 0, us); err != nil {
		t.Fatal(err)
	}
	set(there, "/test/a/theirs", them)
	alike(t, "made there with a list, which is set", here, there, "/test/a/theirs", them)
	set(here, "/test/a/theirs", us)
	alike(t, "set here, made there", here, there, "/test/a/theirs", us)
	if err := there.Delete("/test/a/theirs", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Create("/test/a/theirs", []byte("new"), 0, them); err != nil {
		t.Fatal(err)
	}
	alike(t, "made anew there", here, there, "/test/a/theirs", them)

	const held = shownNode
	beatsThere(t, b, there)
	same(t, "a service's node", here, there, "")
	before := mirrorStatus(t, b).Drifts
	set(there, held, us)
	wait.Seen(t, "a vandal's list", func() (string, bool) {
		acl, _, err := there.GetACL(held)
		return fmt.Sprint(acl, err), err == nil && fmt.Sprint(acl) == fmt.Sprint(open)
	})
	wait.Seen(t, "the drift's mention", func() (string, bool) {
		st := mirrorStatus(t, b)
		return fmt.Sprintf("%+v", st), st.Drifts > before && st.LastDrift.Path == held && st.LastDrift.Repair == "setACL"
	})
	quiet(t, b)
}

// quiet waits until the log grows no more, since nobody writes: otherwise something goes round.
func quiet(t *testing.T, b bus.Bus) {
	t.Helper()
	last := func() uint64 {
		seq, err := b.Log().Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	wait.Seen(t, "the log to stand still", func() (string, bool) {
		was := last()
		<-time.After(1500 * time.Millisecond) // longer than a comparison of everything is away in these tests
		now := last()
		return fmt.Sprintf("it grew from %d to %d\n%s", was, now, controltest.Story(t, b)), now == was
	})
}

// Both sides set lists of the same nodes at random: they settle on the same lists and
// versions, and no list that was set there is imported twice.
func TestAccessListsSettle(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) { c.Mirror.Resync = time.Second })
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	var paths []string
	for i := range 4 {
		paths = append(paths, fmt.Sprint("/test/lists/", i))
		put(t, []*zk.Conn{here, there}[i%2], paths[i], "", 0)
	}
	same(t, "the beginning", here, there, "")
	before := controltest.Count(t, b, controltest.Of("imported"))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	done := make(chan int)
	for side, c := range []*zk.Conn{here, there} {
		go func() {
			rnd, sets := rand.New(rand.NewPCG(seed, uint64(side))), 0
			for range 60 {
				acl := append(zk.WorldACL(zk.PermAll), zk.DigestACL(int32(1+rnd.IntN(31)), "u", fmt.Sprint(rnd.IntN(3)))...)
				if _, err := c.SetACL(paths[rnd.IntN(len(paths))], acl, -1); err == nil {
					sets++
				}
				<-time.After(time.Duration(rnd.IntN(40)) * time.Millisecond)
			}
			done <- sets
		}()
	}
	sets := <-done + <-done
	for _, p := range paths {
		wait.Seen(t, "the lists", func() (string, bool) {
			a, b := list(here, p), list(there, p)
			return p + " here " + a + "\nthere " + b, a == b
		})
	}
	quiet(t, b)
	if n := controltest.Count(t, b, controltest.Of("imported")) - before; n > sets {
		t.Errorf("%d imports of %d lists", n, sets)
	}
}

// A mirror that lacks the right to a node says which, and goes on with the others; once
// it has the right, the node is as here.
func TestMirrorWithoutRights(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) { c.Mirror.Resync = time.Second })
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	for _, c := range []*zk.Conn{here, there} {
		if err := c.AddAuth("digest", []byte("u:p")); err != nil {
			t.Fatal(err)
		}
	}
	put(t, here, "/test/a", "", 0)
	if _, err := here.Create("/test/a/mine", []byte("1"), 0, append(zk.DigestACL(zk.PermAll, "u", "p"), zk.WorldACL(zk.PermRead)...)); err != nil {
		t.Fatal(err)
	}
	same(t, "it is made with its list", here, there, "")
	if _, err := here.Set("/test/a/mine", []byte("2"), -1); err != nil {
		t.Fatal(err)
	}
	put(t, here, "/test/a/other", "x", 0)
	wait.Seen(t, "the mention", func() (string, bool) {
		st := mirrorStatus(t, b)
		return fmt.Sprintf("%+v", st), st.Stuck == 1 && st.StuckAt[0].Path == "/test/a/mine" && strings.Contains(st.StuckAt[0].Why, "not authenticated")
	})
	wait.Seen(t, "the other node", func() (string, bool) {
		ok, _, err := there.Exists("/test/a/other")
		return fmt.Sprint(err), ok
	})
	if _, err := there.SetACL("/test/a/mine", zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	same(t, "with the right", here, there, "")
	alike(t, "with the right", here, there, "/test/a/mine", zk.WorldACL(zk.PermAll))
	wait.Seen(t, "nothing is stuck", func() (string, bool) {
		st := mirrorStatus(t, b)
		return fmt.Sprintf("%+v", st), st.Stuck == 0 && st.Connected && st.Nodes > 3
	})
}

// The mirror reaches an ensemble's secure port by the name in its certificate, and shows
// one of its own; who is known by a certificate there keeps what he made. Strangers are
// refused on both ends.
func TestMirrorOverTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := certs.NewAuthority(t), certs.NewAuthority(t)
	ensemble := oracle.ZooKeeperTLS(t, authority.Issue("ensemble"))
	run := func(files mtls.Files) (bus.Bus, *mirrored, *wan) {
		between := newWAN(t, ensemble.SecureAddr())
		_, port, err := net.SplitHostPort(between.addr)
		if err != nil {
			t.Fatal(err)
		}
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		return b, startMirrored(t, b, net.JoinHostPort("localhost", port), func(c *replicaregistry.Config) { c.Mirror.TLS = files }), between
	}
	theirs, mixed := stranger.Issue("x"), authority.Issue("y")
	mixed.CA = theirs.CA
	there := session(t, ensemble.Addr)
	for what, files := range map[string]mtls.Files{"a stranger's certificate": {Cert: theirs.Cert, Key: theirs.Key, CA: mixed.CA}, "authorities that do not know the server": mixed, "no certificate": {}} {
		b, s, between := run(files)
		wait.Seen(t, what+": some attempts", func() (string, bool) {
			between.mu.Lock()
			defer between.mu.Unlock()
			return "", len(between.open) > 4
		})
		if st := mirrorStatus(t, b); st.Connected {
			t.Errorf("%s: connected", what)
		}
		s.stop()
	}
	if ok, _, err := there.Exists("/@monolith"); ok || err != nil {
		t.Errorf("a stranger has written: %v", err)
	}
	b, s, _ := run(authority.Issue("mirror"))
	here := session(t, s.ZKAddr())
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	put(t, here, "/test/free/ours", "sealed", 0)
	put(t, there, "/test/free/theirs", "in the clear", 0)
	same(t, "both trees", here, there, "")
	signed := append([]zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=agent"}}, zk.WorldACL(zk.PermRead)...)
	if _, err := there.Create("/test/free/signed", []byte("1"), 0, signed); err != nil {
		t.Fatal(err)
	}
	same(t, "an agent's with a certificate", here, there, "")
	alike(t, "its list", here, there, "/test/free/signed", signed)
}

// What is changed by hand with Apache's command line is put right: data at once, access
// lists with the next comparison of everything.
func TestDriftByHand(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	mirrors := func(resync time.Duration) *mirrored {
		return startMirrored(t, b, ensemble.Addr, func(c *replicaregistry.Config) { c.Mirror.Resync = resync })
	}
	s := mirrors(time.Hour) // what is put right meanwhile is so without a comparison
	here, there := session(t, s.ZKAddr()), session(t, ensemble.Addr)
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	put(t, there, "/test/publish", "", 0)
	const node = "/test/service/m/ps:0/0"
	same(t, "the beginning", here, there, "")
	want, _, err := here.Get(node)
	if err != nil {
		t.Fatal(err)
	}
	right := func() bool {
		data, _, err := there.Get(node)
		return err == nil && string(data) == string(want)
	}
	byHand := zkShell(t, ensemble.Addr)
	for _, command := range []string{"set " + node + " vandal", "delete " + node, "create /test/publish/0:0:x {}"} {
		byHand(command)
		wait.Seen(t, command, func() (string, bool) {
			ok, _, err := there.Exists("/test/publish/0:0:x")
			return fmt.Sprint(ok, err), right() && err == nil && !ok
		})
	}
	open := func() (string, bool) {
		acl, _, err := there.GetACL(node)
		return fmt.Sprint(acl, err), err == nil && len(acl) == 1 && acl[0].Perms == zk.PermAll
	}
	s.stop()
	mirrors(time.Second)
	wait.Seen(t, "the first comparison", func() (string, bool) {
		st := mirrorStatus(t, b)
		return fmt.Sprintf("%+v", st), st.Connected && !st.Compared.IsZero()
	})
	wait.Seen(t, "its list", open)
	byHand("setAcl " + node + " world:anyone:rwa")
	wait.Seen(t, "its list, which the next comparison sees", open)
	wait.Seen(t, "the drift's mention", func() (string, bool) {
		st := mirrorStatus(t, b)
		return fmt.Sprintf("%+v, drift %+v", st, st.LastDrift), st.Drifts >= 1 && st.LastDrift != nil && time.Since(st.LastDrift.At) < time.Hour &&
			st.Held >= 1 && st.Lag == 0 && time.Since(st.Compared) < time.Hour
	})
}

// zkShell is Apache's command line; what it returns carries out one command.
func zkShell(t *testing.T, addr string) func(command string) {
	t.Helper()
	cli := oracle.ZKCliCommand(t, addr)
	in, err := cli.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cli.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cli.Stderr = cli.Stdout // where it tells what it has made
	if err := cli.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = cli.Process.Kill() }
	late := time.AfterFunc(6*controltest.Patience, kill)
	t.Cleanup(func() {
		late.Stop()
		_, _ = fmt.Fprintln(in, "quit")
		_ = cli.Wait() // what it did has been seen
	})
	said, n := bufio.NewScanner(out), 0
	return func(command string) {
		t.Helper()
		n++
		end := fmt.Sprint("/done-", n)
		if _, err := fmt.Fprintf(in, "%s\ncreate %s x\n", command, end); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(said.Text(), "Created "+end) {
			if !said.Scan() {
				t.Fatalf("zkCli ended before %s", end)
			}
		}
	}
}
