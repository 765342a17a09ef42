package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// talk opens a session with a server that answers as said.
func talk(t *testing.T, server func(net.Conn)) *Conn {
	t.Helper()
	here, there := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		defer there.Close()
		var q wire.ConnectRequest
		b, err := wire.ReadFrame(there, nil, 1<<10)
		if q.Decode(wire.NewReader(b)); err != nil || q.TimeoutMS != 1000 || q.SessionID != 5 {
			t.Errorf("the client greets with %+v, %v", q, err)
		}
		_, _ = there.Write(wire.Frame((&wire.ConnectResponse{TimeoutMS: 800, SessionID: 5, Password: []byte("0123456789abcdef")}).Encode))
		server(there)
	})
	c, err := Open(here, wire.ConnectRequest{TimeoutMS: 1000, SessionID: 5}, wait.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); served.Wait() })
	return c
}

func reply(xid int32, path string) []byte {
	return wire.Frame((&wire.ReplyHeader{Xid: xid, Zxid: 9}).Encode, (&wire.Path{Path: path}).Encode)
}

// Requests go out as they were queued, each a frame of its header and what the caller said;
// the answer to a question is found behind the events that come before it.
func TestAsk(t *testing.T) {
	c := talk(t, func(nc net.Conn) {
		for _, want := range []struct {
			xid  int32
			op   wire.Op
			rest string
		}{{1, wire.OpSync, "/a"}, {wire.XidPing, wire.OpPing, ""}, {2, wire.OpGetData, "/b"}} {
			b, err := wire.ReadFrame(nc, nil, 1<<10)
			var h wire.RequestHeader
			r := wire.NewReader(b)
			h.Decode(r)
			rest := ""
			if r.Len() > 0 {
				rest = r.Text()
			}
			if err != nil || r.Err() != nil || r.Len() != 0 || h.Xid != want.xid || h.Op != want.op || rest != want.rest {
				t.Errorf("asked %+v %q, %v, %v; want %+v", h, rest, err, r.Err(), want)
			}
		}
		for _, b := range [][]byte{reply(-1, "/event"), reply(1, "/a"), reply(2, "/b"), reply(3, "/late")} {
			_, _ = nc.Write(b)
		}
	})
	if c.Session.SessionID != 5 || c.Session.TimeoutMS != 800 || string(c.Session.Password) != "0123456789abcdef" {
		t.Errorf("the session is %+v", c.Session)
	}
	if xid := c.Send(wire.OpSync, (&wire.Path{Path: "/a"}).Encode); xid != 1 {
		t.Errorf("the first request is %d", xid)
	}
	c.SendAs(wire.XidPing, wire.OpPing, nil)
	h, r, err := c.Ask(wire.OpGetData, (&wire.Path{Path: "/b"}).Encode)
	if err != nil || h.Xid != 2 || h.Zxid != 9 || r.Text() != "/b" {
		t.Errorf("%+v, %v", h, err)
	}
	if h, _, err := c.Next(); err != nil || h.Xid != 3 {
		t.Errorf("behind it comes %+v, %v", h, err)
	}
	if _, _, err := c.Ask(wire.OpPing, nil); err == nil {
		t.Error("asked of nobody, and answered")
	}
}

// More is true of a whole frame that is there, whatever its length.
func TestMore(t *testing.T) {
	step := make(chan []byte)
	c := talk(t, func(nc net.Conn) {
		for b := range step {
			_, _ = nc.Write(b)
		}
	})
	defer close(step)
	whole := reply(1, "/a")
	for name, tc := range map[string]struct {
		behind []byte // a frame that has been read already
		more   bool
	}{
		"nothing": {nil, false}, "half a length": {whole[:2], false}, "a length": {whole[:4], false},
		"all but a byte": {whole[:len(whole)-1], false}, "a whole frame": {whole, true}, "and more": {append(whole[:len(whole):len(whole)], 0), true},
	} {
		step <- append(reply(0, "/before"), tc.behind...) // in one write: with the first frame all of it is there
		if _, _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
		if got := c.More(); got != tc.more {
			t.Errorf("%s: %v", name, got)
		}
		if n, err := io.CopyN(io.Discard, c.br, int64(len(tc.behind))); n != int64(len(tc.behind)) || err != nil {
			t.Fatal(n, err)
		}
	}
}

// Who cannot be reached, or says nothing of use, is an error that names it, and the
// connection is closed.
func TestWhoDoesNotAnswer(t *testing.T) {
	free, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(fmt.Sprintf("127.0.0.1:%d", free), wire.ConnectRequest{}, time.Second); err == nil {
		t.Error("nobody listens, and a session was opened")
	}
	here, there := net.Pipe()
	_ = there.Close()
	if _, err := Open(here, wire.ConnectRequest{}, time.Second); err == nil || !strings.Contains(err.Error(), "zookeeper session at") {
		t.Errorf("the server hung up: %v", err)
	}
	if _, err := here.Write([]byte{1}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection was left open: %v", err)
	}
	if err := New(here).Connect(wire.ConnectRequest{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a greeting that was not sent: %v", err)
	}
	if _, _, err := New(here).Ask(wire.OpPing, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a question that was not sent: %v", err)
	}
}
