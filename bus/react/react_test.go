package react_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var (
	fact = events.Join("t", "model", "m")
	ask  = fact.Request()
)

func request(reason string) bus.Draft {
	return bus.Draft{Subject: ask, Expect: bus.Any, Event: &model.Event{Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{Reason: reason}}}}
}

func answer(reason string) bus.Draft {
	return bus.Draft{Subject: fact, Expect: bus.Any, Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: reason}}}}
}

func isRequest(r events.Recorded) bool { return r.Subject == ask }

func reasonOf(r events.Recorded) string {
	e := r.Event.(*model.Event)
	return e.GetUnloadRequested().GetReason() + e.GetUnloadAccepted().GetReason()
}

// start runs one reaction until the test, or stop, ends it.
func start(t *testing.T, b bus.Bus, h react.Handler) (r *react.Reactor, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tp := sdktrace.NewTracerProvider()
	r = react.New(react.Config{Log: b.Log(), Letters: b.DeadLetters(), Owner: "portal", Tracer: tp.Tracer("t"), Metrics: prometheus.NewRegistry()})
	r.Handle("unload", 1, isRequest, h)
	errc := make(chan error, 1)
	go func() { errc <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-errc; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return r, stop
}

func ready(t *testing.T, r *react.Reactor) {
	t.Helper()
	select {
	case <-r.Ready():
	case <-time.After(wait.Patience):
		t.Fatal("never ready")
	}
}

func put(t *testing.T, b bus.Bus, d bus.Draft) uint64 {
	t.Helper()
	seqs, err := b.Log().Append(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return seqs[0]
}

// await returns the first n facts of the log.
func await(t *testing.T, b bus.Bus, n int) []events.Recorded {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	enough := errors.New("enough")
	var got []events.Recorded
	err := b.Log().Follow(ctx, 1, 0, func(r events.Recorded) error {
		if r.Subject == fact {
			got = append(got, r)
		}
		if len(got) == n {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("%d of %d facts: %v", len(got), n, err)
	}
	return got
}

func count(t *testing.T, b bus.Bus) int {
	t.Helper()
	last, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = b.Log().Follow(t.Context(), 1, last, func(r events.Recorded) error {
		if r.Subject == fact {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAnswersInOrder(t *testing.T) {
	b := mem.New()
	d := request("0")
	d.Header = events.Header{ID: "cause", Correlation: "corr", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	put(t, b, d)
	r, _ := start(t, b, func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		return []bus.Draft{answer(reasonOf(r)), answer(reasonOf(r) + "+")}, nil
	})
	ready(t, r)
	for i := 1; i < 20; i++ {
		put(t, b, request(fmt.Sprint(i)))
	}
	got := await(t, b, 40)
	for i, r := range got {
		want := fmt.Sprint(i / 2)
		if i%2 == 1 {
			want += "+"
		}
		if reasonOf(r) != want {
			t.Fatalf("answer %d is %q, want %q", i, reasonOf(r), want)
		}
	}
	h := got[0].Header
	if h.Correlation != "corr" || h.Causation != "cause" || h.Source != "portal" || h.ID != react.ID(events.Recorded{Seq: 1, Header: events.Header{ID: "cause"}}, "unload", 0) ||
		!strings.HasPrefix(h.Traceparent, "00-0af7651916cd43dd8448eb211c80319c-") || h.Traceparent == d.Header.Traceparent {
		t.Fatalf("header %+v", h)
	}
	if h := got[2].Header; h.Correlation == "" || h.Correlation != h.Causation {
		t.Fatalf("a request that answers nothing starts a correlation: %+v", h)
	}
}

func TestRestartAppendsNothingNew(t *testing.T) {
	b := mem.New()
	for i := range 5 {
		put(t, b, request(fmt.Sprint(i)))
	}
	r, stop := start(t, b, func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		if reasonOf(r) == "3" {
			return nil, events.ErrInvalid
		}
		return []bus.Draft{answer(reasonOf(r))}, nil
	})
	ready(t, r)
	stop()
	late := put(t, b, request("while it was away"))
	var calls []uint64
	r, stop = start(t, b, func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		calls = append(calls, r.Seq)
		return []bus.Draft{answer("again"), answer("and more")}, nil
	})
	ready(t, r)
	stop()
	if len(calls) != 1 || calls[0] != late {
		t.Fatalf("after a restart the handler saw %v, want only %d", calls, late)
	}
	if n := count(t, b); n != 4+2 {
		t.Fatalf("%d facts, want 6", n)
	}
}

func TestTwoInstancesAnswerOnce(t *testing.T) {
	b := mem.New()
	h := func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		return []bus.Draft{answer(reasonOf(r))}, nil
	}
	one, _ := start(t, b, h)
	two, stopTwo := start(t, b, h)
	ready(t, one)
	ready(t, two)
	for i := range 50 {
		put(t, b, request(fmt.Sprint(i)))
	}
	await(t, b, 50)
	stopTwo()
	if n := count(t, b); n != 50 {
		t.Fatalf("%d answers to 50 requests", n)
	}
}

func TestConflictDecidesAgain(t *testing.T) {
	b := mem.New()
	first := put(t, b, answer("somebody else"))
	var calls atomic.Int32
	start(t, b, func(context.Context, events.Recorded) ([]bus.Draft, error) {
		switch calls.Add(1) {
		case 1:
			d := answer("stale")
			d.Expect = 0
			return []bus.Draft{d}, nil
		case 2:
			return nil, fmt.Errorf("state: %w", bus.ErrUnavailable)
		case 3:
			return nil, context.DeadlineExceeded
		}
		d := answer("fresh")
		d.Expect = first
		return []bus.Draft{d}, nil
	})
	put(t, b, request("x"))
	if got := await(t, b, 2); reasonOf(got[1]) != "fresh" || calls.Load() != 4 {
		t.Fatalf("%q after %d calls", reasonOf(got[1]), calls.Load())
	}
	if l, err := b.DeadLetters().List(t.Context()); err != nil || len(l) != 0 {
		t.Fatalf("letters %v, %v", l, err)
	}
}

func TestParksAndGoesOn(t *testing.T) {
	b := mem.New()
	var calls atomic.Int32
	h := func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		calls.Add(1)
		switch reasonOf(r) {
		case "refuse":
			return []bus.Draft{answer("in spite of it")}, fmt.Errorf("no such model: %w", events.ErrInvalid)
		case "panic":
			panic("oh")
		case "nonsense":
			return []bus.Draft{{Subject: fact, Expect: bus.Any, Event: &model.Event{}}}, nil
		}
		return []bus.Draft{answer(reasonOf(r))}, nil
	}
	_, stop := start(t, b, h)
	want := map[uint64]string{}
	for reason, text := range map[string]string{"refuse": "no such model", "panic": "oh", "nonsense": "without a body"} {
		want[put(t, b, request(reason))] = text
	}
	seq, err := b.Publish(t.Context(), string(ask), map[string][]string{"X": {"y"}}, []byte(`{"unloadRequested":{"raison":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want[seq] = "raison"
	if _, err := b.Publish(t.Context(), string(fact), nil, []byte(`of no interest`)); err != nil {
		t.Fatal(err)
	}
	put(t, b, request("good"))
	if got := await(t, b, 2); reasonOf(got[1]) != "good" {
		t.Fatalf("answer %+v", got[1])
	}
	stop()
	check := func() {
		t.Helper()
		letters, err := b.DeadLetters().List(t.Context())
		if err != nil || len(letters) != len(want) {
			t.Fatalf("%d letters, %v, want %d", len(letters), err, len(want))
		}
		for _, p := range letters {
			if !strings.Contains(p.Reason, want[p.StreamSeq]) || p.By != "portal" || p.Stream != "MONOLITH" || p.Subject != string(ask) || len(p.Data) == 0 {
				t.Fatalf("letter %+v, want the reason %q", p, want[p.StreamSeq])
			}
		}
	}
	check()
	if n := calls.Load(); n != 4 {
		t.Fatalf("the handler was called %d times, want once for each of 4", n)
	}
	r, _ := start(t, b, h)
	ready(t, r)
	if n := calls.Load(); n != 4 {
		t.Fatalf("after a restart it was called %d times more", n-4)
	}
	check()
}

// An event that is interrupted is neither parked nor passed over: the next start hands it out,
// whether it was stored before the first one or after it.
func TestInterruptedIsHandedOutAgain(t *testing.T) {
	for _, live := range []bool{false, true} {
		b := mem.New()
		if !live {
			put(t, b, request("x"))
		}
		entered := make(chan struct{})
		r, stop := start(t, b, func(ctx context.Context, _ events.Recorded) ([]bus.Draft, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if live {
			ready(t, r)
			put(t, b, request("x"))
		}
		<-entered
		stop()
		if l, err := b.DeadLetters().List(t.Context()); err != nil || len(l) != 0 {
			t.Fatalf("what was interrupted is parked: %v, %v", l, err)
		}
		if err := r.Run(t.Context()); err == nil {
			t.Fatal("a second Run is allowed")
		}
		again := 0
		r, stop = start(t, b, func(context.Context, events.Recorded) ([]bus.Draft, error) { again++; return nil, nil })
		ready(t, r)
		stop()
		if again != 1 {
			t.Errorf("live %v: what was interrupted is handed out %d times at the next start", live, again)
		}
	}
}

// Handle refuses a name that the Reactor has, and any while it runs.
func TestHandleRefuses(t *testing.T) {
	b := mem.New()
	r, _ := start(t, b, refuse)
	ready(t, r)
	other := react.New(react.Config{Log: b.Log(), Letters: b.DeadLetters(), Owner: "portal"})
	for _, tc := range []struct {
		r          *react.Reactor
		name, says string
	}{
		{other, "one", ""}, {other, "two", ""}, {other, "one", "two reactions are called one"}, {r, "late", "Handle after Run"},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tc.says) || tc.says == "" && got != "<nil>" {
					t.Errorf("Handle(%s) panics with %s, want %q", tc.name, got, tc.says)
				}
			}()
			tc.r.Handle(tc.name, 1, isRequest, refuse)
		}()
	}
}

func TestRunEnds(t *testing.T) {
	b := mem.New()
	errc := make(chan error, 1)
	none := react.New(react.Config{Log: b.Log(), Letters: b.DeadLetters(), Owner: "portal"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { errc <- none.Run(ctx) }()
	ready(t, none)
	cancel()
	if err := <-errc; err != nil {
		t.Fatalf("Run without reactions = %v", err)
	}

	lost := react.New(react.Config{Log: b.Log(), Letters: b.DeadLetters(), Owner: "portal"})
	lost.Handle("x", 1, isRequest, func(context.Context, events.Recorded) ([]bus.Draft, error) { return nil, nil })
	go func() { errc <- lost.Run(t.Context()) }()
	ready(t, lost)
	b.Close()
	if err := <-errc; !errors.Is(err, bus.ErrUnavailable) {
		t.Fatalf("Run on a closed bus = %v", err)
	}
}
