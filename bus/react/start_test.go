package react_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// watched notes from where the log is followed.
type watched struct {
	bus.Log
	first atomic.Uint64 // the smallest beginning, 0: none yet
}

func (w *watched) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	for {
		old := w.first.Load()
		if (old != 0 && old <= from) || w.first.CompareAndSwap(old, from) {
			return w.Log.Follow(ctx, from, until, handle)
		}
	}
}

func (w *watched) Span(ctx context.Context) (first, last uint64, err error) {
	return w.Log.(bus.Trimmer).Span(ctx)
}

// unread are letters that nobody may read all of: together they may be larger than the
// memory.
type unread struct {
	bus.DeadLetters
	t *testing.T
}

func (u unread) List(ctx context.Context) ([]bus.Parked, error) {
	u.t.Error("all letters are read")
	return u.DeadLetters.List(ctx)
}

func (u unread) Each(ctx context.Context, handle func(bus.Parked) error) error {
	u.t.Error("all letters are read")
	return u.DeadLetters.Each(ctx, handle)
}

// begin runs one reaction on a log that notes what is read of it, until stop.
func begin(t *testing.T, b bus.Bus, name string, h react.Handler) (w *watched, stop func()) {
	t.Helper()
	w = &watched{Log: b.Log()}
	ctx, cancel := context.WithCancel(t.Context())
	r := react.New(react.Config{Log: w, Letters: unread{b.DeadLetters(), t}, Owner: "portal", BZID: "t"})
	r.Handle(name, 1, isRequest, h)
	errc := make(chan error, 1)
	go func() { errc <- r.Run(ctx) }()
	select {
	case <-r.Ready():
	case err := <-errc:
		cancel()
		t.Fatalf("Run ended before it was ready: %v", err)
	case <-time.After(wait.Patience):
		t.Fatal("never ready")
	}
	return w, func() {
		cancel()
		if err := <-errc; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func refuse(context.Context, events.Recorded) ([]bus.Draft, error) { return nil, events.ErrInvalid }

// A reaction goes on behind what it has settled: neither letters that were removed nor a
// log that was trimmed make it begin anew.
func TestStartsBehindItsPlace(t *testing.T) {
	b := mem.New()
	for range 10 {
		put(t, b, request("x"))
	}
	_, stop := begin(t, b, "unload", refuse)
	last := put(t, b, answer("of no interest"))
	stop()
	called := func(context.Context, events.Recorded) ([]bus.Draft, error) {
		t.Error("what was settled is handed out again")
		return nil, nil
	}
	w, stop := begin(t, b, "unload", called)
	stop()
	if from := w.first.Load(); from < last {
		t.Errorf("after a restart the log is followed from %d, it was settled up to %d", from, last)
	}
	if n, err := b.DeadLetters().Purge(t.Context(), func(bus.Parked) bool { return true }); err != nil || n != 10 {
		t.Fatalf("purge = %d, %v", n, err)
	}
	if err := b.Log().(bus.Trimmer).Trim(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	_, stop = begin(t, b, "unload", called)
	stop()
	if all, err := b.DeadLetters().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("what was purged is parked again: %v, %v", all, err)
	}
	// One that has no place yet begins where the log does, and knows what was parked.
	if _, err := b.Log().Append(t.Context(), request("late")); err != nil {
		t.Fatal(err)
	}
	var seen []string
	_, stop = begin(t, b, "another", func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		seen = append(seen, reasonOf(r))
		return nil, nil
	})
	stop()
	if fmt.Sprint(seen) != "[late]" {
		t.Errorf("a reaction without a place saw %v", seen)
	}
	// Also where one event alone is left.
	end, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Log().(bus.Trimmer).Trim(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	calls := 0
	_, stop = begin(t, b, "a third", func(context.Context, events.Recorded) ([]bus.Draft, error) { calls++; return nil, nil })
	stop()
	if calls != 1 {
		t.Errorf("of one event that is left a reaction without a place saw %d", calls)
	}
}

// places counts what is stored of places, and refuses it for as long as it is told to.
type places struct {
	bus.DeadLetters
	sick  atomic.Bool
	calls atomic.Int32
}

func (p *places) Settle(ctx context.Context, bzid, reaction string, seq uint64) error {
	p.calls.Add(1)
	if p.sick.Load() {
		return bus.ErrUnavailable
	}
	return p.DeadLetters.Settle(ctx, bzid, reaction, seq)
}

// The place follows what is settled while the reaction runs: it is stored now and then when
// it has moved, is stored later where that failed, and is where the next start goes on.
func TestPlaceIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		letters := &places{DeadLetters: b.DeadLetters()}
		run := func(log bus.Log) (stop func()) {
			r := react.New(react.Config{Log: log, Letters: letters, Owner: "portal", BZID: "t"})
			r.Handle("unload", 1, isRequest, func(_ context.Context, r events.Recorded) ([]bus.Draft, error) { return nil, nil })
			ctx, cancel := context.WithCancel(t.Context())
			errc := make(chan error, 1)
			go func() { errc <- r.Run(ctx) }()
			synctest.Wait()
			return func() {
				cancel()
				if err := <-errc; err != nil {
					t.Errorf("Run: %v", err)
				}
			}
		}
		expect := func(what string, want uint64, calls int32) {
			t.Helper()
			got, err := b.DeadLetters().Settled(t.Context(), "t", "unload")
			if err != nil || got != want || letters.calls.Load() != calls {
				t.Errorf("%s: %d is stored by %d calls, %v; want %d by %d", what, got, letters.calls.Load(), err, want, calls)
			}
		}
		stop := run(b.Log())
		first := put(t, b, request("x"))
		time.Sleep(45 * time.Second)
		expect("an event was settled", first, 1)
		time.Sleep(time.Hour)
		expect("nothing moved", first, 1)
		letters.sick.Store(true)
		second := put(t, b, request("y"))
		time.Sleep(30 * time.Second)
		expect("it cannot be stored", first, 2)
		letters.sick.Store(false)
		time.Sleep(time.Minute)
		expect("it can again", second, 3)
		stop()
		w := &watched{Log: b.Log()}
		run(w)()
		if from := w.first.Load(); from != second+1 {
			t.Errorf("the next start follows the log from %d, want %d", from, second+1)
		}
		expect("nothing was stored in the log since", second, 4)
	})
}

// A crash forgets the place, not what was parked or removed.
func TestForgottenPlace(t *testing.T) {
	b := mem.New()
	for range 3 {
		put(t, b, request("x"))
	}
	_, stop := begin(t, b, "unload", refuse)
	stop()
	if err := b.DeadLetters().Remove(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	calls := 0
	_, stop = begin(t, b, "unload under a name that has no place", func(context.Context, events.Recorded) ([]bus.Draft, error) {
		calls++
		return nil, nil
	})
	stop()
	if calls != 0 {
		t.Errorf("%d of 3 parked events are handed out again", calls)
	}
}

// A place beyond the end of the log is another log's.
func TestPlaceInAnotherLog(t *testing.T) {
	b := mem.New()
	if err := b.DeadLetters().Settle(t.Context(), "t", "unload", 100); err != nil {
		t.Fatal(err)
	}
	put(t, b, request("x"))
	calls := 0
	_, stop := begin(t, b, "unload", func(context.Context, events.Recorded) ([]bus.Draft, error) { calls++; return nil, nil })
	stop()
	if calls != 1 {
		t.Errorf("called %d times for the one event", calls)
	}
}

// Two causes that were published under one id are two causes.
func TestSameCauseID(t *testing.T) {
	b := mem.New()
	ask := func(reason string) {
		t.Helper()
		if _, err := b.Publish(t.Context(), string(ask), map[string][]string{"ce-id": {"deploy-42"}}, []byte(`{"unloadRequested":{"reason":"`+reason+`"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	reply := func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		return []bus.Draft{answer(reasonOf(r)), answer(reasonOf(r) + "+")}, nil
	}
	ask("one") // before the start
	ask("two")
	_, stop := begin(t, b, "unload", reply)
	ask("three") // and live
	got := await(t, b, 6)
	stop()
	for i, want := range []string{"one", "one+", "two", "two+", "three", "three+"} {
		if reasonOf(got[i]) != want || got[i].Header.Causation != "deploy-42" {
			t.Errorf("answer %d is %q of %q, want %q", i, reasonOf(got[i]), got[i].Header.Causation, want)
		}
	}
	_, stop = begin(t, b, "unload", reply)
	stop()
	if n := count(t, b); n != 6 {
		t.Errorf("%d answers after a restart, want 6", n)
	}
}

// Answers of the first releases, whose ids follow from the cause's id alone, are answers.
func TestAnswersOfEarlierBuilds(t *testing.T) {
	b := mem.New()
	d := request("old")
	d.Header.ID = "cause"
	put(t, b, d)
	a := answer("old")
	a.Header = events.Header{ID: react.EarlierID("cause", "unload", 0), Causation: "cause"}
	if a.Header.ID != "r-6RQDMFYRFFELL6CRXKPH5BUGKE" {
		t.Errorf("the id of an earlier build's answer is %s", a.Header.ID)
	}
	put(t, b, a)
	put(t, b, request("new"))
	var seen []string
	_, stop := begin(t, b, "unload", func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		seen = append(seen, reasonOf(r))
		return []bus.Draft{answer(reasonOf(r))}, nil
	})
	stop()
	if fmt.Sprint(seen) != "[new]" {
		t.Errorf("handed out: %v", seen)
	}
}

// An answer of an earlier build is one for all causes of its id that have none yet.
func TestAnswersOfMixedBuilds(t *testing.T) {
	b := mem.New()
	var causes []events.Recorded
	for range 2 {
		seq, err := b.Publish(t.Context(), string(ask), map[string][]string{"ce-id": {"cause"}}, []byte(`{"unloadRequested":{"reason":"x"}}`))
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.Log().Get(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		causes = append(causes, r)
	}
	for _, id := range []string{react.ID(causes[0], "unload", 0), react.EarlierID("cause", "unload", 0)} {
		a := answer("x")
		a.Header.ID = id
		put(t, b, a)
	}
	calls := 0
	_, stop := begin(t, b, "unload", func(context.Context, events.Recorded) ([]bus.Draft, error) { calls++; return nil, nil })
	stop()
	if calls != 0 {
		t.Errorf("%d of two answered causes are handed out", calls)
	}
}

// unwell refuses letters for as long as it is told to.
type unwell struct {
	bus.DeadLetters
	sick atomic.Bool
	told func() // called at each attempt
}

func (u *unwell) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	u.told()
	if u.sick.Load() {
		return 0, fmt.Errorf("no space left on device: %w", bus.ErrFull)
	}
	return u.DeadLetters.Park(ctx, p)
}

// What is tried again for long is a problem of the role until it succeeds.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		letters, state := &unwell{DeadLetters: b.DeadLetters()}, health.New()
		letters.sick.Store(true)
		var mu sync.Mutex
		var attempts []int // problems that were known at each attempt at a step
		letters.told = func() {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, len(state.Problems()))
		}
		quiet := func(step string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if len(attempts) < 5 || fmt.Sprint(attempts[:5]) != "[0 0 0 1 1]" {
				t.Errorf("%s: problems at each attempt: %v, want none before the fourth", step, attempts)
			}
			attempts = nil
		}
		var logged strings.Builder
		var away atomic.Bool
		away.Store(true)
		r := react.New(react.Config{Log: b.Log(), Letters: letters, Owner: "portal", Health: state, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		r.Handle("unload", 1, isRequest, func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
			if away.Load() {
				letters.told()
				return nil, fmt.Errorf("state: %w", bus.ErrUnavailable)
			}
			return nil, errors.New("no")
		})
		ctx, cancel := context.WithCancel(t.Context())
		errc := make(chan error, 1)
		go func() { errc <- r.Run(ctx) }()
		put(t, b, request("x"))
		problem := func(want ...string) {
			t.Helper()
			got := state.Problems()
			if len(got) != min(1, len(want)) {
				t.Fatalf("problems: %v", got)
			}
			for _, text := range want {
				if !strings.Contains(got[0].String(), text) {
					t.Fatalf("problem %q, want %q in it", got[0], text)
				}
			}
		}
		synctest.Wait()
		problem() // the first attempt says nothing
		time.Sleep(time.Minute)
		problem("reaction unload", "event 1 ", "bus unavailable")
		quiet("handle")
		away.Store(false)
		time.Sleep(time.Minute)
		problem("letters of unload", "event 1 ", "no space left")
		quiet("park")
		letters.sick.Store(false)
		time.Sleep(time.Minute)
		problem()
		cancel()
		if err := <-errc; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := strings.Count(logged.String(), "cannot be parked yet"); n != 1 {
			t.Errorf("an outage of the letters is logged %d times, want once", n)
		}
	})
}

// Letters that have no room hold up nobody.
func TestFullLetters(t *testing.T) {
	b := mem.New(mem.LetterLimit(64 << 10))
	reg := prometheus.NewRegistry()
	r := react.New(react.Config{Log: b.Log(), Letters: b.DeadLetters(), Owner: "portal", Metrics: reg})
	r.Handle("unload", 1, isRequest, func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		return []bus.Draft{answer(reasonOf(r))}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	errc := make(chan error, 1)
	go func() { errc <- r.Run(ctx) }()
	for range 4 {
		if _, err := b.Publish(ctx, string(ask), nil, make([]byte, 30<<10)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, b, request("good"))
	await(t, b, 1)
	all, err := b.DeadLetters().List(ctx)
	if err != nil || len(all) != 1 || all[0].More == nil || all[0].More.Count != 4 || all[0].StreamSeq != 4 {
		t.Errorf("letters %+v, %v, want a summary of 4", all, err)
	}
	const want = `# HELP monolith_reactions_total Events that a reaction has settled: done, parked, or counted in a summary of dead letters that had no room.
# TYPE monolith_reactions_total counter
monolith_reactions_total{reaction="unload",result="counted"} 4
monolith_reactions_total{reaction="unload",result="done"} 1
`
	cancel()
	if err := <-errc; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "monolith_reactions_total"); err != nil {
		t.Error(err)
	}
}
