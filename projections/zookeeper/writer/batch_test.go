package writer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// Proposals are answered in the order in which they came, with rising zxids, and those
// that wait share an append.
func TestGroupCommit(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		c := &counted{Bus: open()}
		s := newTestWriter(t, c)
		s.leads(t)
		const n = 5000
		got := make(chan string, n)
		for i := range n {
			s.Propose(write(0, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL)), func(zxid uint64, o *tree.Outcome, err error) {
				if err != nil || o.Code != 0 {
					got <- fmt.Sprint(i, " ", o, " ", err)
					return
				}
				got <- o.Results[0].Path
			})
		}
		for i := range n {
			if want, path := fmt.Sprintf("/n-%010d", i), <-got; path != want {
				t.Fatalf("answer %d is %s, want %s", i, path, want)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.sizes) > n/20 {
			t.Errorf("%d appends for %d proposals", len(c.sizes), n)
		}
		t.Logf("%d appends", len(c.sizes))
	})
}

// An append whose answer is lost is made again under the same ids: nothing happens twice.
func TestLostAck(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		c := &counted{Bus: open()}
		s := newTestWriter(t, c)
		s.leads(t)
		c.mu.Lock()
		c.fail = func(n int) error {
			if n%2 == 0 {
				return fmt.Errorf("%w: the ack was lost", bus.ErrUnavailable)
			}
			return nil
		}
		c.mu.Unlock()
		for i := range 20 {
			a := s.ask(write(0, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL)))
			if want := fmt.Sprintf("/n-%010d", i); a.err != nil || a.o.Results[0].Path != want {
				t.Fatalf("%+v %v, want %s", a.o, a.err, want)
			}
		}
	})
}

// Writes that cannot be stored are a problem after a few attempts, and none any more once
// one is stored.
func TestWritesThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		c := &counted{Bus: b}
		s := newTestWriter(t, c)
		s.leads(t)
		problem := func() (reason string) {
			for _, p := range s.cfg.Health.Problems() {
				reason += p.Name + ": " + p.Reason
			}
			return reason
		}
		away := fmt.Errorf("%w: the disk is full", bus.ErrUnavailable)
		fails := func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fail = func(int) error { return err }
		}
		fails(away)
		answered := make(chan answer, 1)
		s.Propose(write(0, makeNode("/a", "", 0)), func(zxid uint64, o *tree.Outcome, err error) { answered <- answer{zxid, o, err} })
		wait.For(t, "the problem", func() bool { return problem() != "" })
		if got, want := problem(), writesProblem+": "+away.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		fails(nil)
		if a := <-answered; a.err != nil || a.o.Code != 0 {
			t.Errorf("%+v", a)
		}
		wait.For(t, "the problem's end", func() bool { return problem() == "" })
		for range 2 * patience {
			if a := s.ask(write(0, setNode("/a", "x", -1))); a.err != nil || problem() != "" {
				t.Fatalf("%+v, %q", a, problem())
			}
		}
	})
}

// A log that says of an append that some of its ids are stored already, because the answer
// of the first attempt was lost, has stored it once: nothing is stored again under new ids.
func TestARepeatedAppendIsStoredOnce(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		c := &counted{Bus: open()}
		s := newTestWriter(t, c)
		s.leads(t)
		c.mu.Lock()
		c.fail = func(n int) error {
			if n%2 == 0 {
				return fmt.Errorf("%w: %w: not all of them are seen", events.ErrInvalid, bus.ErrRepeated)
			}
			return nil
		}
		c.mu.Unlock()
		const n = 200
		got := make(chan answer, n)
		for range n {
			s.Propose(write(0, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL)), func(zxid uint64, o *tree.Outcome, err error) { got <- answer{zxid, o, err} })
		}
		seen := map[string]bool{}
		for range n {
			if a := <-got; a.err != nil || a.o.Code != 0 || seen[a.o.Results[0].Path] {
				t.Fatalf("%+v %v, or twice", a.o, a.err)
			} else {
				seen[a.o.Results[0].Path] = true
			}
		}
		s.tree.Read(func(t2 view.State) {
			if names := t2.Children("/"); len(names) != n+1 { // zookeeper beside them
				t.Errorf("%d nodes for %d writes", len(names)-1, n)
			}
		})
	})
}

func TestTooLarge(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if a := s.ask(write(0, makeNode("/big", strings.Repeat("x", 600<<10), 0))); !errors.Is(a.err, bus.ErrTooLarge) {
		t.Errorf("a write of 600 KiB: %+v", a)
	}
	if a := s.ask(&znode.Event{}); !errors.Is(a.err, events.ErrInvalid) {
		t.Errorf("an empty event: %+v", a)
	}
	if a := s.ask(write(0, makeNode("/fine", strings.Repeat("x", 400<<10), 0))); a.err != nil || a.o.Code != 0 {
		t.Errorf("the next one: %+v", a)
	}
}

// BenchmarkProposals is creates of 100 bytes, 1000 of them waiting at any time, on
// JetStream with an fsync before each answer.
func BenchmarkProposals(b *testing.B) {
	srv, err := natsserver.Start(natsserver.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	var log bus.Bus
	if log, err = jetstream.Connect(b.Context(), jetstream.Config{Server: srv, BZID: namespace}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Close() })
	s := newTestWriter(b, log)
	s.leads(b)
	data := fmt.Sprintf("%0100d", 0)
	window := make(chan struct{}, 1000)
	var wg sync.WaitGroup
	i := 0
	b.ResetTimer()
	for b.Loop() {
		i++
		window <- struct{}{}
		wg.Add(1)
		s.Propose(write(0, makeNode(fmt.Sprintf("/n%09d", i), data, 0)), func(_ uint64, o *tree.Outcome, err error) {
			if err != nil || o.Code != 0 {
				b.Error(o, err)
			}
			<-window
			wg.Done()
		})
	}
	wg.Wait()
}
