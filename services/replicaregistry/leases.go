package replicaregistry

import (
	"sync"
	"time"
)

// leases says until when each container counts as alive. It is no state of record: a
// registry that starts, or that was away itself, grants everybody one full time-out.
type leases struct {
	timeout time.Duration

	mu       sync.Mutex
	until    map[string]time.Time
	contests map[string]string // replica -> container that would have it; to say each once
}

func newLeases(timeout time.Duration) *leases {
	return &leases{timeout: timeout, until: map[string]time.Time{}, contests: map[string]string{}}
}

// touch grants id one time-out from now.
func (l *leases) touch(id string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[id] = now.Add(l.timeout)
}

// drop forgets id, which has left.
func (l *leases) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, id)
}

// grantAll gives every lease one time-out from now.
func (l *leases) grantAll(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.until {
		l.until[id] = now.Add(l.timeout)
	}
}

// expired says whether id's lease has run out.
func (l *leases) expired(id string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.until[id]
	return ok && now.After(until)
}

// sweep returns those of members whose lease has run out. A member seen for the first
// time gets one time-out; a lease of nobody is forgotten once it has run out.
func (l *leases) sweep(members []string, now time.Time) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := make(map[string]bool, len(members))
	for _, id := range members {
		is[id] = true
		until, ok := l.until[id]
		switch {
		case !ok:
			l.until[id] = now.Add(l.timeout)
		case now.After(until):
			out = append(out, id)
		}
	}
	for id, until := range l.until {
		if !is[id] && now.After(until) {
			delete(l.until, id)
		}
	}
	return out
}

// contested notes the replicas that id would have and returns those not noted before.
func (l *leases) contested(id string, now []contest) (fresh []contest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	still := map[string]bool{}
	for _, c := range now {
		still[c.key] = true
		if l.contests[c.key] != id {
			l.contests[c.key] = id
			fresh = append(fresh, c)
		}
	}
	for key, by := range l.contests {
		if by == id && !still[key] {
			delete(l.contests, key)
		}
	}
	return fresh
}
