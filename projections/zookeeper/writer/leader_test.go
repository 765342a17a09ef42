package writer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Two registries: one writes, and after it the other. A fenced writer's append meets the
// guard. Whatever was acked is in the tree, once.
func TestTwoRegistries(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		first := newTestWriter(t, open())
		first.leads(t)
		second := newTestWriter(t, open())
		if a := second.ask(write(0, makeNode("/x", "", 0))); !errors.Is(a.err, errNotWriter) {
			t.Fatalf("the second registry writes too: %+v", a)
		}
		acked := map[string]int{}
		var mu sync.Mutex
		propose := func(s *testWriter, name string, n int) (wait func()) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Add(1)
				path := fmt.Sprintf("/%s-%d", name, i)
				s.Propose(write(0, makeNode(path, "", 0)), func(_ uint64, o *tree.Outcome, err error) {
					if err == nil && o.Code == 0 {
						mu.Lock()
						acked[path]++
						mu.Unlock()
					}
					wg.Done()
				})
			}
			return wg.Wait
		}
		wait := propose(first, "first", 2000)
		first.stop() // with proposals on their way
		wait()
		second.leads(t)
		propose(second, "second", 500)()
		if n := len(acked); n < 500 {
			t.Errorf("%d writes were acked, the second registry alone was sent 500", n)
		}
		second.tree.Read(func(s view.State) {
			for path, times := range acked {
				if st, ok := s.Stat(path); !ok || times != 1 || st.Version != 0 {
					t.Errorf("%s was acked %d times and is there: %v", path, times, ok)
				}
			}
		})
	})
}

// A paused writer whose lease has gone appends under a guard that no longer holds.
func TestFence(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	old := newTestWriter(t, b)
	old.leads(t)
	fenced := &Writer{
		subject: old.subject, log: b.Log(), tree: old.tree, logger: old.logger, cfg: Config{BZID: namespace}, last: 0,
		waiting: map[string][]*proposal{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its lease
	err := fenced.store(ctx, [][]*proposal{{{event: write(0, makeNode("/late", "", 0))}}})
	if !errors.Is(err, errNotWriter) {
		t.Fatalf("a fenced writer's append: %v", err)
	}
	if a := old.ask(write(0, makeNode("/ok", "", 0))); a.err != nil || a.o.Code != 0 {
		t.Fatalf("%+v", a)
	}
	old.tree.Read(func(s view.State) {
		if _, ok := s.Stat("/late"); ok {
			t.Error("the fenced writer's node is there")
		}
	})
}

// What others append on the tree's subject is caught up with, while the lease holds.
func TestConflictCatchesUp(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: s.subject, Expect: bus.Any, Event: write(0, makeNode("/theirs", "", 0))}); err != nil {
		t.Fatal(err)
	}
	if a := s.ask(write(0, makeNode("/theirs", "", 0))); a.err != nil || a.o.Code != wire.NodeExists {
		t.Fatalf("%+v", a)
	}
}

// A writer behind whose back another one has begun to write stores nothing more, until it
// has begun anew itself.
func TestForeignFenceEndsATerm(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: s.subject, Expect: bus.Any, Event: newFence()}); err != nil {
		t.Fatal(err)
	}
	if a := s.ask(write(0, makeNode("/mine", "", 0))); !errors.Is(a.err, errNotWriter) {
		t.Fatalf("%+v", a)
	}
	wait.For(t, "a term of its own again", func() bool {
		a := s.ask(write(0, makeNode("/mine", "", 0)))
		return a.err == nil && a.o.Code == wire.OK
	})
}

// A fence is a multi of nothing that nobody's session proposed; no client can write one.
func TestIsFence(t *testing.T) {
	ofNothing := func(session int64) *znode.Event {
		return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: session, Multi: true}}}
	}
	for name, tc := range map[string]struct {
		e    *znode.Event
		want bool
	}{
		"a fence": {newFence(), true}, "a client's multi of nothing": {ofNothing(7), false},
		"a write of nobody's": {write(0, remove("/a")), false}, "a multi of nobody's": {write(0, remove("/a"), remove("/b")), false},
		"a session": {session(7, time.Second), false}, "nothing": {&znode.Event{}, false},
	} {
		if got := isFence(tc.e); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
