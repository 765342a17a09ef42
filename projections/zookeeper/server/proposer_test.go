package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// testProposer is the least that keeps a Proposer's word: one goroutine appends, in order.
type testProposer struct {
	log     bus.Log
	tree    *follow.Follower[view.State]
	queue   chan proposal
	standby atomic.Bool
	fail    atomic.Bool                   // nothing reaches the log
	hold    atomic.Pointer[chan struct{}] // nil, or appends wait until it is closed

	mu    sync.Mutex
	wait  map[string]func(uint64, *tree.Outcome, error) // by event id
	heard map[int64]time.Time
}

type proposal struct {
	e    *znode.Event
	done func(uint64, *tree.Outcome, error)
}

func (w *testProposer) Propose(e *znode.Event, done func(uint64, *tree.Outcome, error)) {
	w.queue <- proposal{e, done}
}

func (w *testProposer) Touch(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard[id] = time.Now()
}

func (w *testProposer) pause(until chan struct{}) { w.hold.Store(&until) }

func (w *testProposer) Writable() bool { return !w.standby.Load() }

func (w *testProposer) folded(t view.State, r events.Recorded) {
	w.mu.Lock()
	done := w.wait[r.Header.ID]
	delete(w.wait, r.Header.ID)
	if o, ok := r.Event.(*znode.Event); ok && o.GetSessionOpened() != nil {
		w.heard[o.GetSessionOpened().GetSession()] = time.Now()
	}
	w.mu.Unlock()
	if done != nil {
		done(r.Seq, t.Effects().Outcome, nil)
	}
}

// run appends whole batches, as they come, and expires sessions. While a busy machine kept it
// from looking nobody could be heard: that time is given back, as writers do.
func (w *testProposer) run(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	n, looked := 0, time.Now()
	for {
		var batch []proposal
		select {
		case <-ctx.Done():
			return
		case p := <-w.queue:
			batch = append(batch, p)
		case <-tick.C:
			now := time.Now()
			if away := now.Sub(looked); away > 100*time.Millisecond {
				w.giveBack(away)
			}
			batch, looked = w.expired(now), now
		}
		for len(w.queue) > 0 && len(batch) < 500 {
			batch = append(batch, <-w.queue)
		}
		if hold := w.hold.Load(); hold != nil {
			select {
			case <-*hold:
			case <-ctx.Done():
				return
			}
		}
		var drafts []bus.Draft
		w.mu.Lock()
		for _, p := range batch {
			n++
			id := fmt.Sprintf("%p-%d", w, n)
			w.wait[id] = p.done
			drafts = append(drafts, bus.Draft{Subject: events.Join("demo", "znode", znode.Aggregate), Event: p.e, Header: events.Header{ID: id}, Expect: bus.Any, Binary: true})
		}
		w.mu.Unlock()
		if len(drafts) == 0 {
			continue
		}
		err := errTest
		if !w.fail.Load() {
			_, err = w.log.Append(ctx, drafts...)
		}
		if err != nil {
			for i, p := range batch {
				w.mu.Lock()
				delete(w.wait, drafts[i].Header.ID)
				w.mu.Unlock()
				p.done(0, nil, err)
			}
		}
	}
}

func (w *testProposer) giveBack(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, heard := range w.heard {
		w.heard[id] = heard.Add(d)
	}
}

func (w *testProposer) expired(now time.Time) (dead []proposal) {
	w.tree.Read(func(t view.State) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, id := range t.Sessions() {
			s, _ := t.Session(id)
			if heard, ok := w.heard[id]; !ok {
				w.heard[id] = now
			} else if now.Sub(heard) > time.Duration(s.TimeoutMS)*time.Millisecond {
				w.heard[id] = now
				dead = append(dead, proposal{&znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: id, Reason: znode.Expired}}},
					func(uint64, *tree.Outcome, error) {}})
			}
		}
	})
	return dead
}

// writable opens a server that writes.
func writable(t testing.TB, cfg Config) (*harness, *testProposer) {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	return writableOn(t, cfg, b)
}

func writableOn(t testing.TB, cfg Config, b *mem.Bus) (*harness, *testProposer) {
	t.Helper()
	w := &testProposer{log: b.Log(), queue: make(chan proposal, 10_000), wait: map[string]func(uint64, *tree.Outcome, error){}, heard: map[int64]time.Time{}}
	cfg.Proposer = w
	h := openWith(t, cfg, b, w)
	return h, w
}

var errTest = errors.New("the log is gone")
