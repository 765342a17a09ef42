package writer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// bubble runs a part of a test on a clock of its own, which no busy machine slows down.
func bubble(t *testing.T, name string, part func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, part) })
}

// Sessions that nobody touches end, with their ephemerals, in one event, and not before
// their time; a new writer grants a full time-out.
func TestSessionExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		s := newTestWriter(t, b)
		s.leads(t)
		for id, timeout := range map[int64]time.Duration{1: 300 * time.Millisecond, 2: time.Hour} {
			if a := s.ask(session(id, timeout)); a.err != nil || a.o.Code != 0 {
				t.Fatalf("%+v", a)
			}
			for i := range 3 {
				if a := s.ask(write(id, makeNode(fmt.Sprintf("/e%d-%d", id, i), "", znode.Mode_EPHEMERAL))); a.err != nil || a.o.Code != 0 {
					t.Fatalf("%+v", a)
				}
			}
		}
		if a := s.ask(session(1, time.Second)); a.o.Code != wire.NodeExists {
			t.Errorf("a session's id used twice: %+v", a)
		}
		began, last := time.Now(), time.Now()
		for time.Since(began) < time.Second { // touched, it lives three times its time-out
			last = time.Now()
			s.Touch(1)
			s.tree.Read(func(st view.State) {
				if _, ok := st.Session(1); !ok {
					t.Fatal("a touched session has expired")
				}
			})
			<-time.After(20 * time.Millisecond)
		}
		wait.For(t, "the session's end", func() (gone bool) {
			s.tree.Read(func(st view.State) { _, ok := st.Session(1); gone = !ok })
			return gone
		})
		if early := time.Since(last); early < 250*time.Millisecond {
			t.Errorf("it expired after %v, its time-out is 300 ms", early)
		}
		s.tree.Read(func(st view.State) {
			if got := st.Children("/"); strings.Join(got, " ") != "e2-0 e2-1 e2-2 zookeeper" {
				t.Errorf("left: %v", got)
			}
		})
		end, err := b.Log().Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		closed := 0
		if err := b.Log().Follow(t.Context(), 1, end, func(r events.Recorded) error {
			if e, ok := r.Event.(*znode.Event); ok && e.GetSessionClosed() != nil {
				closed++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if closed != 1 {
			t.Errorf("%d sessions closed", closed)
		}
		if a := s.ask(write(1, makeNode("/late", "", 0))); a.err != nil || a.o.Code != wire.SessionExpired {
			t.Errorf("a write of an expired session: %+v", a)
		}

		// One hour away from the clock's end, another registry takes over: the session stays.
		s.stop()
		next := newTestWriter(t, b)
		next.leads(t)
		<-time.After(3 * sessionTick)
		next.tree.Read(func(st view.State) {
			if _, ok := st.Session(2); !ok {
				t.Error("the session did not outlive its registry")
			}
		})
	})
}

// A process that stood still gives everybody one full time-out instead of losing them.
func TestSilentAfterPause(t *testing.T) {
	now := time.Now()
	z := newSessionTable("b", func() time.Time { return now })
	z.byID[1] = &sessionTimer{timeout: time.Second}
	now = now.Add(sessionTick)
	if got := z.silent(); got != nil {
		t.Fatal(got)
	}
	now = now.Add(time.Minute)
	if got := z.silent(); got != nil {
		t.Errorf("after a pause of a minute: %v", got)
	}
	for range 9 {
		now = now.Add(sessionTick)
		if got := z.silent(); got != nil {
			t.Errorf("before its time: %v", got)
		}
	}
	now = now.Add(2 * sessionTick)
	if got := z.silent(); len(got) != 1 || got[0] != 1 {
		t.Errorf("when its time is over: %v", got)
	}
	if got := z.silent(); got != nil {
		t.Errorf("twice: %v", got)
	}
	z.spare(1)
	if got := z.silent(); len(got) != 1 {
		t.Errorf("after its end could not be proposed: %v", got)
	}
}

// A session has all of its time-out: it is over behind it, not with it.
func TestSilentForTheTimeOut(t *testing.T) {
	now := time.Now()
	z := newSessionTable("b", func() time.Time { return now })
	z.add(1, 1000)
	z.silent()
	for _, step := range []struct {
		after time.Duration
		gone  int
	}{{time.Second - 1, 0}, {1, 0}, {1, 1}} {
		now = now.Add(step.after)
		if got := z.silent(); len(got) != step.gone {
			t.Errorf("after %v: %v", z.since(), got)
		}
	}
}

// While the tree is locked, by whoever, nobody's requests are read: that time expires no
// session whose client goes on as soon as it is heard again.
func TestNoSessionExpiresWhileTheTreeIsLocked(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	z := newSessionTable("b", clock)
	z.add(7, 1000)
	z.add(8, 1000)
	z.silent()
	for range 3 { // for 1.8 s of 2.4 s
		now = now.Add(200 * time.Millisecond)
		z.touch(7)
		before := z.since()
		now = now.Add(600 * time.Millisecond) // the lock
		z.excuse(z.since() - before)
		if dead := z.silent(); len(dead) > 0 {
			t.Fatalf("expired: %v", dead)
		}
	}
	now = now.Add(600 * time.Millisecond) // 8 has not been heard of for 1.2 s in which it could
	z.touch(7)
	if dead := z.silent(); len(dead) != 1 || dead[0] != 8 {
		t.Errorf("expired: %v, want the one that was silent", dead)
	}
}

// Sessions are timed by a clock that nobody sets. Where there is none, one that jumps
// gives everybody one more time-out, and takes nobody's time away for ever.
func TestSessionsWhileTheClockJumps(t *testing.T) {
	if z := newSessionTable("b", time.Now); !strings.Contains(z.born.String(), " m=") {
		t.Fatalf("sessions are timed from %v, which has no monotonic reading", z.born)
	}
	for name, jump := range map[string]time.Duration{"forward": 24 * time.Hour, "back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := time.Now().Round(0) // nothing but the wall's time
			z := newSessionTable("b", func() time.Time { return now })
			z.byID[1] = &sessionTimer{timeout: time.Second}
			look := func(steps int) (gone []int64) {
				for range steps {
					now = now.Add(sessionTick)
					gone = append(gone, z.silent()...)
				}
				return gone
			}
			if got := look(5); got != nil {
				t.Fatalf("before the jump: %v", got)
			}
			now = now.Add(jump)
			if got := look(10); got != nil {
				t.Errorf("too early: %v", got)
			}
			if got := look(3); !slices.Equal(got, []int64{1}) {
				t.Errorf("when its time is over: %v", got)
			}
		})
	}
}

// Containers go once their children have gone, nodes with a time to live when it is over.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		s := newTestWriter(t, b)
		s.leads(t)
		ttl := makeNode("/ttl", "", znode.Mode_PERSISTENT_WITH_TTL)
		ttl.GetCreate().TtlMs = 60
		for _, op := range []*znode.Op{
			makeNode("/never", "", znode.Mode_CONTAINER), makeNode("/c", "", znode.Mode_CONTAINER), makeNode("/c/x", "", 0), ttl, remove("/c/x"),
		} {
			if a := s.ask(write(0, op)); a.err != nil || a.o.Code != 0 {
				t.Fatalf("%v: %+v", op, a)
			}
		}
		wait.For(t, "the sweep", func() (done bool) {
			s.tree.Read(func(st view.State) { done = strings.Join(st.Children("/"), " ") == "never zookeeper" })
			return done
		})
	})
}

// The time to live is told by the log's time: a node is swept when that says so, however
// far this machine's clock is from the log's.
func TestSweepByTheLogsTime(t *testing.T) {
	for name, off := range map[string]time.Duration{"the wall is a year ahead": -365 * 24 * time.Hour, "the wall is a year behind": 365 * 24 * time.Hour} {
		bubble(t, name, func(t *testing.T) {
			var c logClock
			if c.now() != 0 {
				t.Fatal("it tells a time before it has heard of any")
			}
			logged := time.Now().Add(off)
			s := view.New()
			for i, e := range []*znode.Event{
				write(0, makeNode("/ttl", "", znode.Mode_PERSISTENT_WITH_TTL)),
				write(0, makeNode("/other", "", 0)),
			} {
				if op := e.GetProposed().GetOps()[0].GetCreate(); op.GetMode() == znode.Mode_PERSISTENT_WITH_TTL {
					op.TtlMs = 1000
				}
				r := events.Recorded{Seq: uint64(i + 1), Time: logged.Add(time.Duration(i) * 700 * time.Millisecond), Subject: events.Join("b", "znode", "tree"), Event: e}
				s = view.Fold(s, r)
				c.folded(r)
			}
			if got := s.Over(c.now()); len(got) != 0 {
				t.Errorf("after 700 ms of the log: %v is over", got)
			}
			wait.For(t, "the end of its time", func() bool { return len(s.Over(c.now())) > 0 })
			if passed := c.now() - logged.UnixMilli(); passed < 1000 || passed > 10_000 {
				t.Errorf("over after %d ms of the log's time, its time to live is 1000", passed)
			}
		})
	}
}

// A registry whose log is in memory sweeps by its time, too: the whole way.
func TestSweepEndToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		s := newTestWriter(t, b)
		s.leads(t)
		op := makeNode("/ttl", "", znode.Mode_PERSISTENT_WITH_TTL)
		op.GetCreate().TtlMs = 300
		if a := s.ask(write(0, op)); a.err != nil || a.o.Code != 0 {
			t.Fatalf("%+v", a)
		}
		made := time.Now()
		wait.For(t, "the sweep", func() (gone bool) {
			s.tree.Read(func(st view.State) { _, there := st.Stat("/ttl"); gone = !there })
			return gone
		})
		if early := time.Since(made); early < 250*time.Millisecond {
			t.Errorf("swept after %v, its time to live is 300 ms", early)
		}
	})
}
