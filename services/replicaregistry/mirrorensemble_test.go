package replicaregistry_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// anyMember is a client of the stock library of a whole ensemble; its requests may fail
// while a member is away.
func anyMember(t *testing.T, addrs []string) *zk.Conn {
	t.Helper()
	c, ev, err := zk.Connect(addrs, 4*time.Second, zk.WithLogInfo(false), zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for timeout := time.After(controltest.Patience); ; {
		select {
		case e := <-ev:
			if e.State == zk.StateHasSession {
				go func() { // there may be more of them than the library's channel takes
					for range ev {
					}
				}()
				return c
			}
		case <-timeout:
			t.Fatalf("no session at %v", addrs)
		}
	}
}

// Members of an ensemble are killed, frozen and restarted one after the other, the ones
// that the mirror uses and the leader among them: no ephemeral is ever absent, no write of
// either side is lost, and the trees are the same.
func TestMirrorIntoThreeMembers(t *testing.T) {
	t.Parallel()
	members := oracle.ZooKeeperEnsemble(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr)
	}
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := startMirrored(t, b, "", func(c *replicaregistry.Config) {
		c.Mirror.Servers, c.Mirror.Session = addrs, 10*time.Second
	})
	here := session(t, s.ZKAddr())
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	const node = "/test/service/m/ps:0/0"
	put(t, here, "/test/ours", "", 0)
	put(t, here, "/test/theirs", "", 0)
	observer := anyMember(t, addrs)
	var owner int64
	wait.Seen(t, "the mirror's node", func() (string, bool) {
		ok, st, err := observer.Exists(node)
		if there, _, _ := observer.Exists("/test/theirs"); ok && there {
			owner = st.EphemeralOwner
		}
		return fmt.Sprint(ok, err), owner != 0
	})

	stop := make(chan struct{})
	var all sync.WaitGroup
	var absent int
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if ok, _, err := observer.Exists(node); err == nil && !ok {
				absent++
			}
		}
	})
	acked := make([][]string, 2)
	for i, c := range []*zk.Conn{here, anyMember(t, addrs)} {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				path := fmt.Sprintf("%s/%d", []string{"/test/ours", "/test/theirs"}[i], n)
				if _, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err == nil {
					acked[i] = append(acked[i], path)
				}
			}
		})
	}
	there := anyMember(t, addrs)
	calm := func(what string) { // both directions work
		t.Helper()
		name := strings.ReplaceAll(what, " ", "-")
		put(t, here, "/test/from-here-"+name, "", 0)
		wait.Seen(t, what+": a write there", func() (string, bool) {
			_, err := there.Create("/test/from-there-"+name, nil, 0, zk.WorldACL(zk.PermAll))
			return fmt.Sprint(err), err == nil || err == zk.ErrNodeExists
		})
		wait.Seen(t, what+": both directions", func() (string, bool) {
			a, _, err1 := here.Exists("/test/from-there-" + name)
			b, _, err2 := there.Exists("/test/from-here-" + name)
			return fmt.Sprint(a, err1, b, err2), a && b
		})
	}
	serves := func(session int64) *oracle.ZooKeeperServer { // the member that a session is connected to
		var found *oracle.ZooKeeperServer
		wait.Seen(t, "the mirror's member", func() (string, bool) {
			for _, m := range members {
				if strings.Contains(oracle.FourLetters(t, m.Addr, "cons"), fmt.Sprintf("sid=0x%x", session)) {
					found = m
				}
			}
			return "", found != nil
		})
		return found
	}
	leader := func() (found *oracle.ZooKeeperServer) {
		wait.Seen(t, "a leader", func() (string, bool) {
			for _, m := range members {
				if strings.Contains(oracle.FourLetters(t, m.Addr, "srvr"), "Mode: leader") {
					found = m
				}
			}
			return "", found != nil
		})
		return found
	}
	calm("the beginning")
	killed := serves(owner)
	killed.Kill()
	calm("the mirror's member killed")
	killed.Restart(t)
	for i, away := range []*oracle.ZooKeeperServer{serves(owner), leader()} {
		if err := away.Freeze(); err != nil {
			t.Fatal(err)
		}
		calm(fmt.Sprint("frozen ", i))
		if err := away.Thaw(); err != nil {
			t.Fatal(err)
		}
		wait.Seen(t, "it is back", func() (string, bool) { return "", away.Serves() })
	}
	for i, m := range members { // so that each has been away
		if m != killed {
			m.Restart(t)
			calm(fmt.Sprint("restarted ", i))
		}
	}
	close(stop)
	all.Wait()
	if absent > 0 {
		t.Errorf("the mirror's node was seen absent %d times", absent)
	}
	_, st, err := there.Exists(node)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes here, %d there; the mirror's session was %x and is %x", len(acked[0]), len(acked[1]), owner, st.EphemeralOwner)
	same(t, "the end", here, there, "")
	whole := dump(t, here, "", "/test")
	for _, path := range append(acked[0], acked[1]...) {
		if !strings.Contains(whole, path+" ") {
			t.Errorf("%s was acknowledged and is gone", path)
		}
	}
}
