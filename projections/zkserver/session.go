package zkserver

import (
	"crypto/rand"
	"crypto/subtle"
	"sync"
	"sync/atomic"
	"time"
)

// session outlives its connections by its timeout.
type session struct {
	id       int64
	password []byte
	timeout  time.Duration        // the table's lock guards it
	conn     atomic.Pointer[conn] // the newest connection
	seen     atomic.Int64         // Unix ns of the last request
}

func (s *session) touch(now time.Time) { s.seen.Store(now.UnixNano()) }

// sessions is the table of this server's life: a restarted server knows none of them.
type sessions struct {
	min, max time.Duration
	limit    int

	mu   sync.Mutex
	byID map[int64]*session
	next int64
}

// sessionPrefix is the first byte of every id drawn here; znode.Owner has another one.
const sessionPrefix = 0x01

func newSessions(cfg Config) *sessions {
	// As in ZooKeeper, ids begin at the time of the start, so that those of an earlier
	// life do not come back.
	return &sessions{
		min: cfg.MinSessionTimeout, max: cfg.MaxSessionTimeout, limit: cfg.MaxSessions,
		byID: map[int64]*session{},
		next: sessionPrefix<<56 | (time.Now().UnixMicro()<<5)&(1<<56-1),
	}
}

// agree is the timeout that a client gets which asks for wish.
func (t *sessions) agree(wish time.Duration) time.Duration { return min(max(wish, t.min), t.max) }

// open starts a session for c, nil when there are too many.
func (t *sessions) open(c *conn, timeout time.Duration, now time.Time) *session {
	s := &session{password: make([]byte, 16), timeout: timeout}
	_, _ = rand.Read(s.password) // never fails
	s.touch(now)
	s.conn.Store(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byID) >= t.limit {
		return nil
	}
	t.next++
	s.id = t.next
	t.byID[s.id] = s
	return s
}

// resume moves a live session to c and returns the connection it leaves; s is nil when
// there is no such session or the password is not its own.
func (t *sessions) resume(c *conn, id int64, password []byte, timeout time.Duration, now time.Time) (s *session, old *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s = t.byID[id]
	if s == nil || subtle.ConstantTimeCompare(s.password, password) != 1 {
		return nil, nil
	}
	s.timeout = timeout
	s.touch(now)
	return s, s.conn.Swap(c)
}

func (t *sessions) close(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

// live says whether the session still exists and c is its connection.
func (t *sessions) live(s *session, c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[s.id] == s && s.conn.Load() == c
}

// expire removes and returns the sessions silent for longer than their timeout.
func (t *sessions) expire(now time.Time) []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var dead []*session
	for id, s := range t.byID {
		if now.UnixNano()-s.seen.Load() > int64(s.timeout) {
			dead = append(dead, s)
			delete(t.byID, id)
		}
	}
	return dead
}

func (t *sessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}
