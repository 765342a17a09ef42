package trainer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
)

// ready says that a shard is there.
func (w *world) ready(index, shards uint32, epoch, generation uint64, addr string) {
	w.t.Helper()
	w.append(events.Join(bzid, "shard", shard.Aggregate(theJob, index)), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{
		Job: theJob, Shard: index, Shards: shards, Epoch: epoch, RowsAddress: addr, Generation: generation,
	}}})
}

func (w *world) unhealthy(index uint32, epoch uint64) {
	w.t.Helper()
	w.append(events.Join(bzid, "shard", shard.Aggregate(theJob, index)), &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: "it fails", Epoch: epoch}}})
}

// A return of the job is over once every shard says that it followed this one, or a later one.
func TestShardsThatReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		cfg := w.alone()
		cfg.Shards = 2
		s := w.view(cfg)
		back := func(index uint32, restored uint64) {
			w.append(events.Join(bzid, "shard", shard.Aggregate(theJob, index)), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{
				Job: theJob, Shard: index, Shards: 2, Epoch: 1, RowsAddress: "h:1", Restored: restored}}})
		}
		ended := make(chan error, 1)
		go func() { ended <- s.chief().AwaitReturn(t.Context(), 50) }()
		waits := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				if want || err != nil {
					t.Fatalf("%s: it is over, %v", what, err)
				}
			default:
				if !want {
					t.Fatalf("%s: it is not over", what)
				}
			}
		}
		back(0, 50)
		waits("the first", true)
		back(1, 49)
		waits("an earlier return", true)
		w.unhealthy(0, 1)
		back(1, 51)
		waits("one that fails meanwhile", true)
		back(0, 50)
		waits("both", false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.chief().AwaitReturn(ctx, 90); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that does not come: %v", err)
		}
	})
}

// The next generation is one that no shard is in.
func TestTheNextGeneration(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		w := busOnly(t)
		cfg := w.alone()
		cfg.Shards, cfg.Deterministic = 2, inOrder
		s := w.view(cfg)
		w.ready(0, 2, 1, 6, "h:1")
		w.ready(1, 2, 1, 4, "h:2")
		w.caughtUp(s)
		want := map[bool]uint64{true: 7}[inOrder]
		if got := s.chief().NextGeneration(); got != want {
			t.Errorf("deterministic %v: %d, want %d", inOrder, got, want)
		}
	}
}

// An export behind a return is told only where it was made.
func TestTheExportBehindAReturn(t *testing.T) {
	for _, failure := range []error{nil, errors.New("not now")} {
		c := new(chief.Trainer).Term(1)
		go func() {
			o := <-c.Asked
			if !o.Export || o.Reason != "why" {
				t.Errorf("asked for %+v", o)
			}
			o.Done <- chief.Answer{ID: 5, Err: failure}
		}()
		if id, ok := c.Export(t.Context(), "why"); id != 5 || ok != (failure == nil) {
			t.Errorf("after %v: export %d, made %v", failure, id, ok)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if id, ok := new(chief.Trainer).Term(1).Export(gone, ""); id != 0 || ok {
		t.Errorf("after the end of ctx: %d, %v", id, ok)
	}
}
