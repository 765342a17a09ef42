package ps

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// rivalBus lets another process publish on a subject just before its end is asked for.
type rivalBus struct {
	bus.Bus
	before func(subject string)
}

type rivalDeltas struct {
	bus.Deltas
	b *rivalBus
}

func (b *rivalBus) Deltas() bus.Deltas { return rivalDeltas{b.Bus.Deltas(), b} }

func (d rivalDeltas) LastOf(ctx context.Context, subject string) (uint64, error) {
	d.b.before(subject)
	return d.Deltas.LastOf(ctx, subject)
}

// A shard that is being taken reads what was published since it last looked before it guards
// its takeover by that: a delta of a successor, come just then, has nothing of ours behind it.
func TestATakeoverIsGuardedByWhatWasRead(t *testing.T) {
	w := newWorld(t)
	inner := w.bus
	b := &rivalBus{Bus: inner}
	w.bus = b
	s := w.server(w.config())
	rival := publish.New(publish.Config{BZID: bzid, Job: job, Shards: 1, Spec: pstest.Counting(), DenseRate: 1}, inner.Deltas(), s.tracer, nil)
	rival.Begin(2, nil)
	subjects := rival.Subjects()
	last := subjects[len(subjects)-1] // nothing is read again behind its takeover
	var once sync.Once
	var theirs uint64
	b.before = func(subject string) {
		if subject != last {
			return
		}
		once.Do(func() {
			w.append("shard", shard.Aggregate(job, 0), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: job, Shards: 1, Epoch: 2, RowsAddress: "127.0.0.1:1"}}})
			draft, err := rival.Takeover(last, 0)
			if err != nil {
				t.Error(err)
			}
			draft.Expect = bus.Any
			if theirs, err = inner.Deltas().Publish(soon(t), draft); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.Run(soon(t)); !errors.Is(err, publish.ErrFenced) {
		t.Errorf("it ended with %v", err)
	}
	if end, err := inner.Deltas().LastOf(soon(t), last); err != nil || theirs == 0 || end != theirs {
		t.Errorf("%s ends at %d, %v; its successor's delta is %d", last, end, err, theirs)
	}
}

// slowBus has a log that hands facts on only once it is opened.
type slowBus struct {
	bus.Bus
	open   chan struct{}
	broken error // of LastOf
}

type slowLog struct {
	bus.Log
	b *slowBus
}

func (b *slowBus) Log() bus.Log { return slowLog{b.Bus.Log(), b} }

func (l slowLog) LastOf(ctx context.Context, s events.Subject) (uint64, error) {
	if l.b.broken != nil {
		return 0, l.b.broken
	}
	return l.Log.LastOf(ctx, s)
}

func (l slowLog) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	return l.Log.Follow(ctx, from, until, func(r events.Recorded) error {
		select {
		case <-l.b.open:
			return handle(r)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// Whoever takes a shard, asks for its newest epoch or whether a delta is of a writer of the
// shard waits until the view has folded what the log holds of it: else it would decide on a
// predecessor's state.
func TestDecisionsWaitForTheView(t *testing.T) {
	subject := events.Join(bzid, "shard", shard.Aggregate(job, 0))
	for name, ask := range map[string]func(context.Context, *Server) error{
		"a take":           func(ctx context.Context, s *Server) error { return s.catchUp(ctx, subject) },
		"the newest epoch": func(ctx context.Context, s *Server) error { _, err := s.newestEpoch(ctx, 0); return err },
		"a delta's writer": func(ctx context.Context, s *Server) error {
			for _, epoch := range []uint64{4, 3, 5} { // 4 is the newest
				own, err := s.written(ctx, &delta.Delta{Job: job, Epoch: epoch})
				if err != nil {
					return err
				}
				if own != (epoch <= 4) {
					return fmt.Errorf("a delta of epoch %d is the shard's own: %v", epoch, own)
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				slow := &slowBus{Bus: w.bus, open: make(chan struct{})}
				w.bus = slow
				s := w.server(w.config())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = s.fleet.Run(ctx) }()
				w.append("shard", shard.Aggregate(job, 0), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: job, Shards: 1, Epoch: 4, RowsAddress: "h:1"}}})
				var err error
				done := false
				go func() { err = ask(ctx, s); done = true }()
				synctest.Wait()
				if done {
					t.Error("it was decided before the view had the shard's last fact")
				}
				close(slow.open)
				synctest.Wait()
				if !done || err != nil || s.look().epoch != 4 {
					t.Errorf("decided %v, %v, at epoch %d, want 4", done, err, s.look().epoch)
				}
				slow.broken = errors.New("the log refuses")
				if own, err := s.written(ctx, &delta.Delta{Job: job, Epoch: 4}); !own || err != nil {
					t.Errorf("a delta of an epoch that the view has is the shard's own: %v, %v", own, err)
				}
				if err := ask(ctx, s); !errors.Is(err, slow.broken) {
					t.Errorf("of a log that refuses: %v", err)
				}
			})
		})
	}
}
