package trainer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
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

// The shards are there once each is ready and healthy, and are others once one came back as
// another process or in another timeline.
func TestWhetherTheShardsAreThere(t *testing.T) {
	w := busOnly(t)
	cfg := w.alone()
	cfg.Shards = 2
	s := w.view(cfg)
	var ids []string
	check := func(what string, there, another bool, addrs ...string) {
		t.Helper()
		w.caughtUp(s)
		id, complete := s.shards.incarnation()
		if complete != there {
			t.Errorf("%s: the shards are there: %v", what, complete)
		}
		if len(ids) > 0 && (id != ids[len(ids)-1]) != another {
			t.Errorf("%s: %q, they were %q", what, id, ids[len(ids)-1])
		}
		ids = append(ids, id)
		for i, want := range addrs {
			if addr, _, err := s.shards.address(i); err != nil || addr != want {
				t.Errorf("%s: shard %d is at %q, %v; want %q", what, i, addr, err, want)
			}
		}
	}
	check("none", false, false, "", "")
	w.ready(1, 2, 1, 0, "h:2")
	check("the second", false, true, "", "h:2")
	w.ready(0, 2, 1, 0, "h:1")
	check("both", true, true, "h:1", "h:2")
	w.unhealthy(0, 1)
	check("the first fails", false, false, "", "h:2")
	w.ready(0, 2, 2, 0, "h:3")
	check("it is back", true, true, "h:3", "h:2")
	w.unhealthy(1, 1)
	check("the second fails", false, false, "h:3", "")
	w.ready(1, 2, 1, 4, "h:2")
	check("in another generation", true, true, "h:3", "h:2")
	w.ready(0, 3, 3, 0, "h:1")
	w.caughtUp(s)
	if _, _, err := s.shards.address(0); err == nil || !strings.Contains(err.Error(), "start it with --shards 3") {
		t.Errorf("one of three: %v", err)
	}
	if err := s.shards.wait(t.Context()); err == nil || !strings.Contains(err.Error(), "--shards 3") {
		t.Errorf("one of three is waited for: %v", err)
	}
}

// A shard that does not answer is asked again and again, and told of after ten attempts; what
// it refuses is the caller's to see at once.
func TestAShardIsAskedUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		attempts, ended := 0, make(chan error, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := func() {
			attempts = 0
			go func() {
				_, err := call(ctx, s.shards, 0, func(context.Context, rowwire.Conn) (int, error) { attempts++; return 0, nil })
				ended <- err
			}()
			synctest.Wait()
		}
		begin()
		says(t, s, "at once", "shard 0", "")
		time.Sleep(500 * time.Millisecond) // 100, 200, 400 ms, each up to a half less
		says(t, s, "after a few attempts", "shard 0", "")
		time.Sleep(15 * time.Second)
		says(t, s, "after many", "shard 0", "it is not there, or not ready")
		cancel(errMoved)
		if err := <-ended; !errors.Is(err, errMoved) {
			t.Errorf("after the end of ctx: %v", err)
		}
		s.shards.answers(0, nil)
		says(t, s, "answered", "shard 0", "")
		s.shards.answers(1, errors.New("nobody knows it")) // none of this trainer's
		if got := problems(s); len(got) != 0 {
			t.Errorf("problems %v", got)
		}
		if attempts != 0 {
			t.Errorf("it was asked %d times without an address", attempts)
		}
	})
}

// What follows shards ends once one is another, and not before.
func TestFollowingShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		w.ready(0, 1, 1, 0, "h:1")
		w.caughtUp(s)
		followed, stop := s.shards.follow(t.Context())
		defer stop()
		w.unhealthy(0, 1)
		w.ready(0, 1, 1, 0, "h:1") // the same
		synctest.Wait()
		if followed.Err() != nil {
			t.Errorf("the same shard: %v", context.Cause(followed))
		}
		w.ready(0, 1, 2, 0, "h:1")
		synctest.Wait()
		if !errors.Is(context.Cause(followed), errMoved) {
			t.Errorf("another one: %v", context.Cause(followed))
		}
	})
}

// The dense variables are fetched anew once they are old, and not by everybody who needs them.
func TestDenseVariablesAreShared(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := w.view(w.config("a", 0))
	first, err := s.dense.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := func(age time.Duration, steps uint64) { // what is handed out
		s.dense.mu.Lock()
		defer s.dense.mu.Unlock()
		s.dense.has = denseCopy{w: first, at: time.Now().Add(-age), step: s.dense.steps - steps}
	}
	settled := func() {
		s.dense.mu.Lock()
		next := s.dense.next
		s.dense.mu.Unlock()
		if next != nil {
			<-next.done
		}
	}
	for range denseSteps {
		s.dense.learnt()
	}
	for name, tc := range map[string]struct {
		age         time.Duration
		steps       uint64
		same, fetch bool
	}{
		"new":              {-time.Hour, 0, true, false}, // it stays so for as long as this test runs
		"half of its time": {-time.Hour, denseSteps / 2, true, true},
		"some steps":       {-time.Hour, denseSteps/2 - 1, true, false},
		"all steps":        {-time.Hour, denseSteps, false, true},
		"its time":         {denseAge, 0, false, true},
	} {
		old(tc.age, tc.steps)
		got, err := s.dense.get(t.Context())
		if err != nil || (got == first) != tc.same {
			t.Errorf("%s: the same are handed out: %v, %v", name, got == first, err)
		}
		settled()
		if fetched := s.dense.has.w != first; fetched != tc.fetch {
			t.Errorf("%s: others were fetched: %v", name, fetched)
		}
	}
	old(denseAge, 0)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.dense.get(gone); err == nil {
		t.Error("they were fetched after the end of ctx")
	}
	if again, err := s.dense.get(t.Context()); err != nil || len(again.Values) != len(first.Values) {
		t.Errorf("after a failure: %d variables, %v", len(again.Values), err)
	}
}

// A step that waits for variables goes when its partition ends, or the trainer, though no shard
// answers; whoever comes later asks again.
func TestNobodyWaitsForVariablesForEver(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := w.view(w.config("a", 0))
	w.shards[0].crash()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { _, err := s.dense.get(ctx); ended <- err }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("variables came from nowhere")
	}
	go func() { _, err := s.dense.get(t.Context()); ended <- err }()
	s.dense.close()
	if err := <-ended; err == nil {
		t.Error("variables came from nowhere")
	}
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
		go func() { ended <- s.awaitReturn(t.Context(), 50) }()
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
		if err := s.awaitReturn(ctx, 90); !errors.Is(err, context.DeadlineExceeded) {
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
		if got := s.nextGeneration(); got != want {
			t.Errorf("deterministic %v: %d, want %d", inOrder, got, want)
		}
	}
}

// An export behind a return is told only where it was made.
func TestTheExportBehindAReturn(t *testing.T) {
	for _, failure := range []error{nil, errNotNow} {
		c := &chief{asked: make(chan checkpointOrder)}
		go func() {
			o := <-c.asked
			if !o.export || o.reason != "why" {
				t.Errorf("asked for %+v", o)
			}
			o.done <- answer{id: 5, err: failure}
		}()
		if id, ok := c.export(t.Context(), "why"); id != 5 || ok != (failure == nil) {
			t.Errorf("after %v: export %d, made %v", failure, id, ok)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if id, ok := (&chief{asked: make(chan checkpointOrder)}).export(gone, ""); id != 0 || ok {
		t.Errorf("after the end of ctx: %d, %v", id, ok)
	}
}
