package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// sessionPrefix is the first byte of every id drawn here; znode.Owner has another one,
// and so have the owners of containers and of nodes with a time to live.
const sessionPrefix = 0x01

// sessions says which connection serves which session. The sessions themselves are facts
// in the tree; only those of a server without a Proposer live here, as long as it does.
type sessions struct {
	mu    sync.Mutex
	conns map[int64]*conn
	local map[int64]*localSession
}

type localSession struct {
	tree.Session
	seen time.Time // of the last request
}

func newSessions() *sessions {
	return &sessions{conns: map[int64]*conn{}, local: map[int64]*localSession{}}
}

// attach makes c the session's connection and ends the one it had.
func (t *sessions) attach(id int64, c *conn) {
	t.mu.Lock()
	old := t.conns[id]
	if c.left { // its client did not wait for the session
		t.mu.Unlock()
		return
	}
	t.conns[id] = c
	t.mu.Unlock()
	c.id.Store(id)
	if old != nil && old != c {
		c.s.watches.Drop(old.watcher)
		old.out.Kill(nil)
	}
}

func (t *sessions) detach(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.left = true
	if t.conns[c.Session()] == c {
		delete(t.conns, c.Session())
	}
}

func (t *sessions) conn(id int64) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conns[id]
}

// openLocal is false when there are too many.
func (t *sessions) openLocal(id int64, s tree.Session, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.local) >= limit {
		return false
	}
	t.local[id] = &localSession{s, time.Now()}
	return true
}

func (t *sessions) findLocal(id int64) (tree.Session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.local[id]
	if s == nil {
		return tree.Session{}, false
	}
	s.seen = time.Now()
	return s.Session, true
}

func (t *sessions) touchLocal(id int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.local[id]; s != nil {
		s.seen = now
	}
}

func (t *sessions) closeLocal(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.local, id)
}

// expireLocal ends the local sessions that were silent for longer than agreed.
func (t *sessions) expireLocal(now time.Time) (dead []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.local {
		if now.Sub(s.seen) > time.Duration(s.TimeoutMS)*time.Millisecond {
			delete(t.local, id)
			dead = append(dead, id)
		}
	}
	return dead
}

func (t *sessions) countLocal() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.local)
}

// touch tells whoever decides about expiry that the session's client lives.
func (s *Server) touch(c *conn, now time.Time) {
	if s.cfg.Proposer != nil {
		s.cfg.Proposer.Touch(c.Session())
		return
	}
	s.sessions.touchLocal(c.Session(), now)
}

// newSessionID never repeats an id of an earlier life or of another server, but by a
// chance of 2^-56 a pair.
func newSessionID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] = sessionPrefix
	return int64(binary.BigEndian.Uint64(b[:]))
}

var errNotWriter = errors.New("another registry writes now: its ZooKeeper port is the one to connect to")

// handshake opens a session or resumes one, and returns once the client has its answer
// or is to be let go.
func (c *conn) handshake(ctx context.Context, frame []byte) error {
	var q wire.ConnectRequest
	r := wire.NewReader(frame)
	if q.Decode(r); r.Err() != nil {
		return r.Err()
	}
	if p := c.s.cfg.Proposer; p != nil && !p.Writable() {
		if err := c.attended(ctx, c.awaitWriter); err != nil {
			return err
		}
	}
	if seq := c.s.tree.Seq(); q.LastZxidSeen > int64(seq) {
		return fmt.Errorf("the client has seen zxid 0x%x, this tree is at 0x%x: it must ask a server that is as far", q.LastZxidSeen, seq)
	}
	if q.SessionID != 0 {
		return c.resume(ctx, q)
	}
	timeout := min(max(time.Duration(q.TimeoutMS)*time.Millisecond, c.s.cfg.MinSessionTimeout), c.s.cfg.MaxSessionTimeout)
	password := make([]byte, 16)
	_, _ = rand.Read(password) // never fails
	hash := sha256.Sum256(password)
	id, ms := newSessionID(), int32(timeout/time.Millisecond)
	if c.s.cfg.Proposer == nil {
		if !c.s.sessions.openLocal(id, tree.Session{TimeoutMS: ms, PasswordHash: hash[:]}, c.s.cfg.MaxSessions) {
			return c.s.tooManySessions()
		}
		c.welcome(q, id, ms, password)
		return nil
	}
	if c.s.sessionCount() >= c.s.cfg.MaxSessions {
		return c.s.tooManySessions()
	}
	return c.attended(ctx, func(ctx context.Context) error { return c.open(ctx, q, id, ms, password, hash[:]) })
}

// takeOverGrace is how long a client waits for this registry to become the one that
// writes: it has just started, or the other one has just gone. Turned away at once,
// clients come back as fast as they can, or take it for the end of all servers.
const takeOverGrace = 500 * time.Millisecond

func (c *conn) awaitWriter(ctx context.Context) error {
	until := time.NewTimer(c.s.cfg.grace)
	defer until.Stop()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for !c.s.cfg.Proposer.Writable() {
		select {
		case <-until.C:
			return errNotWriter
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return nil
}

// open proposes a session and waits for it. One whose client goes meanwhile expires.
func (c *conn) open(ctx context.Context, q wire.ConnectRequest, id int64, ms int32, password, hash []byte) error {
	if err := c.slot(ctx); err != nil {
		return err
	}
	opened := make(chan error, 1)
	e := &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: id, TimeoutMs: ms, PasswordHash: hash}}}
	c.s.cfg.Proposer.Propose(e, func(_ uint64, o *tree.Outcome, err error) {
		<-c.s.slots
		switch {
		case err != nil:
			opened <- fmt.Errorf("the session was not opened: %w", err)
		case o == nil || o.Code != 0:
			opened <- fmt.Errorf("the session %s was not opened: its id is taken", hex(id))
		default:
			c.welcome(q, id, ms, password) // here, so that no expiry can pass it by
			opened <- nil
		}
	})
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) tooManySessions() error {
	return fmt.Errorf("too many sessions: raise MaxSessions above %d", s.cfg.MaxSessions)
}

// welcome makes c the session's connection and queues the answer.
func (c *conn) welcome(q wire.ConnectRequest, id int64, ms int32, password []byte) {
	c.timeout.Store(int64(time.Duration(ms) * time.Millisecond))
	c.s.sessions.attach(id, c)
	p := wire.ConnectResponse{TimeoutMS: ms, SessionID: id, Password: password, HasReadOnly: q.HasReadOnly}
	p.Encode(c.out.Begin())
	c.out.End()
	c.out.Nudge()
}

// resume goes on with a session that was opened before, here or at another server of the
// same log.
func (c *conn) resume(ctx context.Context, q wire.ConnectRequest) error {
	for synced := false; ; synced = true {
		known, welcome := false, false
		c.s.tree.Read(func(t view.State) {
			var s tree.Session
			if c.s.cfg.Proposer != nil {
				s, known = t.Session(q.SessionID)
			} else {
				s, known = c.s.sessions.findLocal(q.SessionID)
			}
			hash := sha256.Sum256(q.Password)
			if welcome = known && subtle.ConstantTimeCompare(hash[:], s.PasswordHash) == 1; welcome {
				c.welcome(q, q.SessionID, s.TimeoutMS, q.Password)
			}
		})
		if welcome {
			c.s.touch(c, time.Now())
			return nil
		}
		if known || synced || c.s.cfg.Proposer == nil {
			break
		}
		// It may have been opened elsewhere, a moment ago.
		if err := c.attended(ctx, c.s.catchUp); err != nil {
			return fmt.Errorf("whether session %s is known: %w", hex(q.SessionID), err)
		}
	}
	p := wire.ConnectResponse{Password: make([]byte, 16), HasReadOnly: q.HasReadOnly} // session 0: expired
	p.Encode(c.out.Begin())
	c.out.End()
	c.out.Finish()
	return errLast
}

// ended lets go of the connection of a session that is over. It runs in the fold.
func (s *Server) ended(id int64) {
	if c := s.sessions.conn(id); c != nil && !c.closing.Load() {
		c.out.Kill(errExpired)
	}
}

var errExpired = errors.New("the session has expired")
