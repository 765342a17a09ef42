package bustest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/tracectx"
)

func testCommands(t *testing.T, b bus.Bus) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	name := "ps." + unique() + ".0"
	gate := make(chan struct{})
	var trace string
	stop, err := b.Commands().Serve(ctxOf(t), bus.Service{
		BZID: "bustest", Name: name, Version: "1.0.0", Description: "the suite's",
		Endpoints: map[string]bus.Handler{
			"echo": func(ctx context.Context, p []byte) ([]byte, error) {
				trace = tracectx.Of(ctx)
				if _, ok := ctx.Deadline(); !ok && ctx.Done() == nil {
					return nil, errors.New("neither deadline nor end")
				}
				return append([]byte("echo "), p...), nil
			},
			"refuse": func(context.Context, []byte) ([]byte, error) {
				return nil, &bus.CommandError{Code: "INVALID", Message: "say\nplease"}
			},
			"mute":    func(context.Context, []byte) ([]byte, error) { return nil, &bus.CommandError{} },
			"missing": func(context.Context, []byte) ([]byte, error) { return nil, fmt.Errorf("model: %w", bus.ErrNotFound) },
			"stale":   func(context.Context, []byte) ([]byte, error) { return nil, bus.ErrConflict },
			"invalid": func(context.Context, []byte) ([]byte, error) { return nil, events.ErrInvalid },
			"broken":  func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no idea") },
			"panics":  func(context.Context, []byte) ([]byte, error) { panic("oh") },
			"wait":    func(context.Context, []byte) ([]byte, error) { <-gate; return nil, nil },
			"open":    func(context.Context, []byte) ([]byte, error) { close(gate); return nil, nil },
		},
	})
	if err != nil {
		t.Fatalf("Serve: %v", err)
	}
	defer stop()
	got, err := b.Commands().Call(tracectx.With(ctxOf(t), parent), "bustest", name+".echo", []byte("hello"))
	if err != nil || string(got) != "echo hello" {
		t.Fatalf("Call = %q, %v", got, err)
	}
	if trace != parent {
		t.Fatalf("the handler is in trace %q, want %q", trace, parent)
	}
	for endpoint, code := range map[string]string{
		"refuse": "INVALID", "mute": "INTERNAL", "missing": "NOT_FOUND", "stale": "CONFLICT", "invalid": "INVALID", "broken": "INTERNAL", "panics": "INTERNAL",
	} {
		_, err := b.Commands().Call(ctxOf(t), "bustest", name+"."+endpoint, nil)
		var refusal *bus.CommandError
		if !errors.As(err, &refusal) || refusal.Code != code || refusal.Message == "" {
			t.Fatalf("%s: %v, want a refusal with %s", endpoint, err, code)
		}
		if endpoint == "refuse" && refusal.Message != "say\nplease" {
			t.Fatalf("message %q arrived", refusal.Message)
		}
	}
	var wg sync.WaitGroup // one handler waits for another: they run at the same time
	for range 5 {
		wg.Go(func() {
			if _, err := b.Commands().Call(ctxOf(t), "bustest", name+".wait", nil); err != nil {
				t.Errorf("wait: %v", err)
			}
		})
	}
	if _, err := b.Commands().Call(ctxOf(t), "bustest", name+".open", nil); err != nil {
		t.Errorf("open: %v", err)
	}
	wg.Wait()
	stop()
	_, err = b.Commands().Call(ctxOf(t), "bustest", name+".echo", nil)
	wantErr(t, "Call after stop", err, bus.ErrUnavailable)
	_, err = b.Commands().Serve(ctxOf(t), bus.Service{BZID: "bustest", Name: "a b", Version: "1.0.0", Endpoints: map[string]bus.Handler{"x": nil}})
	wantErr(t, "Serve of nonsense", err, events.ErrInvalid)
}

func testUnanswered(t *testing.T, b bus.Bus) {
	_, err := b.Commands().Call(ctxOf(t), "bustest", "nobody.home", nil)
	wantErr(t, "Call of nobody", err, bus.ErrUnavailable)
	name := unique()
	var began atomic.Bool
	ended := make(chan error, 16) // of every call below
	stop, err := b.Commands().Serve(ctxOf(t), bus.Service{
		BZID: "bustest", Name: name, Version: "1.0.0",
		Endpoints: map[string]bus.Handler{"slow": func(ctx context.Context, _ []byte) ([]byte, error) {
			began.Store(true)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// A call that a busy machine has not sent in its time reaches no handler: the next one has more.
	for long := 100 * time.Millisecond; !began.Load() && long < patience; long *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		_, err = b.Commands().Call(ctx, "bustest", name+".slow", nil)
		cancel()
		if err == nil {
			t.Fatal("a handler that never answers answered")
		}
		if refusal := (*bus.CommandError)(nil); errors.As(err, &refusal) {
			if refusal.Code != "UNAVAILABLE" {
				t.Fatalf("no answer in time is %v", err)
			}
		} else {
			wantErr(t, "no answer in time", err, bus.ErrUnavailable)
		}
	}
	select {
	case <-ended:
	case <-ctxOf(t).Done():
		t.Fatal("the handler outlives its caller's deadline")
	}
}

func testSignals(t *testing.T, b bus.Bus) {
	word := unique()
	got := make(chan string, 10)
	stop, err := b.Signals().Listen(ctxOf(t), "heartbeat."+word+".*", func(s string, p []byte) { got <- s + "=" + string(p) })
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	for _, s := range []string{"heartbeat." + word + ".a", "heartbeat.other" + word + ".a", "heartbeat." + word + ".b"} {
		if err := b.Signals().Signal(ctxOf(t), s, []byte("1")); err != nil {
			t.Fatalf("Signal: %v", err)
		}
	}
	for _, want := range []string{"heartbeat." + word + ".a=1", "heartbeat." + word + ".b=1"} {
		select {
		case s := <-got:
			if s != want {
				t.Fatalf("heard %s, want %s", s, want)
			}
		case <-ctxOf(t).Done():
			t.Fatalf("never heard %s", want)
		}
	}
	stop()
	after := make(chan struct{}, 1)
	stop2, err := b.Signals().Listen(ctxOf(t), "heartbeat."+word+".c", func(string, []byte) { after <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop2()
	if err := b.Signals().Signal(ctxOf(t), "heartbeat."+word+".c", nil); err != nil {
		t.Fatal(err)
	}
	<-after
	select {
	case s := <-got:
		t.Fatalf("heard %s after stop", s)
	default:
	}
	wantErr(t, "Signal on a wildcard", b.Signals().Signal(ctxOf(t), "a.*", nil), events.ErrInvalid)
}

func testLeases(t *testing.T, b bus.Bus) {
	name := "chief." + unique() + "/0"
	one, release, err := b.Leases().TryAcquire(ctxOf(t), name, "one", time.Hour)
	if err != nil {
		t.Fatalf("TryAcquire: %v", err)
	}
	if one.Epoch == 0 || one.Name != name {
		t.Fatalf("lease %+v", one)
	}
	_, _, err = b.Leases().TryAcquire(ctxOf(t), name, "two", time.Second)
	wantErr(t, "a held lease", err, bus.ErrConflict)
	_, _, err = b.Leases().TryAcquire(ctxOf(t), name, "one", time.Second)
	wantErr(t, "a lease held under the same name", err, bus.ErrConflict)
	other, releaseOther, err := b.Leases().TryAcquire(ctxOf(t), name+"x", "two", time.Hour)
	if err != nil {
		t.Fatalf("another lease: %v", err)
	}
	defer releaseOther()
	select {
	case <-one.Lost:
		t.Fatal("lost at once")
	case <-other.Lost:
		t.Fatal("the other is lost at once")
	default:
	}
	release()
	release()
	select {
	case <-one.Lost:
	case <-ctxOf(t).Done():
		t.Fatal("released and not lost")
	}
	two, release, err := b.Leases().TryAcquire(ctxOf(t), name, "two", time.Second)
	if err != nil || two.Epoch <= one.Epoch {
		t.Fatalf("the next holder has epoch %d behind %d, %v", two.Epoch, one.Epoch, err)
	}
	release()
	for _, tc := range []struct {
		name, holder string
		ttl          time.Duration
	}{{"", "h", time.Second}, {"n", "", time.Second}, {"n", "h", time.Millisecond}} {
		_, _, err := b.Leases().Acquire(ctxOf(t), tc.name, tc.holder, tc.ttl)
		wantErr(t, fmt.Sprintf("Acquire(%q, %q, %v)", tc.name, tc.holder, tc.ttl), err, events.ErrInvalid)
	}
}

// testRenewed holds a lease for longer than it lasts. A machine that stands still for as long
// loses a lease by that alone: then one that lasts longer is to be held.
func testRenewed(t *testing.T, b bus.Bus) {
	name := "renewed." + unique()
	for ttl := time.Second; ttl < patience; ttl *= 2 {
		l, release, err := b.Leases().Acquire(ctxOf(t), name, "one", ttl)
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		select {
		case <-l.Lost:
			release()
			continue
		case <-time.After(ttl + ttl/2):
		}
		_, _, err = b.Leases().TryAcquire(ctxOf(t), name, "two", ttl)
		release()
		if err == nil {
			continue // it was lost since
		}
		wantErr(t, "a renewed lease", err, bus.ErrConflict)
		return
	}
	t.Fatal("no lease is renewed")
}

func testHandover(t *testing.T, b bus.Bus) {
	name := unique()
	const holders = 4
	var mu sync.Mutex
	var epochs []uint64
	inside := 0
	var wg sync.WaitGroup
	for i := range holders {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(ctxOf(t))
			defer cancel()
			l, release, err := b.Leases().Acquire(ctx, name, fmt.Sprint(i), time.Hour) // which no pause of the machine loses
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			mu.Lock()
			if inside++; inside != 1 {
				t.Errorf("%d hold one lease", inside)
			}
			epochs = append(epochs, l.Epoch)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			inside--
			mu.Unlock()
			if i%2 == 0 {
				release()
				return
			}
			cancel() // the end of ctx gives it up too
			<-l.Lost
		})
	}
	wg.Wait()
	for i := 1; i < len(epochs); i++ {
		if epochs[i] <= epochs[i-1] {
			t.Fatalf("epochs %v do not rise", epochs)
		}
	}
	if len(epochs) != holders {
		t.Fatalf("%d of %d held it", len(epochs), holders)
	}
	_, release, err := b.Leases().Acquire(ctxOf(t), name, "last", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = b.Leases().Acquire(ctx, name, "late", time.Second)
	wantErr(t, "Acquire of a held lease", err, bus.ErrUnavailable)
}

func testClose(t *testing.T, b bus.Bus) {
	last := mustLast(t, b)
	errc := make(chan error, 1)
	seen := make(chan struct{}, 1)
	s := subject(t)
	go func() {
		errc <- b.Log().Follow(t.Context(), last+1, 0, func(r events.Recorded) error {
			if r.Subject == s {
				seen <- struct{}{}
			}
			return nil
		})
	}()
	mustAppend(t, b, draft(s, bus.Any, "x"))
	<-seen
	select {
	case <-b.Done():
		t.Fatalf("Done before Close: %v", b.Err())
	default:
	}
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	<-b.Done()
	if err := b.Err(); err != nil {
		t.Fatalf("closed on purpose, and Err is %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatalf("Close again: %v", err)
	}
	wantErr(t, "Follow across Close", <-errc, bus.ErrUnavailable)
	_, err := b.Log().Append(ctxOf(t), draft(s, bus.Any, "x"))
	wantErr(t, "Append after Close", err, bus.ErrUnavailable)
	_, err = b.Log().Last(ctxOf(t))
	wantErr(t, "Last after Close", err, bus.ErrUnavailable)
}
