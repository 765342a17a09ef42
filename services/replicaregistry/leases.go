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
	calls    map[string]stamp  // newest of each container that has a lease
	refusals map[string]int64  // container -> beginning of the process refused last; to say each once
	contests map[string]string // replica -> container that would have it; to say each once
}

func newLeases(timeout time.Duration) *leases {
	return &leases{timeout: timeout, until: map[string]time.Time{}, calls: map[string]stamp{}, refusals: map[string]int64{}, contests: map[string]string{}}
}

// touch grants id one time-out from now.
func (l *leases) touch(id string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[id] = now.Add(l.timeout)
}

// drop ends the lease of id, which has left.
func (l *leases) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, id)
}

// heard notes a call, and that of an older or unknown process not at all.
func (l *leases) heard(id string, c stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.calls[id]; c.began > was.began || c.began == was.began && c.number > was.number {
		l.calls[id] = c
	}
}

// late says whether a later call of the same process was heard.
func (l *leases) late(id string, c stamp) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.calls[id]
	return c.number != 0 && was.began == c.began && was.number > c.number
}

// refused is true for the first refusal of a process.
func (l *leases) refused(id string, c stamp) (fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh = l.refusals[id] != c.began
	l.refusals[id] = c.began
	return fresh
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
	for id := range l.calls {
		if _, held := l.until[id]; !held && !is[id] {
			delete(l.calls, id)
			delete(l.refusals, id)
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
