package publisher_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// buses are the two on which leadership is tested: connect gives a further client.
var buses = map[string]func(t *testing.T) (connect func() bus.Bus){
	"mem": func(t *testing.T) func() bus.Bus {
		b := mem.New()
		return func() bus.Bus { return b }
	},
	"jetstream": func(t *testing.T) func() bus.Bus {
		s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return func() bus.Bus {
			b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: s.URL(), BZID: controltest.BZID})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		}
	},
}

// onlyTheLeaderDecides reads the whole log: each decision stands directly behind the fact
// that its publisher leads, and epochs never go back. It returns the epochs that decided.
func onlyTheLeaderDecides(t *testing.T, b bus.Bus) map[uint64]int {
	t.Helper()
	decided := map[uint64]int{}
	var led *publish.Led
	var ledSeq uint64
	holders := map[uint64]string{}
	for _, r := range controltest.All(t, b) {
		e, ok := r.Event.(*publish.Event)
		if !ok {
			continue
		}
		if l := e.GetLed(); l != nil {
			if l.GetEpoch() < led.GetEpoch() {
				t.Errorf("epoch %d after %d\n%s", l.GetEpoch(), led.GetEpoch(), controltest.Story(t, b))
			}
			if h := holders[l.GetEpoch()]; h != "" && h != l.GetHolder() {
				t.Errorf("epoch %d is of %s and of %s", l.GetEpoch(), h, l.GetHolder())
			}
			holders[l.GetEpoch()] = l.GetHolder()
			led, ledSeq = l, r.Seq
			continue
		}
		// A plan and what it is short of may follow one another.
		if r.Seq != ledSeq+1 && !(r.Seq == ledSeq+2 && e.GetPlanFailed() != nil) {
			t.Errorf("%s at %d is not behind the fence at %d\n%s", r.Subject, r.Seq, ledSeq, controltest.Story(t, b))
		}
		decided[led.GetEpoch()]++
	}
	return decided
}

// Three publishers race while containers come and go and leaders die.
func TestRacingPublishers(t *testing.T) {
	for name, open := range buses {
		t.Run(name, func(t *testing.T) {
			connect := open(t)
			b := connect()
			dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
			var stops []func()
			for range 3 {
				stops = append(stops, start(t, connect(), time.Millisecond))
			}
			store(t, b, up("e", "entry", -1), up("p", "ps", 0))
			const models = 6
			for i := range models {
				seq := store(t, b, load(fmt.Sprintf("m%d", i), dir, 1, 1, 1))
				controltest.Next(t, b, seq, func(r events.Recorded) bool {
					return controltest.Of("planned")(r) && r.Subject == events.Join(controltest.BZID, "publish", fmt.Sprintf("m%d", i))
				})
				if i%2 == 1 && len(stops) > 1 { // whoever it is, leader or not
					stops[0]()
					stops = stops[1:]
				}
			}
			if n := controltest.Count(t, b, controltest.Of("planned")); n != models {
				t.Errorf("%d plans for %d loads\n%s", n, models, controltest.Story(t, b))
			}
			onlyTheLeaderDecides(t, b)
		})
	}
}

// pausable is a bus whose owner can be stopped in the middle of an append, as a process
// is by a paused machine, and whose lease nobody tells it was lost.
type pausable struct {
	bus.Bus
	epoch uint64

	mu     sync.Mutex
	pause  bool          // guarded by mu
	held   chan struct{} // closed when an append waits
	resume chan struct{} // closed to let it go on
}

func newPausable(b bus.Bus, epoch uint64) *pausable {
	return &pausable{Bus: b, epoch: epoch, held: make(chan struct{}), resume: make(chan struct{})}
}

func (p *pausable) Log() bus.Log       { return pausedLog{p.Bus.Log(), p} }
func (p *pausable) Leases() bus.Leases { return p }

func (p *pausable) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (bus.Lease, func(), error) {
	return p.TryAcquire(ctx, name, holder, ttl)
}

// TryAcquire grants the lease once, for ever: afterwards somebody else has it.
func (p *pausable) TryAcquire(ctx context.Context, name, _ string, _ time.Duration) (bus.Lease, func(), error) {
	p.mu.Lock()
	l := bus.Lease{Name: name, Epoch: p.epoch, Lost: make(chan struct{})}
	p.epoch = 0
	p.mu.Unlock()
	if l.Epoch == 0 {
		<-ctx.Done()
		return bus.Lease{}, nil, bus.ErrUnavailable
	}
	return l, func() {}, nil
}

type pausedLog struct {
	bus.Log
	p *pausable
}

func (l pausedLog) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	l.p.mu.Lock()
	pause := l.p.pause
	l.p.pause = false
	l.p.mu.Unlock()
	if pause {
		close(l.p.held)
		<-l.p.resume
	}
	return l.Log.Append(ctx, drafts...)
}

// A leader is paused with a decision in its hand; another one takes over and decides.
// What the first one decided meets the fence, and nothing of it is stored.
func TestPausedLeader(t *testing.T) {
	for name, open := range buses {
		t.Run(name, func(t *testing.T) {
			connect := open(t)
			b := connect()
			dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
			store(t, b, up("e", "entry", -1), up("p", "ps", 0))
			old, next := newPausable(connect(), 1), newPausable(connect(), 2)
			start(t, old, time.Millisecond)
			seq := store(t, b, load("m0", dir, 1, 1, 1))
			controltest.Next(t, b, seq, controltest.Of("planned"))

			old.mu.Lock()
			old.pause = true
			old.mu.Unlock()
			seq = store(t, b, load("m1", dir, 1, 1, 1)) // a subject that nobody has written to
			select {
			case <-old.held:
			case <-time.After(controltest.Patience):
				t.Fatal("the leader decides nothing")
			}
			start(t, next, time.Millisecond)
			controltest.Next(t, b, seq, controltest.Of("planned"))
			// It decides on: more than the paused one could know of.
			seq = store(t, b, unload("m1"))
			withdrawn := controltest.Next(t, b, seq, controltest.Of("withdrawn"))
			close(old.resume)
			seq = store(t, b, load("m2", dir, 1, 1, 1))
			controltest.Next(t, b, seq, controltest.Of("planned"))
			if decided := onlyTheLeaderDecides(t, b); decided[1] != 1 || decided[2] != 3 {
				t.Errorf("decisions by epoch %v after %d\n%s", decided, withdrawn.Seq, controltest.Story(t, b))
			}
		})
	}
}

// Leases that count anew, as after the loss of their bucket, do not lock the leader out.
func TestEpochsOutliveLeases(t *testing.T) {
	b := mem.New()
	store(t, b, bus.Draft{Subject: events.Join(controltest.BZID, "publish", publish.Leader),
		Event: &publish.Event{Body: &publish.Event_Led{Led: &publish.Led{Epoch: 1000, Holder: "before"}}}})
	start(t, b, time.Millisecond)
	led := controltest.Next(t, b, 2, controltest.Of("led")).Event.(*publish.Event).GetLed()
	if led.GetEpoch() != 1001 || led.GetHolder() == "before" {
		t.Errorf("led by %v", led)
	}
}
