package servables

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// sharing tells apart what versions may have rows in common: those of one job's exports of a model, of one
// shard of so many.
type sharing struct {
	model, job     string
	shard, serving int
}

// rowSet is the rows of such versions.
type rowSet struct {
	tables rows.Tables
	turn   *semaphore.Weighted // one version is read at a time, since it takes over the rows of the one before
	users  int                 // versions, and those that want to be
}

// rowSets are all there are. The zero value is ready.
type rowSets struct {
	mu  sync.Mutex
	all map[sharing]*rowSet
}

// enter is the rowSet of what is to be read; leave ends its use.
func (s *rowSets) enter(key sharing) (b *rowSet, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[sharing]*rowSet{}
	}
	b = s.all[key]
	if b == nil {
		b = &rowSet{turn: semaphore.NewWeighted(1)}
		s.all[key] = b
	}
	b.users++
	return b, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.users--; b.users == 0 {
			delete(s.all, key)
		}
	})
}

// retain adds a user to g, whose rows have not been let go; ok says whether that is so.
func (g *servable) retain() (ok bool) {
	for {
		n := g.others.Load()
		if n < 0 {
			return false
		}
		if g.others.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends one use of g: with the last one its rows go, and nobody may be answered from it any more.
func (g *servable) release() {
	if g.others.Add(-1) >= 0 {
		return
	}
	if g.ps != nil && g.leave != nil {
		g.ps.Drop()
		g.leave()
	}
	for _, own := range g.own {
		own.release()
	}
}

// lastAsked is when anybody asked for rows of this very version.
func (g *servable) lastAsked() (last time.Time) {
	if g.ps != nil {
		last = g.ps.LastAsked()
	}
	for _, own := range g.own {
		if at := own.lastAsked(); at.After(last) {
			last = at
		}
	}
	return last
}

// letGo releases a servable that is not found any more, once those who had found it have had their rows.
func (s *Manager) letGo(ctx context.Context, g *servable) {
	since := time.Now()
	s.lives.Go(func() {
		for {
			last := g.lastAsked()
			if last.Before(since) {
				last = since
			}
			left := time.NewTimer(s.linger - time.Since(last))
			select {
			case <-left.C:
			case <-ctx.Done():
			}
			left.Stop()
			if ctx.Err() != nil || time.Since(last) >= s.linger && !g.lastAsked().After(last) {
				g.release()
				return
			}
		}
	})
}

// hold notes that g was read for v. Only v's own goroutine does.
func (v *version) hold(g *servable) { v.held = append(v.held, g) }

// unhold lets go what was read for v and never answered.
func (v *version) unhold(g *servable) {
	if at := slices.Index(v.held, g); at >= 0 {
		v.held = slices.Delete(v.held, at, at+1)
		g.release()
	}
}

// handOver takes from v all that was read for it but what answers now.
func (v *version) handOver(but *servable) (gone []*servable) {
	for _, g := range v.held {
		if g != but {
			gone = append(gone, g)
		}
	}
	if v.held = nil; but != nil {
		v.held = []*servable{but}
	}
	return gone
}
