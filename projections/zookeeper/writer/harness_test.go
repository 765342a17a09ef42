package writer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// namespace is that of every test.
const namespace = "test"

// testWriter is a registry's writing half with a tree of its own.
type testWriter struct {
	*Writer
	tree *follow.Follower[view.State]
	stop func()
}

func newTestWriter(t testing.TB, b bus.Bus) *testWriter {
	t.Helper()
	tree := follow.New(b.Log(), registry.Znode, follow.Options{})
	s := &testWriter{tree: tree, Writer: New(Config{
		BZID: namespace, Source: "replica-registry", Bus: b, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Answer: 7 * time.Second, Sweep: 20 * time.Millisecond, Health: health.New(),
	}, tree)}
	tree.OnEvent(s.Folded)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{tree.Run, s.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(s.stop)
	return s
}

func (s *testWriter) leads(t testing.TB) {
	t.Helper()
	wait.For(t, "the writer's lease", s.Writable)
}

type answer struct {
	zxid uint64
	o    *tree.Outcome
	err  error
}

func (s *testWriter) ask(e *znode.Event) answer {
	got := make(chan answer, 2)
	s.Propose(e, func(zxid uint64, o *tree.Outcome, err error) { got <- answer{zxid, o, err} })
	return <-got
}

func write(session int64, ops ...*znode.Op) *znode.Event {
	return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: session, Ops: ops, Multi: len(ops) > 1}}}
}

func makeNode(path, data string, mode znode.Mode) *znode.Op {
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{
		Path: path, Data: []byte(data), Mode: mode, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
}

func remove(path string) *znode.Op {
	return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: -1}}}
}

func session(id int64, timeout time.Duration) *znode.Event {
	return &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{
		Session: id, TimeoutMs: int32(timeout.Milliseconds()), PasswordHash: make([]byte, 32)}}}
}

// counted counts appends and can hold the first of them.
type counted struct {
	bus.Bus
	mu      sync.Mutex
	sizes   []int
	fail    func(n int) error // after the append of n was done, if it was
	appends int
}

type countedLog struct {
	bus.Log
	c *counted
}

func (c *counted) Log() bus.Log { return countedLog{c.Bus.Log(), c} }

func (l countedLog) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	seqs, err := l.Log.Append(ctx, drafts...)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.appends++
	if err == nil {
		l.c.sizes = append(l.c.sizes, len(drafts))
	}
	if l.c.fail != nil {
		if e := l.c.fail(l.c.appends); e != nil {
			return nil, e
		}
	}
	return seqs, err
}

func buses(t *testing.T, run func(t *testing.T, open func() bus.Bus)) {
	t.Run("mem", func(t *testing.T) {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		run(t, func() bus.Bus { return b })
	})
	t.Run("jetstream", func(t *testing.T) {
		srv, err := natsserver.Start(natsserver.Config{Dir: memdir.New(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Close() })
		run(t, func() bus.Bus {
			b, err := jetstream.Connect(t.Context(), jetstream.Config{Server: srv, BZID: namespace})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		})
	})
}
