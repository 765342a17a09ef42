package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/outbox"
	"github.com/monolith-go/monolith/projections/zookeeper/watch"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// conn is one client connection. Its own goroutine reads requests, answers those that
// need not wait, and writes what it has answered; a second one writes what was answered
// elsewhere.
type conn struct {
	s      *Server
	nc     net.Conn
	host   string // the peer's address without its port
	out    *outbox.Outbox
	pipe   pipeline
	br     *bufio.Reader // the reader's own
	held   int64         // bytes of the waiting budget that the request at hand holds; the reader's own
	behind chan struct{} // holds one token when something in pipe need not wait any longer
	since  time.Time
	in     wire.Reader // the request being decoded; the reader's own
	read   time.Time   // when the requests at hand were; zero: to be asked; the reader's own

	unsent  bool         // in the server's list of that name
	id      atomic.Int64 // the session's, 0: none yet
	timeout atomic.Int64 // as agreed, ns
	closing atomic.Bool  // the client has closed its session
	left    bool         // has ended; the lock of sessions guards it
	auth    atomic.Pointer[[]*znode.Identity]
	shown   figures
	watcher *watch.Watcher
}

// readBytes is each connection's input buffer: what is pipelined in it is answered with
// one write.
const readBytes = 16 << 10

// keptBytes is the largest request buffer kept for the next one, and as much as is queued
// before it is written though more requests are at hand.
const keptBytes = 64 << 10

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, br: bufio.NewReaderSize(nc, readBytes), since: time.Now(), pipe: newPipeline(s.cfg.MaxOutstanding), behind: make(chan struct{}, 1)}
	c.host = hostOf(nc.RemoteAddr())
	c.auth.Store(&[]*znode.Identity{{Scheme: "ip", Id: c.host}})
	c.out = outbox.New(nc, s.cfg.MaxQueuedBytes, func(n int) {
		s.stats.sent.Add(int64(n))
		c.shown.sent.Add(int64(n))
	}, func(n int) { s.stats.replySize.observe(int64(n)) })
	c.watcher = watch.NewWatcher(c, c.out)
	c.shown.reset()
	return c
}

func hostOf(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap().WithZone("").String()
	}
	return ""
}

// Session is the id of the session, 0 before there is one.
func (c *conn) Session() int64 { return c.id.Load() }

func hex(id int64) string { return "0x" + strconv.FormatUint(uint64(id), 16) }

// errLast ends a connection whose last reply is queued or on its way.
var errLast = fmt.Errorf("last reply queued: %w", io.EOF)

// serve runs until the connection has ended and everything it owned is gone.
func (c *conn) serve(ctx context.Context) {
	var writer sync.WaitGroup
	writer.Go(c.write)
	err := c.talk(ctx)
	if errors.Is(err, errLast) {
		select {
		case <-c.out.Gone(): // that reply is written, or the client does not read it
		case <-ctx.Done():
		}
	}
	c.out.Kill(nil)
	writer.Wait()
	c.s.waiting.giveBack(c.held)
	c.s.waiting.giveBack(c.pipe.abandon())
	c.s.watches.Drop(c.watcher)
	c.s.sessions.detach(c)
	if cause := c.out.Cause(); cause != nil {
		err = cause
	}
	if errors.Is(err, outbox.ErrSlow) {
		c.s.stats.slow.Add(1)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.s.logger.Info("zookeeper connection ended", "peer", c.nc.RemoteAddr().String(), "session", hex(c.Session()), "err", err)
	}
}

// write is the connection's second goroutine.
func (c *conn) write() {
	for {
		select {
		case <-c.out.Wake():
			c.out.Flush()
		case <-c.behind:
			c.catchUp()
		case <-c.out.Gone():
			return
		}
	}
}

func (c *conn) talk(ctx context.Context) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return err
	}
	if answer, ok := c.word(string(head[:])); ok {
		c.out.Text(answer)
		c.out.Finish()
		return errLast
	}
	limit := c.s.cfg.MaxFrame + 1
	buf, err := wire.ReadBody(c.br, nil, limit, binary.BigEndian.Uint32(head[:]))
	if err != nil {
		return err
	}
	c.received(opSession)
	if err := c.handshake(ctx, buf); err != nil {
		return err
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil { // from here on the session's expiry decides
		return err
	}
	for {
		if !buffered(c.br) {
			c.out.Flush()
			c.read = time.Time{}
		}
		if c.out.Ended() {
			return net.ErrClosed
		}
		if buf, err = c.request(ctx, buf, limit); err != nil {
			return err
		}
		if n, _ := c.out.Waiting(); n > keptBytes {
			c.out.Flush()
		}
	}
}

// request reads and handles the next one. The room of a large one is taken from the
// server's budget before it is read.
func (c *conn) request(ctx context.Context, buf []byte, limit int) ([]byte, error) {
	reading := int64(0)
	head, err := c.br.Peek(4)
	if err != nil {
		return buf, err
	}
	if n := int64(binary.BigEndian.Uint32(head)); n > readBytes && n < int64(limit) {
		if reading, err = c.take(ctx, c.s.reading, n); err != nil {
			return buf, err
		}
		defer func() { c.s.reading.giveBack(reading) }()
	}
	if buf, err = wire.ReadFrame(c.br, buf, limit); err != nil {
		return buf, err
	}
	err = c.handle(ctx, buf)
	c.s.waiting.giveBack(c.held) // unless the request waits with them
	c.held = 0
	if cap(buf) > keptBytes {
		buf = nil
	}
	return buf, err
}

// holdFor takes what a request that waits takes from the server's budget.
func (c *conn) holdFor(ctx context.Context, op wire.Op, n int) (err error) {
	c.held, err = c.take(ctx, c.s.waiting, cost(op, n))
	return err
}

// buffered says whether a whole request is there already.
func buffered(br *bufio.Reader) bool {
	if br.Buffered() < 4 {
		return false
	}
	head, err := br.Peek(4)
	return err == nil && uint32(br.Buffered()-4) >= binary.BigEndian.Uint32(head)
}

// handle answers one request, or queues it behind the writes that it must wait for.
func (c *conn) handle(ctx context.Context, frame []byte) error {
	if c.read.IsZero() { // once for all that came at once
		c.read = time.Now()
		c.s.touch(c, c.read)
	}
	start := c.read
	var h wire.RequestHeader
	c.in.Reset(frame)
	if h.Decode(&c.in); c.in.Err() != nil {
		return c.in.Err()
	}
	c.received(h.Op)
	body := frame[len(frame)-c.in.Len():]
	switch kind := kindOf(h.Op); {
	case kind == isWrite:
		if err := c.holdFor(ctx, h.Op, len(body)); err != nil {
			return err
		}
		return c.write1(ctx, h, start)
	case kind == isUnknown: // ZooKeeper hangs up as well
		if err := c.atMost(ctx, 0); err != nil {
			return err
		}
		c.fail(h, wire.Unimplemented)
		c.out.Finish()
		return errLast
	case kind == isSlow || mentionsPast(h.Op, body):
		if err := c.atMost(ctx, 0); err != nil {
			return err
		}
		err := c.s.slow(ctx, c, h)
		c.read = time.Time{} // it may have taken long
		c.answered(h, start, 0)
		return err
	}
	if c.pipe.len() > 0 {
		if err := c.atMost(ctx, c.pipe.limit-1); err != nil {
			return err
		}
		if err := c.holdFor(ctx, h.Op, len(body)); err != nil {
			return err
		}
		q := &request{head: h, body: append(make([]byte, 0, len(body)), body...), start: start, held: c.held}
		if c.pipe.add(q, true) {
			c.held = 0
			return nil
		}
	}
	zxid := c.readNow(h)
	c.answered(h, start, zxid)
	return nil
}
