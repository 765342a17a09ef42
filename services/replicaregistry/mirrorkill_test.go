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
	mirrorsSession = 20 * time.Second
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

// noImports refuses: nobody writes abroad.
type noImports struct{}

func (noImports) Import(context.Context, []*znode.Imported) []error { panic("something is imported") }

// A mirror is killed, its successor in the middle of taking over, and that one's too:
// nobody ever sees an ephemeral absent, not when the sessions of the dead end either.
func TestKilledInTheMiddleOfTakeOver(t *testing.T) {
	t.Parallel()
	ensemble := oracle.ZooKeeper(t)
	slow := newWAN(t, ensemble.Addr)
	slow.delay = 20 * time.Millisecond
	there := session(t, ensemble.Addr)
	prepare := func(addr string) (begin, kill func()) { // so that the time of a start does not count
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
		return func() { _ = in.Close() }, func() {
			_ = cmd.Process.Kill() // SIGKILL: it says good-bye to nobody
			_ = cmd.Wait()
		}
	}
	owner := func(i int) int64 {
		_, st, err := there.Exists(heldNode(i))
		if err != nil {
			t.Fatal(err)
		}
		return st.EphemeralOwner
	}
	type process struct{ begin, kill func() }
	var all []process
	for _, addr := range []string{ensemble.Addr, slow.addr, slow.addr, ensemble.Addr} {
		begin, kill := prepare(addr)
		kill = sync.OnceFunc(kill)
		t.Cleanup(kill)
		all = append(all, process{begin, kill})
	}
	taken := func(what string, i int, from map[int64]bool) int64 { // by a session that is none of those
		t.Helper()
		var by int64
		wait.Seen(t, what, func() (string, bool) {
			by = owner(i)
			return fmt.Sprintf("%x", by), by != 0 && !from[by]
		})
		return by
	}
	dead := map[int64]bool{}
	all[0].begin()
	first := taken("the first mirror's last node", heldNodes-1, dead)
	dead[first] = true
	stop, fewest := make(chan struct{}), make(chan int, 1)
	observer := session(t, ensemble.Addr)
	go func() {
		least := heldNodes
		for {
			select {
			case <-stop:
				fewest <- least
				return
			case <-time.After(time.Millisecond):
			}
			if names, _, err := observer.Children("/test/e"); err == nil {
				least = min(least, len(names))
			}
		}
	}()
	began := time.Now()
	all[0].kill()
	for i, successor := range all[1:3] {
		successor.begin()
		by := taken(fmt.Sprint("successor ", i, " begins"), 0, dead)
		successor.kill()
		if owner(heldNodes-1) != first {
			t.Fatalf("successor %d was through when it was killed: nothing was tested", i)
		}
		dead[by] = true
	}
	all[3].begin()
	last := taken("the last one is through", heldNodes-1, dead)
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
	close(stop)
	least := <-fewest
	if took > mirrorsSession*3/4 { // a session that ends first is nobody's fault
		t.Fatalf("two deaths and three successors took %v: nothing was tested, give the dead longer sessions", took)
	}
	if least != heldNodes {
		t.Errorf("only %d of %d nodes were seen at one time", least, heldNodes)
	}
	for i := range heldNodes {
		if by := owner(i); by != last {
			t.Fatalf("node %d is of %x, not of %x", i, by, last)
		}
	}
}
