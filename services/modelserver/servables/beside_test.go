package servables

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// A version that could not be loaded is tried again by itself so often, after so long each, and with each
// change of its folders as often anew, those of the shards beside it included.
func TestLoadsThatFailAreTriedAgain(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"entry", "ps_0", "ps_1"} {
		folders(t, filepath.Join(dir, sub), 1)
	}
	synctest.Test(t, func(t *testing.T) {
		var began atomic.Int32
		m := newManager(func(context.Context, *version) error { began.Add(1); return errors.New("it cannot be read") }, 0, health.New())
		m.beside, m.retries, m.retryEvery = true, 2, time.Minute
		ctx, stop := context.WithCancel(t.Context())
		m.Configure([]tfserving.Model{{Name: "m", BasePath: filepath.Join(dir, "entry"), Policy: tfserving.Policy{Latest: 1}}})
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx, time.Second) }()
		for _, tc := range []struct {
			after time.Duration
			want  int32
		}{{0, 1}, {58 * time.Second, 1}, {4 * time.Second, 2}, {time.Minute + time.Second, 3}, {time.Hour, 3}} {
			time.Sleep(tc.after)
			synctest.Wait()
			if began.Load() != tc.want {
				t.Errorf("%v later it was begun %d times, want %d", tc.after, began.Load(), tc.want)
			}
		}
		changed := time.Now().Add(100 * 365 * 24 * time.Hour) // later than the folder's, by any clock
		if err := os.Chtimes(filepath.Join(dir, "ps_1", "1"), changed, changed); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if began.Load() != 6 {
			t.Errorf("after a shard beside it has changed it was begun %d times, want 6", began.Load())
		}
		stop()
		<-done
	})
}

// Where base paths are looked at once, a version that appears is found when the model is configured anew.
func TestBasePathsThatAreLookedAtOnce(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, 1)
	for once, want := range map[bool]string{false: "2", true: "1"} {
		m := newManager(func(ctx context.Context, _ *version) error { <-ctx.Done(); return nil }, 0, health.New())
		m.lookOnce = once
		is := []tfserving.Model{{Name: "m", BasePath: dir, Policy: tfserving.Policy{Latest: 1}}}
		ctx, stop := context.WithCancel(t.Context())
		m.Configure(is)
		m.reconcile(ctx)
		folders(t, dir, 2)
		m.reconcile(ctx)
		number := func() string {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.models["m"][2] != nil {
				return "2"
			}
			return "1"
		}
		if got := number(); got != want {
			t.Errorf("once: %v; version %s was begun, want %s", once, got, want)
		}
		m.Configure(is)
		m.reconcile(ctx)
		if got := number(); got != "2" {
			t.Errorf("once: %v; configured anew version %s was begun", once, got)
		}
		stop()
		m.lives.Wait()
		if err := os.RemoveAll(filepath.Join(dir, "2")); err != nil {
			t.Fatal(err)
		}
	}
}

// An entry is whole with all of its own shards, or fails.
func TestShardsBesideAnEntry(t *testing.T) {
	base := t.TempDir()
	exportRows(t, filepath.Join(base, "ps_0"), 3, 7, 0.5)
	r := newKeeper(Options{LoadBytes: 1 << 20, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	v := &version{name: "m", model: "m"}
	at := exportLocation{filepath.Join(base, "entry"), 3}
	g := &servable{entry: answering(3), job: "j", shards: 1}
	if err := r.beside(t.Context(), g, v, at); err != nil || len(g.own) != 1 || !g.entry.Settled() {
		t.Fatalf("%v, %d shards", err, len(g.own))
	}
	for _, tc := range []struct {
		g    *servable
		code codes.Code
		want string
	}{
		{&servable{entry: answering(3), job: "k", shards: 1}, codes.InvalidArgument, "copy all folders of one export"},
		{&servable{entry: answering(3), job: "j", shards: 2}, codes.InvalidArgument, "shards"},
	} {
		err := r.beside(t.Context(), tc.g, v, at)
		if err == nil || !strings.Contains(err.Error(), tc.want) || failed(err).code != tc.code || tc.g.own != nil {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	gone := exportLocation{filepath.Join(base, "entry"), 4}
	if err := r.beside(t.Context(), &servable{entry: answering(4), job: "j", shards: 1}, v, gone); failed(err).code != codes.NotFound {
		t.Errorf("a version without shards: %v", err)
	}

	// The shard that is served by itself has the entry's very rows, until both are gone.
	served, err := r.loadShard(t.Context(), v, exportLocation{filepath.Join(base, "ps_0"), 3}, 0)
	if err != nil || served != g.own[0] {
		t.Fatalf("the shard's rows are %p and the entry's %p, %v", served, g.own[0], err)
	}
	first := weak.Make(served)
	served, g = nil, nil
	wait.For(t, "the rows are gone", func() bool {
		runtime.GC()
		return first.Value() == nil
	})
	again, err := r.loadShard(t.Context(), v, exportLocation{filepath.Join(base, "ps_0"), 3}, 0)
	if err != nil || again == nil || len(r.shared.read) != 1 {
		t.Fatalf("read again: %v, %v, %d are remembered", again, err, len(r.shared.read))
	}
}

// Only so many versions are loaded at once.
func TestLoadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := viewing(t, false)
		base := t.TempDir()
		exportRows(t, base, 3, 7, 0.5)
		o := s.Options
		o.Loads, o.Registry = 1, nil
		k := newKeeper(o)
		k.manager = s.manager
		if err := k.turns.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		loaded := make(chan error, 1)
		go func() {
			_, err := k.load(t.Context(), &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3}, exportLocation{base, 3}, target{})
			loaded <- err
		}()
		synctest.Wait()
		select {
		case err := <-loaded:
			t.Errorf("it was loaded beside another one: %v", err)
		default:
		}
		k.turns.Release(1)
		if err := <-loaded; err != nil {
			t.Error(err)
		}
	})
}
