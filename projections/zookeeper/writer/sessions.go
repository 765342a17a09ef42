package writer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// sessionTick is how often silent sessions are looked for.
const sessionTick = 100 * time.Millisecond

// away is how long between two looks means that this process was stopped.
const away = 2 * time.Second

// sessionTable says when each open session's client was last heard of. It is no state of
// record: whoever takes over the writing, or was away itself, grants everybody one full
// time-out.
type sessionTable struct {
	bzid string
	now  func() time.Time
	born time.Time // times are counted from here, by the clock that does not jump where there is one

	mu     sync.RWMutex
	byID   map[int64]*sessionTimer
	looked time.Duration // last look of silent; 0: none since the reset
}

type sessionTimer struct {
	timeout time.Duration
	seen    atomic.Int64 // ns since born
	closing bool         // its end is proposed
}

func newSessionTable(bzid string, now func() time.Time) *sessionTable {
	return &sessionTable{bzid: bzid, now: now, born: now(), byID: map[int64]*sessionTimer{}}
}

func (z *sessionTable) since() time.Duration { return z.now().Sub(z.born) }

func (z *sessionTable) touch(id int64) {
	z.mu.RLock()
	s := z.byID[id]
	z.mu.RUnlock()
	if s != nil {
		s.seen.Store(int64(z.since()))
	}
}

// reset begins anew with the sessions of the state, all of them just heard of.
func (z *sessionTable) reset(t view.State) {
	z.mu.Lock()
	defer z.mu.Unlock()
	clear(z.byID)
	z.looked = 0
	for _, id := range t.Sessions() {
		if s, _ := t.Session(id); s.BZID == z.bzid {
			z.add(id, s.TimeoutMS)
		}
	}
}

func (z *sessionTable) add(id int64, timeoutMS int32) {
	s := &sessionTimer{timeout: time.Duration(timeoutMS) * time.Millisecond}
	s.seen.Store(int64(z.since()))
	z.byID[id] = s
}

// folded keeps the table in step with the tree.
func (z *sessionTable) folded(subject events.Subject, e *znode.Event, did view.Effects) {
	switch b := e.GetBody().(type) {
	case *znode.Event_SessionOpened:
		if p, err := subject.Parse(); err != nil || p.BZID != z.bzid || did.Outcome == nil || did.Outcome.Code != wire.OK {
			return
		}
		z.mu.Lock()
		z.add(b.SessionOpened.GetSession(), b.SessionOpened.GetTimeoutMs())
		z.mu.Unlock()
	case *znode.Event_SessionClosed:
		z.mu.Lock()
		delete(z.byID, b.SessionClosed.GetSession())
		z.mu.Unlock()
	}
}

// excuse takes a time in which nobody could be heard for no silence of anybody's.
func (z *sessionTable) excuse(d time.Duration) {
	if d < sessionTick/10 {
		return
	}
	z.mu.RLock()
	defer z.mu.RUnlock()
	now := int64(z.since())
	for _, s := range z.byID {
		seen := s.seen.Load()
		s.seen.CompareAndSwap(seen, min(seen+int64(d), now)) // else it was heard of just now
	}
}

// silent returns the sessions whose time-out has passed, each once. A process that was
// stopped heard nobody meanwhile: then everybody gets one full time-out instead.
func (z *sessionTable) silent() (ids []int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now, was := z.since(), z.looked
	z.looked = now
	if was != 0 && (now-was > away || now < was) {
		for _, s := range z.byID {
			s.seen.Store(int64(now))
		}
		return nil
	}
	for id, s := range z.byID {
		if !s.closing && now-time.Duration(s.seen.Load()) > s.timeout {
			s.closing = true
			ids = append(ids, id)
		}
	}
	return ids
}

// spare lets a session live whose end could not be proposed.
func (z *sessionTable) spare(id int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if s := z.byID[id]; s != nil {
		s.closing = false
	}
}
