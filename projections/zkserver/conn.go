package zkserver

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/znode"
)

// conn is one client connection. Its own goroutine reads and answers requests one after
// the other; a second one writes.
type conn struct {
	s       *Server
	nc      net.Conn
	out     *outbox
	session *session // set by the handshake, before any watch
	since   time.Time

	mu      sync.Mutex // of what the four-letter words show
	id      int64      // the session's, 0: none yet
	timeout time.Duration
	shown   connStats
}

type connStats struct {
	received, sent int64
	op             string
	xid            int32
	zxid           int64
	replied        time.Time
	latency        latency
}

func newConn(s *Server, nc net.Conn) *conn {
	now := time.Now()
	return &conn{
		s: s, nc: nc, since: now, shown: connStats{replied: now},
		out: newOutbox(nc, s.cfg.MaxOutstanding, s.cfg.MaxQueuedBytes),
	}
}

// serve runs until the connection has ended and everything it owned is gone.
func (c *conn) serve(ctx context.Context) {
	var writer sync.WaitGroup
	writer.Go(func() {
		c.out.run(c.s.cfg.WriteTimeout, func(n int) {
			c.s.stats.sent.Add(int64(n))
			c.mu.Lock()
			c.shown.sent += int64(n)
			c.mu.Unlock()
		})
	})
	err := c.talk(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.s.logger.Info("zookeeper connection ended", "peer", c.nc.RemoteAddr().String(), "err", err)
	}
	if !errors.Is(err, errLast) {
		c.out.kill()
	}
	writer.Wait() // with errLast: until that reply is written, or its deadline has passed
	c.s.watches.drop(c)
}

// errLast ends a connection whose last reply is queued.
var errLast = fmt.Errorf("last reply queued: %w", io.EOF)

func (c *conn) talk(ctx context.Context) error {
	br := bufio.NewReaderSize(c.nc, 4096)
	if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return err
	}
	if answer, ok := c.s.word(string(head[:])); ok {
		c.out.reply([]byte(answer), true)
		return errLast
	}
	buf, err := jute.ReadBody(br, nil, c.s.cfg.MaxFrame, binary.BigEndian.Uint32(head[:]))
	if err != nil {
		return err
	}
	c.received("connect")
	if err := c.handshake(buf); err != nil {
		return err
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil { // from here on the session's expiry decides
		return err
	}
	for c.out.room() {
		if buf, err = jute.ReadFrame(br, buf, c.s.cfg.MaxFrame); err != nil {
			return err
		}
		if err := c.handle(ctx, buf); err != nil {
			return err
		}
	}
	return net.ErrClosed
}

func (c *conn) handshake(frame []byte) error {
	var q jute.ConnectRequest
	r := jute.NewReader(frame)
	if q.Decode(r); r.Err() != nil {
		return r.Err()
	}
	if seq := c.s.tree.Seq(); q.LastZxidSeen > int64(seq) {
		return fmt.Errorf("the client has seen zxid 0x%x, this tree is at 0x%x: it belongs to another server", q.LastZxidSeen, seq)
	}
	now, timeout := time.Now(), c.s.sessions.agree(time.Duration(q.TimeoutMS)*time.Millisecond)
	p := jute.ConnectResponse{Password: make([]byte, 16), HasReadOnly: q.HasReadOnly}
	if q.SessionID == 0 {
		if c.session = c.s.sessions.open(c, timeout, now); c.session == nil {
			return fmt.Errorf("too many sessions: raise MaxSessions above %d", c.s.cfg.MaxSessions)
		}
	} else {
		var old *conn
		if c.session, old = c.s.sessions.resume(c, q.SessionID, q.Password, timeout, now); c.session == nil {
			c.out.reply(jute.Frame(p.Encode), true) // session 0: expired
			return errLast
		}
		if old != nil {
			c.s.watches.drop(old)
			old.out.kill()
		}
	}
	p.SessionID, p.Password, p.TimeoutMS = c.session.id, c.session.password, int32(timeout/time.Millisecond)
	c.mu.Lock()
	c.id, c.timeout = c.session.id, timeout
	c.mu.Unlock()
	c.out.reply(jute.Frame(p.Encode), false)
	return nil
}

// handle answers one request.
func (c *conn) handle(ctx context.Context, frame []byte) error {
	start := time.Now()
	var h jute.RequestHeader
	r := jute.NewReader(frame)
	if h.Decode(r); r.Err() != nil {
		return r.Err()
	}
	c.received(opName(h.Op))
	if !c.s.sessions.live(c.session, c) {
		return errors.New("the session has expired or moved to another connection")
	}
	c.session.touch(start)
	op, ok := c.s.ops[h.Op]
	if !ok {
		op = refuse(jute.Unimplemented)
	}
	err := op(ctx, c, h.Xid, r)
	c.replied(h.Xid, time.Since(start))
	return err
}

// read answers with what fn makes of the tree. The reply is queued under the tree's read
// lock, and so in the order of zxids with watch events.
func (c *conn) read(xid int32, fn func(t znode.State) (func(*jute.Writer), jute.Code)) {
	c.s.tree.Read(func(t znode.State) {
		body, code := fn(t)
		c.send(xid, t.Seq, code, body, false)
	})
}

// fail answers with a code alone.
func (c *conn) fail(xid int32, code jute.Code) {
	c.read(xid, func(znode.State) (func(*jute.Writer), jute.Code) { return nil, code })
}

func (c *conn) send(xid int32, seq uint64, code jute.Code, body func(*jute.Writer), last bool) {
	h := jute.ReplyHeader{Xid: xid, Zxid: int64(seq), Err: code}
	parts := []func(*jute.Writer){h.Encode}
	if code == jute.OK && body != nil {
		parts = append(parts, body)
	}
	c.mu.Lock()
	c.shown.zxid = h.Zxid
	c.mu.Unlock()
	c.out.reply(jute.Frame(parts...), last)
}

func (c *conn) received(op string) {
	c.s.stats.received.Add(1)
	c.mu.Lock()
	c.shown.received++
	c.shown.op = op
	c.mu.Unlock()
}

func (c *conn) replied(xid int32, took time.Duration) {
	c.s.stats.observe(took)
	c.mu.Lock()
	c.shown.xid, c.shown.replied = xid, time.Now()
	c.shown.latency.observe(took)
	c.mu.Unlock()
}
