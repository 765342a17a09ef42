package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const within = wait.Patience

var znodeView = follow.View[view.State]{Name: view.Name, Version: view.Version, New: view.New, Fold: view.Fold}

// harness is a server on a log in memory.
type harness struct {
	*Server
	t    testing.TB
	bus  *mem.Bus
	stop func()
}

func open(t testing.TB, cfg Config) *harness {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	return openOn(t, cfg, b)
}

func openOn(t testing.TB, cfg Config, b *mem.Bus) *harness {
	t.Helper()
	return openWith(t, cfg, b, nil)
}

func newTree(b *mem.Bus) *follow.Follower[view.State] {
	return follow.New(b.Log(), znodeView, follow.Options{})
}

// openWith runs a server, and with w what it proposes to.
func openWith(t testing.TB, cfg Config, b *mem.Bus, w *testProposer) *harness {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	tree := newTree(b)
	s := New(cfg, b.Log(), tree, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if w != nil {
		w.tree = tree
		tree.OnEvent(w.folded)
		wg.Go(func() { w.run(ctx) })
	}
	wg.Go(func() {
		if err := tree.Run(ctx); err != nil {
			t.Errorf("tree: %v", err)
		}
	})
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	h := &harness{s, t, b, sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(h.stop)
	select {
	case <-s.Ready():
	case <-time.After(within):
		t.Fatal("the server does not get ready")
	}
	return h
}

// add appends an event and waits for the tree to have it.
func (h *harness) add(context, aggregate string, e proto.Message) uint64 {
	h.t.Helper()
	seq := h.append(context, aggregate, e)
	ctx, cancel := withTimeout()
	defer cancel()
	if err := h.tree.Wait(ctx, seq); err != nil {
		h.t.Fatal(err)
	}
	return seq
}

func (h *harness) append(context, aggregate string, e proto.Message) uint64 {
	h.t.Helper()
	ctx, cancel := withTimeout()
	defer cancel()
	seqs, err := h.bus.Log().Append(ctx, bus.Draft{Subject: events.Join("demo", context, aggregate), Event: e, Expect: bus.Any})
	if err != nil {
		h.t.Fatal(err)
	}
	return seqs[0]
}

func withTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), within)
}

const replicaPath = "/demo/service/movie/ps:0/0"

func (h *harness) register() uint64 {
	return h.add("replica", "movie/ps:0/0", &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
		ModelName: "movie", ServerType: "ps", Container: "a", GrpcAddress: "127.0.0.1:4003", Stat: replica.State_LOADING, Version: 3,
	}}}})
}

func stateOf(st replica.State) proto.Message {
	return &replica.Event{Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: st, Version: 3}}}
}

func (h *harness) state(st replica.State) uint64 {
	return h.add("replica", "movie/ps:0/0", stateOf(st))
}

func (h *harness) lost() uint64 {
	return h.add("replica", "movie/ps:0/0", &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "no heartbeat"}}})
}

func (h *harness) load(name string) uint64 {
	return h.add("model", name, &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
		Load: &model.Load{ModelName: name, ModelDir: "/d", NumShard: 1, Version: 1},
	}}})
}

// stock connects the stock client and waits for its session.
func (h *harness) stock(dial zk.Dialer) *zk.Conn {
	h.t.Helper()
	return oracle.ZKClient(h.t, h.Addr(), dial)
}

// wireClient fails its test where a connection does not go as it should.
type wireClient struct {
	t testing.TB
	*client.Conn
}

func (h *harness) dial() *wireClient {
	h.t.Helper()
	return dialTo(h.t, h.Addr())
}

func dialTo(t testing.TB, addr string) *wireClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return speaksOn(t, nc)
}

func speaksOn(t testing.TB, nc net.Conn) *wireClient {
	t.Helper()
	t.Cleanup(func() { nc.Close() })
	w := &wireClient{t, client.New(nc)}
	if err := w.Deadline(within); err != nil {
		t.Fatal(err)
	}
	return w
}

// connect opens the session and gives its answer.
// connect opens a session, or resumes one; one that asks for no time-out is given the longest.
func (h *harness) connect(q wire.ConnectRequest) *wireClient {
	h.t.Helper()
	if q.TimeoutMS == 0 {
		q.TimeoutMS = 40_000
	}
	return h.dial().connect(q)
}

func (w *wireClient) connect(q wire.ConnectRequest) *wireClient {
	w.t.Helper()
	w.write(wire.Frame(q.Encode))
	r := w.next()
	w.Session.Decode(r)
	w.Session.Password = bytes.Clone(w.Session.Password)
	if r.Err() != nil || r.Len() != 0 {
		w.t.Fatalf("connect: %v, %d bytes too many", r.Err(), r.Len())
	}
	return w
}

func (w *wireClient) write(b []byte) {
	w.t.Helper()
	if _, err := w.Net().Write(b); err != nil {
		w.t.Fatal(err)
	}
}

// next is the next frame, which is valid until the next call.
func (w *wireClient) next() *wire.Reader {
	w.t.Helper()
	r, err := w.Frame()
	if err != nil {
		w.t.Fatalf("reading: %v", err)
	}
	return r
}

func (w *wireClient) ask(xid int32, op wire.Op, parts ...func(*wire.Writer)) {
	w.t.Helper()
	h := wire.RequestHeader{Xid: xid, Op: op}
	w.write(wire.Frame(append([]func(*wire.Writer){h.Encode}, parts...)...))
}

// reply reads the next frame, which must be a reply or notification with that xid.
func (w *wireClient) reply(xid int32) (wire.ReplyHeader, *wire.Reader) {
	w.t.Helper()
	r := w.next()
	var h wire.ReplyHeader
	if h.Decode(r); r.Err() != nil || h.Xid != xid {
		w.t.Fatalf("reply %+v, %v; want xid %d", h, r.Err(), xid)
	}
	return h, r
}

func (w *wireClient) code(xid int32, want wire.Code) {
	w.t.Helper()
	if h, _ := w.reply(xid); h.Err != want {
		w.t.Fatalf("xid %d: code %d, want %d", xid, h.Err, want)
	}
}

func (w *wireClient) notice(kind tree.ChangeKind, path string) {
	w.t.Helper()
	_, r := w.reply(wire.XidNotification)
	var e wire.WatcherEvent
	if e.Decode(r); e != (wire.WatcherEvent{Type: int32(kind), State: 3, Path: path}) {
		w.t.Fatalf("event %+v, want %d on %s", e, kind, path)
	}
}

// gone waits for the server to hang up.
func (w *wireClient) gone() {
	w.t.Helper()
	_, err := w.Frame()
	if ne, ok := err.(net.Error); err == nil || errors.Is(err, io.ErrUnexpectedEOF) || (ok && ne.Timeout()) {
		w.t.Fatalf("a frame or %v instead of the end", err)
	}
}

func on(path string, watch bool) func(*wire.Writer) {
	return (&wire.PathWatch{Path: path, Watch: watch}).Encode
}
