// Package client is a lean ZooKeeper client for tests and measurements: it says on the
// wire exactly what it is told, pipelined, and hands back every frame as it came.
package client

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// maxReply bounds what a server may say in one frame.
const maxReply = 64 << 20

// Conn is one connection with a session. It belongs to one goroutine, or to two: one
// that sends and one that receives.
type Conn struct {
	Session wire.ConnectResponse
	nc      net.Conn
	br      *bufio.Reader
	out     []byte
	xid     int32
	frame   []byte
	r       wire.Reader
}

// Dial connects and opens or resumes a session as q says. A session id of 0 in the
// answer, which is no error, says that the session has expired. Every later read and
// write must be over within timeout.
func Dial(addr string, q wire.ConnectRequest, timeout time.Duration) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	return Open(nc, q, timeout)
}

// Open is Dial on a connection that is there already; it closes it on an error.
func Open(nc net.Conn, q wire.ConnectRequest, timeout time.Duration) (*Conn, error) {
	c := New(nc)
	err := c.Deadline(timeout)
	if err == nil {
		err = c.Connect(q)
	}
	if err != nil {
		_ = nc.Close() // the first error is the one to tell
		return nil, fmt.Errorf("zookeeper session at %s: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

// New is a connection on which nothing was said yet.
func New(nc net.Conn) *Conn { return &Conn{nc: nc, br: bufio.NewReaderSize(nc, 64<<10)} }

// Connect asks for a session and waits for the answer, which is Session from then on.
func (c *Conn) Connect(q wire.ConnectRequest) error {
	if _, err := c.nc.Write(wire.Frame(q.Encode)); err != nil {
		return err
	}
	r, err := c.Frame()
	if err != nil {
		return err
	}
	c.Session.Decode(r)
	c.Session.Password = bytes.Clone(c.Session.Password) // the frame's place is used again
	return r.Err()
}

// Deadline gives all reads and writes from now on timeout to be over.
func (c *Conn) Deadline(timeout time.Duration) error {
	return c.nc.SetDeadline(time.Now().Add(timeout))
}

// Close cuts the connection; the session lives on until it expires.
func (c *Conn) Close() error { return c.nc.Close() }

// Net is the connection below, for what waits without reading.
func (c *Conn) Net() net.Conn { return c.nc }

// Send queues a request under the next xid, which it returns; Flush sends what is queued.
func (c *Conn) Send(op wire.Op, body func(*wire.Writer)) int32 {
	c.xid++
	c.SendAs(c.xid, op, body)
	return c.xid
}

// SendAs is Send with an xid of the caller's choice.
func (c *Conn) SendAs(xid int32, op wire.Op, body func(*wire.Writer)) {
	start := len(c.out)
	w := wire.Writer{B: append(c.out, 0, 0, 0, 0)}
	w.Int32(xid)
	w.Int32(int32(op))
	if body != nil {
		body(&w)
	}
	binary.BigEndian.PutUint32(w.B[start:], uint32(len(w.B)-start-4))
	c.out = w.B
}

// Flush writes what is queued.
func (c *Conn) Flush() error {
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// Next is the next reply or watch event: its header, and its body, which is valid until
// the next call.
func (c *Conn) Next() (wire.ReplyHeader, *wire.Reader, error) {
	r, err := c.Frame()
	if err != nil {
		return wire.ReplyHeader{}, nil, err
	}
	var h wire.ReplyHeader
	h.Decode(r)
	return h, r, r.Err()
}

// More says that a whole frame has been received already: the next Next does not wait.
func (c *Conn) More() bool {
	head, err := c.br.Peek(min(4, c.br.Buffered()))
	return err == nil && len(head) == 4 && uint32(c.br.Buffered()-4) >= binary.BigEndian.Uint32(head)
}

// Ask sends one request, behind what is queued, and waits for its answer. Watch events that
// come before it are lost.
func (c *Conn) Ask(op wire.Op, body func(*wire.Writer)) (wire.ReplyHeader, *wire.Reader, error) {
	xid := c.Send(op, body)
	if err := c.Flush(); err != nil {
		return wire.ReplyHeader{}, nil, err
	}
	for {
		h, r, err := c.Next()
		if err != nil || h.Xid == xid {
			return h, r, err
		}
	}
}

// Frame is the next frame as it came, valid until the next call.
func (c *Conn) Frame() (*wire.Reader, error) {
	b, err := wire.ReadFrame(c.br, c.frame, maxReply)
	c.frame = b
	if err != nil {
		return nil, err
	}
	c.r.Reset(b)
	return &c.r, nil
}
