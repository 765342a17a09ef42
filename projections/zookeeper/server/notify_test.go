package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

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
	o := newOutbox(server, 64<<20, func(n int) { sent += n })
	var want bytes.Buffer
	frame := func(i int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(i))
		return append(b, bytes.Repeat([]byte{byte(i)}, 1000)...)
	}
	const frames = 2000
	left := 0
	for i := range frames {
		want.Write(frame(i))
		o.add(frame(i))
		o.flushNow()
		if n, _ := o.waiting(); n > 0 {
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
				o.flush()
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
	o.finish()
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
	n := newNotifiers()
	var pairs []*net.TCPConn
	var told []*conn
	for range 3*notifyChunk + 1 {
		server, client := tcpPair(t)
		pairs = append(pairs, client)
		told = append(told, &conn{out: newOutbox(server, 1<<20, func(int) {})})
	}
	told[1].out.kill(nil)
	for i, c := range told {
		c.out.add([]byte{byte(i)})
	}
	n.tell(told)
	var done sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		done.Go(func() { n.run(ctx) })
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
		if bytes, _ := told[i].out.waiting(); bytes != 0 {
			t.Errorf("%d bytes still wait for connection %d", bytes, i)
		}
	}
	stop()
	done.Wait()
}
