package server

import (
	"log/slog"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// The least and the greatest of what was observed stay, zero included; before anything was, there
// is neither.
func TestLeastAndGreatest(t *testing.T) {
	var l latency
	var s sizes
	l.reset()
	s.reset()
	if l.min.Load() != -1 || l.max.Load() != 0 || s.min.Load() != -1 || s.max.Load() != -1 || l.avg() != 0 {
		t.Errorf("at the beginning: %d to %d ns, %d to %d bytes", l.min.Load(), l.max.Load(), s.min.Load(), s.max.Load())
	}
	for i, tc := range []struct{ n, least, most int64 }{{5, 5, 5}, {7, 5, 7}, {6, 5, 7}, {0, 0, 7}, {3, 0, 7}, {9, 0, 9}} {
		l.observe(time.Duration(tc.n))
		s.observe(tc.n)
		if l.min.Load() != tc.least || l.max.Load() != tc.most || l.last.Load() != tc.n || l.n.Load() != int64(i+1) {
			t.Errorf("behind %d: %d to %d ns, last %d", tc.n, l.min.Load(), l.max.Load(), l.last.Load())
		}
		if s.min.Load() != tc.least || s.max.Load() != tc.most || s.last.Load() != tc.n {
			t.Errorf("behind %d: %d to %d bytes, last %d", tc.n, s.min.Load(), s.max.Load(), s.last.Load())
		}
	}
	if want := 5e-6; l.avg() != want {
		t.Errorf("%v ms on average, want %v", l.avg(), want)
	}
}

// A connection shows the zxid of its last answer that has one.
func TestTheZxidThatIsShown(t *testing.T) {
	h, _ := writable(t, Config{})
	c := h.connect(wire.ConnectRequest{})
	c.ask(1, wire.OpCreate, creating("/a", 0))
	made, _ := c.reply(1)
	h.connections()[0].answered(wire.RequestHeader{Xid: 2}, time.Now(), 0)
	if shown := &h.connections()[0].shown; made.Err != wire.OK || shown.zxid.Load() != made.Zxid || shown.xid.Load() != 2 {
		t.Errorf("made at %d; shown is %d of request %d", made.Zxid, shown.zxid.Load(), shown.xid.Load())
	}
}

// A server logs where it is told to, and nowhere when it is told nothing.
func TestLogger(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	given := slog.New(slog.DiscardHandler).With("a", 1)
	if s := New(Config{}, b.Log(), newTree(b), given); s.logger != given {
		t.Error("it has another logger")
	}
	if s := New(Config{}, b.Log(), newTree(b), nil); s.logger == nil {
		t.Error("it has none")
	}
}

// An identity that a connection has shown before is not listed twice, and one that differs in
// anything is another.
func TestIdentitiesAreShownOnce(t *testing.T) {
	h := open(t, Config{})
	h.connect(wire.ConnectRequest{})
	c := h.connections()[0]
	before := len(*c.auth.Load())
	for i, tc := range []struct{ scheme, id string }{{"digest", "a"}, {"digest", "b"}, {"x509", "a"}, {"digest", "a"}, {"x509", "a"}} {
		c.show(&znode.Identity{Scheme: tc.scheme, Id: tc.id})
		if n := len(*c.auth.Load()) - before; n != min(i+1, 3) {
			t.Errorf("%d are shown after %v", n, tc)
		}
	}
}

// A watch of a mode that there is not, or of a request that is cut short, is refused.
func TestWatchesThatAreRefused(t *testing.T) {
	h := open(t, Config{})
	c := h.connect(wire.ConnectRequest{})
	for i, body := range []func(*wire.Writer){
		func(b *wire.Writer) { b.String("/a"); b.Int32(-1) },
		func(b *wire.Writer) { b.String("/a"); b.Int32(2) },
		func(b *wire.Writer) { b.String("/a") },
	} {
		c.ask(int32(i), wire.OpAddWatch, body)
		c.code(int32(i), wire.MarshallingError)
	}
	if n := h.watches.Count(); n != 0 {
		t.Errorf("%d watches are set", n)
	}
}
