package server

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// nowhere swallows what is written to it.
type nowhere struct{ net.Conn }

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Close() error                { return nil }
func (nowhere) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// prepared is a server with one node of 100 bytes.
func prepared(b *testing.B) (*harness, string) {
	h, _ := writable(b, Config{})
	w := h.connect(wire.ConnectRequest{})
	for i, path := range []string{"/bench", "/bench/node"} {
		w.ask(int32(i), wire.OpCreate, func(w *wire.Writer) {
			(&wire.CreateRequest{Path: path, Data: []byte(strings.Repeat("x", 100)), ACL: open31}).Encode(w, false)
		})
		w.code(int32(i), wire.OK)
	}
	return h, "/bench/node"
}

// BenchmarkGet is what one getData costs from frame to frame, without the network.
func BenchmarkGet(b *testing.B) {
	h, path := prepared(b)
	c := newConn(h.Server, nowhere{})
	frame := wire.Frame((&wire.RequestHeader{Xid: 1, Op: wire.OpGetData}).Encode, on(path, false))[4:]
	b.ReportAllocs()
	for b.Loop() {
		if err := c.handle(b.Context(), frame); err != nil {
			b.Fatal(err)
		}
		c.out.Flush()
	}
}

// BenchmarkGetWire has one client with 100 requests under way, its own time included.
func BenchmarkGetWire(b *testing.B) {
	h, path := prepared(b)
	c, err := client.Dial(h.Addr(), wire.ConnectRequest{TimeoutMS: 40_000}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const window = 100
	ask := (&wire.PathWatch{Path: path}).Encode
	b.ReportAllocs()
	for done := 0; b.Loop(); done++ {
		if done%window == 0 {
			for range window {
				c.Send(wire.OpGetData, ask)
			}
			if err := c.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		if h, _, err := c.Next(); err != nil || h.Err != 0 {
			b.Fatal(h, err)
		}
	}
}

// BenchmarkWatch changes a node that 500 sessions watch, and takes the time until the
// last of them has heard, in the same process.
func BenchmarkWatch(b *testing.B) {
	h, path := prepared(b)
	const sessions = 500
	conns := make([]*client.Conn, sessions)
	for i := range conns {
		c, err := client.Dial(h.Addr(), wire.ConnectRequest{TimeoutMS: 40_000}, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	writer := h.connect(wire.ConnectRequest{TimeoutMS: 40_000})
	var took []time.Duration
	for b.Loop() {
		for _, c := range conns {
			c.Send(wire.OpGetData, on(path, true))
			if err := c.Flush(); err != nil {
				b.Fatal(err)
			}
			if _, _, err := c.Next(); err != nil {
				b.Fatal(err)
			}
		}
		var heard sync.WaitGroup
		for _, c := range conns {
			heard.Go(func() {
				if h, _, err := c.Next(); err != nil || h.Xid != wire.XidNotification {
					b.Error(h, err)
				}
			})
		}
		start := time.Now()
		writer.ask(1, wire.OpSetData, setting(path, strings.Repeat("y", 100)))
		heard.Wait()
		took = append(took, time.Since(start))
		writer.code(1, wire.OK)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}
