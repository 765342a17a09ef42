package replicaregistry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

const (
	mirrorProcess  = "MONOLITH_TEST_MIRROR" // address of an ensemble: the test binary then only mirrors into it
	heldNodes      = 600
	mirrorsSession = 45 * time.Second
)

// mirrorUntilKilled is a process of its own, which TestKilledInTheMiddleOfTakeOver
// starts. It mirrors a log that is the same in every such process, once its input ends.
func mirrorUntilKilled(addr string) error {
	ctx := context.Background()
	b := mem.New()
	subject := events.Join(controltest.BZID, "znode", znode.Aggregate)
	const client = 0x0100000000000001
	opened := &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: client, TimeoutMs: 1000, PasswordHash: make([]byte, 32)}}}
	create := func(path string, mode znode.Mode) *znode.Op {
		return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Mode: mode, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
	}
	ops := []*znode.Op{create("/test", 0), create("/test/e", 0)}
	for i := range heldNodes {
		ops = append(ops, create(heldNode(i), znode.Mode_EPHEMERAL))
	}
	made := &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: client, Multi: true, Ops: ops}}}
	for i, e := range []*znode.Event{opened, made} {
		if _, err := b.Log().Append(ctx, bus.Draft{
			Subject: subject, Event: e, Header: events.Header{ID: "fixed-" + strconv.Itoa(i), Source: "test"}, Expect: uint64(i), Binary: true,
		}); err != nil {
			return err
		}
	}
	tree := follow.New(b.Log(), registry.Znode, follow.Options{})
	m, err := ensemble.New(ensemble.Config{Servers: []string{addr}, BZID: controltest.BZID, Session: mirrorsSession, Log: b.Log(), Importer: noImports{}},
		tree, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	go func() { _ = tree.Run(ctx) }()
	if err := tree.Wait(ctx, 2); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	m.Run(ctx)
	return errors.New("it was to be killed")
}

func heldNode(i int) string { return fmt.Sprintf("/test/e/%04d", i) }

// noImports refuses: nobody writes to the ensemble.
type noImports struct{}

func (noImports) Import(context.Context, []*znode.Imported) []error { panic("something is imported") }

// mirroring is a process that mirrors once it is told to begin.
type mirroring struct{ begin, kill func() }

// prepareMirror starts such a process, so that the time of a start does not count.
func prepareMirror(t *testing.T, addr string) mirroring {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), mirrorProcess+"="+addr)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // SIGKILL: it says good-bye to nobody
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return mirroring{begin: func() { _ = in.Close() }, kill: kill}
}

// holder is the session whose ephemeral the i-th held node is.
func holder(t *testing.T, there *zk.Conn, i int) int64 {
	t.Helper()
	_, st, err := there.Exists(heldNode(i))
	if err != nil {
		t.Fatal(err)
	}
	return st.EphemeralOwner
}

// taken waits until the i-th held node is of a session that is none of those.
func taken(t *testing.T, there *zk.Conn, what string, i int, from map[int64]bool) (by int64) {
	t.Helper()
	wait.Seen(t, what, func() (string, bool) {
		by = holder(t, there, i)
		return fmt.Sprintf("%x", by), by != 0 && !from[by]
	})
	return by
}

// fewestHeld counts the held nodes as often as it can until stop is closed.
func fewestHeld(observer *zk.Conn, stop <-chan struct{}) int {
	least := heldNodes
	for {
		select {
		case <-stop:
			return least
		case <-time.After(time.Millisecond):
		}
		if names, _, err := observer.Children("/test/e"); err == nil {
			least = min(least, len(names))
		}
	}
}

// A mirror is killed, its successor in the middle of taking over, and that one's too:
// nobody ever sees an ephemeral absent, not when the sessions of the dead end either.
func TestKilledInTheMiddleOfTakeOver(t *testing.T) {
	t.Parallel()
	const attempts = 4
	for n := 1; ; n++ {
		untested := ""
		t.Run(fmt.Sprint("attempt ", n), func(t *testing.T) { untested = killedInTheMiddle(t) })
		if untested == "" || t.Failed() {
			return
		}
		if n == attempts {
			t.Fatalf("in %d attempts nothing was tested: %s", n, untested)
		}
		t.Logf("attempt %d tested nothing: %s", n, untested)
	}
}

// killedInTheMiddle says why nothing was tested, where a busy machine came too late for it.
func killedInTheMiddle(t *testing.T) (untested string) {
	ensemble := oracle.ZooKeeper(t)
	slow := newWAN(t, ensemble.Addr)
	slow.delay = 200 * time.Millisecond // so that a kill comes before a successor is through
	there := session(t, ensemble.Addr)
	var all []mirroring
	for _, addr := range []string{ensemble.Addr, slow.addr, slow.addr, ensemble.Addr} {
		all = append(all, prepareMirror(t, addr))
	}
	dead := map[int64]bool{}
	all[0].begin()
	first := taken(t, there, "the first mirror's last node", heldNodes-1, dead)
	dead[first] = true
	stop, fewest := make(chan struct{}), make(chan int, 1)
	observer := session(t, ensemble.Addr)
	go func() { fewest <- fewestHeld(observer, stop) }()
	look := sync.OnceValue(func() int { close(stop); return <-fewest })
	defer look()
	began := time.Now()
	all[0].kill()
	for i, successor := range all[1:3] {
		successor.begin()
		by := taken(t, there, fmt.Sprint("successor ", i, " begins"), 0, dead)
		successor.kill()
		if holder(t, there, heldNodes-1) != first {
			return fmt.Sprintf("successor %d was through when it was killed", i)
		}
		dead[by] = true
	}
	all[3].begin()
	last := taken(t, there, "the last one is through", heldNodes-1, dead)
	took := time.Since(began)
	wait.Seen(t, "the sessions of the dead are over", func() (string, bool) {
		out := oracle.FourLetters(t, ensemble.Addr, "dump")
		for id := range dead {
			if strings.Contains(out, fmt.Sprintf("0x%x", id)) {
				return out, false
			}
		}
		return "", true
	})
	if took > mirrorsSession*3/4 { // a session that ends first is nobody's fault
		return fmt.Sprintf("two deaths and three successors took %v, and the dead have sessions of %v", took, mirrorsSession)
	}
	if least := look(); least != heldNodes {
		t.Errorf("only %d of %d nodes were seen at one time", least, heldNodes)
	}
	for i := range heldNodes {
		if by := holder(t, there, i); by != last {
			t.Fatalf("node %d is of %x, not of %x", i, by, last)
		}
	}
	return ""
}
