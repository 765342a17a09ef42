package server

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// While the log takes nothing, the requests that wait take no more memory than they may,
// however many clients send however much. Nothing is lost by it.
func TestWaitingRequestsAreBoundedByBytes(t *testing.T) {
	const limit, each, perConn = 8 << 20, 400 << 10, 30
	for _, tc := range []struct {
		name string
		op   wire.Op
		body func(i int32) func(*wire.Writer)
	}{
		{"writes", wire.OpSetData, func(int32) func(*wire.Writer) {
			data := bytes.Repeat([]byte{'x'}, each)
			return (&wire.SetDataRequest{Path: "/a", Data: data, Version: -1}).Encode
		}},
		{"multis of many small parts", wire.OpMulti, func(int32) func(*wire.Writer) {
			return func(w *wire.Writer) {
				for range 5000 {
					(&wire.MultiHeader{Op: wire.OpCheck}).Encode(w)
					(&wire.PathVersion{Path: "/a", Version: -1}).Encode(w)
				}
				wire.MultiEnd().Encode(w)
			}
		}},
		{"reads behind a write", wire.OpExists, func(int32) func(*wire.Writer) {
			return on("/"+string(bytes.Repeat([]byte{'x'}, each)), false)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, testProposer := writable(t, Config{MaxWaitingBytes: limit})
			small := h.connect(wire.ConnectRequest{})
			small.ask(-1, wire.OpCreate, creating("/a", 0))
			small.code(-1, wire.OK)
			conns := []*wireClient{h.connect(wire.ConnectRequest{}), h.connect(wire.ConnectRequest{})}
			hold := make(chan struct{})
			testProposer.pause(hold)
			before := heapBytes()
			var sending sync.WaitGroup
			for _, c := range conns {
				_ = c.Deadline(6 * within)
				c.ask(-1, wire.OpSetData, setting("/a", "b"))
				body := tc.body(0)
				sending.Go(func() {
					for i := range int32(perConn) {
						c.ask(i, tc.op, body)
					}
				})
			}
			wait.For(t, "the limit", func() bool { return h.stats.throttled.Load() >= 2 })
			used := min(heapBytes(), heapBytes(), heapBytes()) - before // what passes meanwhile only adds
			t.Logf("requests that wait take %d MiB", used>>20)
			if used > 3*limit {
				t.Errorf("requests that wait take %d MiB, %d are allowed", used>>20, limit>>20)
			}
			close(hold)
			for _, c := range conns {
				c.reply(-1)
				for i := range int32(perConn) {
					c.reply(i)
				}
			}
			sending.Wait()
			wait.For(t, "all bytes are given back", func() bool { return h.waiting.used.Load() == 0 && h.reading.used.Load() == 0 })
		})
	}
}

// A client that hangs up while its request waits gives back what it held, whether the
// log answers or not.
func TestHangUpGivesWaitingBytesBack(t *testing.T) {
	h, testProposer := writable(t, Config{MaxWaitingBytes: 64 << 10})
	a, b := h.connect(wire.ConnectRequest{}), h.connect(wire.ConnectRequest{})
	hold := make(chan struct{})
	testProposer.pause(hold)
	a.ask(1, wire.OpCreate, creating("/a", 0))
	for i := range int32(3) {
		a.ask(2+i, wire.OpExists, on("/"+string(bytes.Repeat([]byte{'x'}, 10<<10)), false))
	}
	wait.For(t, "requests wait", func() bool { return h.waiting.used.Load() > 30<<10 })
	b.ask(1, wire.OpCreate, func(w *wire.Writer) {
		(&wire.CreateRequest{Path: "/b", Data: make([]byte, 60<<10), ACL: open31}).Encode(w, false)
	})
	wait.For(t, "one is throttled", func() bool { return h.stats.throttled.Load() == 1 })
	b.Close()
	wait.For(t, "it is let go", func() bool { return len(h.connections()) == 1 })
	a.Close()
	wait.For(t, "reads are given up", func() bool { return h.waiting.used.Load() < 10<<10 })
	close(hold)
	wait.For(t, "all bytes are given back", func() bool { return h.waiting.used.Load() == 0 && h.reading.used.Load() == 0 })
}

// A throttled client is not silent: its session lives on.
func TestThrottledSessionsDoNotExpire(t *testing.T) {
	h, testProposer := writable(t, Config{MaxWaitingBytes: 32 << 10, MinSessionTimeout: time.Second, MaxSessionTimeout: time.Second})
	a := h.connect(wire.ConnectRequest{})
	hold := make(chan struct{})
	testProposer.pause(hold)
	for i := range int32(4) {
		a.ask(i, wire.OpCreate, func(w *wire.Writer) {
			(&wire.CreateRequest{Path: fmt.Sprintf("/a%d", i), Data: make([]byte, 30<<10), ACL: open31}).Encode(w, false)
		})
	}
	wait.For(t, "one is throttled", func() bool { return h.stats.throttled.Load() == 1 })
	began := time.Now()
	wait.For(t, "the session is touched after its time-out", func() bool {
		testProposer.mu.Lock()
		defer testProposer.mu.Unlock()
		return testProposer.heard[a.Session.SessionID].Sub(began) > time.Second
	})
	close(hold)
	for i := range int32(4) {
		a.code(i, wire.OK)
	}
}

// A client that hangs up while its session is being opened leaves its place to others.
func TestHangUpDuringHandshake(t *testing.T) {
	h, testProposer := writable(t, Config{MaxConns: 3})
	old := h.connect(wire.ConnectRequest{})
	hold := make(chan struct{})
	testProposer.pause(hold)
	open := h.sessionCount()
	for range 2 {
		w := h.dialAndSay(wire.ConnectRequest{TimeoutMS: 4000, Password: make([]byte, 16)})
		defer w.Close()
	}
	wait.For(t, "sessions are being opened", func() bool { return len(h.slots) == 2 })
	old.Close()
	wait.For(t, "the old connection is gone", func() bool { return len(h.connections()) == 2 })
	w := h.dialAndSay(wire.ConnectRequest{TimeoutMS: 4000, Password: make([]byte, 16)})
	wait.For(t, "the server is full", func() bool { return len(h.slots) == 3 })
	w.Close()
	wait.For(t, "a place is free", func() bool { return len(h.connections()) == 2 })
	again := h.connect(wire.ConnectRequest{SessionID: old.Session.SessionID, Password: old.Session.Password})
	if again.Session.SessionID != old.Session.SessionID {
		t.Errorf("the old session is not resumed: %+v", again.Session)
	}
	close(hold)
	wait.For(t, "all sessions are open", func() bool { return h.sessionCount() == open+3 })
	wait.For(t, "nobody is remembered who has gone", func() bool {
		h.sessions.mu.Lock()
		defer h.sessions.mu.Unlock()
		return len(h.sessions.conns) == 3
	})
}

// replays is a log that counts replays, and has them wait for hold.
type replays struct {
	bus.Log
	n, running atomic.Int64
	hold       chan struct{} // nil: they do not wait
}

func (c *replays) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	c.n.Add(1)
	c.running.Add(1)
	defer c.running.Add(-1)
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.Log.Follow(ctx, from, until, handle)
}

func manyPasts(n int) func(*wire.Writer) {
	return func(w *wire.Writer) {
		for i := range n {
			(&wire.MultiHeader{Op: wire.OpGetChildren}).Encode(w)
			(&wire.PathWatch{Path: fmt.Sprintf("/@%d/", i+1)}).Encode(w)
		}
		wire.MultiEnd().Encode(w)
	}
}

// One request replays the log for as many past trees as are kept, and no more; it ends
// with its client.
func TestPastTreesOfOneRequestAreBounded(t *testing.T) {
	h := open(t, Config{})
	for i := range 30 {
		h.load(fmt.Sprintf("m%d", i))
	}
	log := &replays{Log: h.bus.Log()}
	h.history.log = log
	a := h.connect(wire.ConnectRequest{})
	a.ask(1, wire.OpMultiRead, manyPasts(25))
	head, r := a.reply(1)
	if head.Err != wire.OK {
		t.Fatalf("%+v", head)
	}
	for i := range 25 {
		var m wire.MultiHeader
		m.Decode(r)
		if i < historySize {
			r.Strings()
		} else if code := wire.Code(r.Int32()); m.Op != wire.OpError || code != wire.ThrottledOp {
			t.Fatalf("part %d: %+v, code %d", i, m, code)
		}
	}
	if n := log.n.Load(); n != historySize {
		t.Errorf("%d replays of the log for one request, %d are allowed", n, historySize)
	}
}

func TestReplayEndsWithItsClient(t *testing.T) {
	h := open(t, Config{})
	for i := range 30 {
		h.load(fmt.Sprintf("m%d", i))
	}
	log := &replays{Log: h.bus.Log(), hold: make(chan struct{})}
	h.history.log = log
	a := h.connect(wire.ConnectRequest{})
	a.ask(1, wire.OpMultiRead, manyPasts(3))
	wait.For(t, "a replay runs", func() bool { return log.running.Load() == 1 })
	a.Close()
	wait.For(t, "it ends", func() bool { return log.running.Load() == 0 && len(h.connections()) == 0 })
	if n := log.n.Load(); n != 1 {
		t.Errorf("%d replays for a client that has gone", n)
	}
}
