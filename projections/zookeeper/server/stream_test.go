package server

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// FuzzConnection sends anything to a server's port, before and behind a handshake: what
// comes back are whole frames, and the connection ends when its client is done.
func FuzzConnection(f *testing.F) {
	hello := wire.Frame((&wire.ConnectRequest{TimeoutMS: 1000, Password: make([]byte, 16)}).Encode)
	ask := func(op wire.Op, parts ...func(*wire.Writer)) []byte {
		return wire.Frame(append([]func(*wire.Writer){(&wire.RequestHeader{Xid: 1, Op: op}).Encode}, parts...)...)
	}
	for _, b := range [][]byte{
		nil, []byte("ruok"), []byte("stat\n"), hello, {0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0, 0, 0, 0},
		{0, 0, 0, 45, 1}, {0, 7, 0xff, 0xff, 1, 2, 3}, ask(wire.OpExists, on("/", true)), ask(wire.OpCloseSession), ask(wire.OpPing),
		append(ask(wire.OpGetData, on("/", false)), 0, 0, 0, 9, 1), ask(wire.OpMulti, (&wire.MultiHeader{Op: 99}).Encode),
		ask(wire.OpSetWatches, func(w *wire.Writer) { w.Int64(0); w.Int32(-5); w.Int32(1 << 30) }),
		ask(wire.OpCreate, func(w *wire.Writer) { w.Int32(1 << 30) }), ask(wire.OpGetChildren, func(w *wire.Writer) { w.Int32(-2) }),
	} {
		f.Add(false, b)
		f.Add(true, b)
	}
	h := open(f, Config{HandshakeTimeout: within, MaxSessions: 1 << 20, MinSessionTimeout: time.Second})
	f.Fuzz(func(t *testing.T, greets bool, said []byte) {
		nc, err := net.Dial("tcp", h.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		if greets {
			if _, err := nc.Write(hello); err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ReadFrame(nc, nil, 1<<10); err != nil {
				t.Fatalf("no answer to the handshake: %v", err)
			}
		}
		if _, err := nc.Write(said); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the server neither reads nor ends")
		}
		_ = nc.(*net.TCPConn).CloseWrite()
		for greets {
			_, err := wire.ReadFrame(nc, nil, 64<<20)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, wire.ErrMalformed) {
				t.Fatal(err)
			}
			if err != nil {
				break
			}
		}
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection outlives its client")
		}
	})
}
