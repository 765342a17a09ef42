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

// threeMembers is an ensemble of three with a registry that mirrors into it, and clients
// of both sides.
type threeMembers struct {
	t                     *testing.T
	members               []*oracle.ZooKeeperServer
	addrs                 []string
	here, there, observer *zk.Conn

	stop   chan struct{}
	all    sync.WaitGroup
	absent int         // how often observe saw the node absent; read once all have ended
	acked  [2][]string // paths that were created here and there, likewise
}

func newThreeMembers(t *testing.T, b *mem.Bus) *threeMembers {
	t.Helper()
	e := &threeMembers{t: t, members: oracle.ZooKeeperEnsemble(t, 3), stop: make(chan struct{})}
	for _, m := range e.members {
		e.addrs = append(e.addrs, m.Addr)
	}
	s := startMirrored(t, b, "", func(c *replicaregistry.Config) {
		c.Mirror.Servers, c.Mirror.Session = e.addrs, 10*time.Second
	})
	e.here = session(t, s.ZKAddr())
	return e
}

// observe looks at a node as often as it can until the end.
func (e *threeMembers) observe(node string) {
	for {
		select {
		case <-e.stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		if ok, _, err := e.observer.Exists(node); err == nil && !ok {
			e.absent++
		}
	}
}

// create writes one node after the other below dir until the end, and returns those that
// were acknowledged.
func (e *threeMembers) create(c *zk.Conn, dir string) (acked []string) {
	for n := 0; ; n++ {
		select {
		case <-e.stop:
			return acked
		case <-time.After(20 * time.Millisecond):
		}
		path := fmt.Sprintf("%s/%d", dir, n)
		if _, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err == nil {
			acked = append(acked, path)
		}
	}
}

// calm waits until both directions work.
func (e *threeMembers) calm(what string) {
	e.t.Helper()
	name := strings.ReplaceAll(what, " ", "-")
	put(e.t, e.here, "/test/from-here-"+name, "", 0)
	wait.Seen(e.t, what+": a write there", func() (string, bool) {
		_, err := e.there.Create("/test/from-there-"+name, nil, 0, zk.WorldACL(zk.PermAll))
		return fmt.Sprint(err), err == nil || err == zk.ErrNodeExists
	})
	wait.Seen(e.t, what+": both directions", func() (string, bool) {
		a, _, err1 := e.here.Exists("/test/from-there-" + name)
		b, _, err2 := e.there.Exists("/test/from-here-" + name)
		return fmt.Sprint(a, err1, b, err2), a && b
	})
}

// member waits for one whose answer to a four-letter word says something.
func (e *threeMembers) member(what, word, says string) (found *oracle.ZooKeeperServer) {
	e.t.Helper()
	wait.Seen(e.t, what, func() (string, bool) {
		for _, m := range e.members {
			if strings.Contains(oracle.FourLetters(e.t, m.Addr, word), says) {
				found = m
			}
		}
		return "", found != nil
	})
	return found
}

// serves is the member that a session is connected to.
func (e *threeMembers) serves(session int64) *oracle.ZooKeeperServer {
	e.t.Helper()
	return e.member("the mirror's member", "cons", fmt.Sprintf("sid=0x%x", session))
}

func (e *threeMembers) leader() *oracle.ZooKeeperServer {
	e.t.Helper()
	return e.member("a leader", "srvr", "Mode: leader")
}

// disturb takes each member away once, the one that a session is connected to first.
func (e *threeMembers) disturb(owner int64) {
	e.t.Helper()
	killed := e.serves(owner)
	killed.Kill()
	e.calm("the mirror's member killed")
	killed.Restart(e.t)
	for i, away := range []*oracle.ZooKeeperServer{e.serves(owner), e.leader()} {
		if err := away.Freeze(); err != nil {
			e.t.Fatal(err)
		}
		e.calm(fmt.Sprint("frozen ", i))
		if err := away.Thaw(); err != nil {
			e.t.Fatal(err)
		}
		wait.Seen(e.t, "it is back", func() (string, bool) { return "", away.Serves() })
	}
	for i, m := range e.members { // so that each has been away
		if m != killed {
			m.Restart(e.t)
			e.calm(fmt.Sprint("restarted ", i))
		}
	}
}

// Members of an ensemble are killed, frozen and restarted one after the other, the ones
// that the mirror uses and the leader among them: no ephemeral is ever absent, no write of
// either side is lost, and the trees are the same.
func TestMirrorIntoThreeMembers(t *testing.T) {
	t.Parallel()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	e := newThreeMembers(t, b)
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	const node = "/test/service/m/ps:0/0"
	put(t, e.here, "/test/ours", "", 0)
	put(t, e.here, "/test/theirs", "", 0)
	e.observer = anyMember(t, e.addrs)
	var owner int64
	wait.Seen(t, "the mirror's node", func() (string, bool) {
		ok, st, err := e.observer.Exists(node)
		if there, _, _ := e.observer.Exists("/test/theirs"); ok && there {
			owner = st.EphemeralOwner
		}
		return fmt.Sprint(ok, err), owner != 0
	})
	writer := anyMember(t, e.addrs)
	e.all.Go(func() { e.observe(node) })
	e.all.Go(func() { e.acked[0] = e.create(e.here, "/test/ours") })
	e.all.Go(func() { e.acked[1] = e.create(writer, "/test/theirs") })
	e.there = anyMember(t, e.addrs)
	e.calm("the beginning")
	e.disturb(owner)
	close(e.stop)
	e.all.Wait()
	if e.absent > 0 {
		t.Errorf("the mirror's node was seen absent %d times", e.absent)
	}
	_, st, err := e.there.Exists(node)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes here, %d there; the mirror's session was %x and is %x", len(e.acked[0]), len(e.acked[1]), owner, st.EphemeralOwner)
	same(t, "the end", e.here, e.there, "")
	whole := dump(t, e.here, "", "/test")
	for _, path := range append(e.acked[0], e.acked[1]...) {
		if !strings.Contains(whole, path+" ") {
			t.Errorf("%s was acknowledged and is gone", path)
		}
	}
}
