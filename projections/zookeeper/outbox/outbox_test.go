package outbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// within is how long a write over loopback may take.
const within = wait.Patience

// tcpPair is a connection over loopback, seen from both ends.
func tcpPair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); _ = c.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// What a full socket does not take at once is written later, behind it and before what
// came meanwhile, and nobody waits for it but the connection's own writer.
func TestFlushNowNeverWaits(t *testing.T) {
	server, client := tcpPair(t)
	if err := server.SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if err := client.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	sent := 0
	o := New(server, 64<<20, func(n int) { sent += n }, nil)
	var want bytes.Buffer
	frame := func(i int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(i))
		return append(b, bytes.Repeat([]byte{byte(i)}, 1000)...)
	}
	const frames = 2000
	left := 0
	for i := range frames {
		want.Write(frame(i))
		o.Add(frame(i))
		o.flushNow()
		if n, _ := o.Waiting(); n > 0 {
			left++
		}
	}
	if left == 0 {
		t.Fatal("the socket took everything: nothing was tested")
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-o.wake:
				o.Flush()
			case <-o.gone:
				return
			}
		}
	})
	got := make([]byte, want.Len())
	if err := client.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, got); err != nil {
		t.Fatal(err)
	}
	o.Finish()
	writer.Wait()
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("the bytes came in another order")
	}
	if sent != frames {
		t.Errorf("%d frames counted, want %d", sent, frames)
	}
}

// With many connections told at once, and some of them dead, each living one hears, and
// nobody is told twice.
func TestManyAreTold(t *testing.T) {
	n := NewNotifiers()
	var pairs []*net.TCPConn
	var told []*Outbox
	for range 3*notifyChunk + 1 {
		server, client := tcpPair(t)
		pairs = append(pairs, client)
		told = append(told, New(server, 1<<20, func(int) {}, nil))
	}
	told[1].Kill(nil)
	for i, o := range told {
		o.Add([]byte{byte(i)})
	}
	n.Tell(told)
	var done sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		done.Go(func() { n.Run(ctx) })
	}
	for i, client := range pairs {
		if i == 1 {
			continue
		}
		_ = client.SetReadDeadline(time.Now().Add(within))
		var b [1]byte
		if _, err := io.ReadFull(client, b[:]); err != nil || b[0] != byte(i) {
			t.Errorf("connection %d heard %d: %v", i, b[0], err)
		}
		if bytes, _ := told[i].Waiting(); bytes != 0 {
			t.Errorf("%d bytes still wait for connection %d", bytes, i)
		}
	}
	stop()
	done.Wait()
}

// Watch events cannot wait: a client with too many of them unread is let go.
func TestTooManyEventsWaiting(t *testing.T) {
	nc, peer := net.Pipe()
	defer peer.Close()
	o := New(nc, 100, func(int) {}, nil)
	frame := make([]byte, 40)
	o.Push(frame)
	o.Push(frame)
	o.Push(frame[:20])
	if bytes, frames := o.Waiting(); o.Ended() || bytes != 100 || frames != 3 {
		t.Fatalf("%d bytes in %d frames are queued", bytes, frames)
	}
	o.Push(frame[:5])
	if !o.Ended() || !errors.Is(o.Cause(), ErrSlow) {
		t.Errorf("a fourth event does not fit, and the connection lives on: %v", o.Cause())
	}
}
