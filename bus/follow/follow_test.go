package follow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/registry"
)

const within = wait.Patience

func add(t testing.TB, log bus.Log, bzid, name string, n int) uint64 {
	t.Helper()
	e := &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
		Load: &model.Load{ModelName: name, ModelDir: fmt.Sprintf("/d/<%d>&", n), NumShard: 1, Version: int64(n + 1)},
	}}}
	seqs, err := log.Append(t.Context(), bus.Draft{Subject: events.Join(bzid, "model", name), Event: e, Expect: bus.Any})
	if err != nil {
		t.Fatal(err)
	}
	return seqs[0]
}

// start runs f until the returned function is called, which reports what Run did.
func start[S any](t testing.TB, f *follow.Follower[S]) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestCatchUpThenFollow(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for i := range 5 {
		add(t, b.Log(), "demo", "m", i)
	}
	var hooked []uint64
	f := follow.New(b.Log(), registry.Catalog, follow.Options{})
	f.OnEvent(func(s models.State, r events.Recorded) {
		if s.Seq != r.Seq {
			t.Errorf("hook at %d sees the state of %d", r.Seq, s.Seq)
		}
		hooked = append(hooked, r.Seq)
	})
	if f.Seq() != 0 {
		t.Fatalf("before Run: %d", f.Seq())
	}
	stop := start(t, f)
	wait.Closed(t, "ready", f.Ready())
	if f.Seq() < 5 {
		t.Fatalf("ready at %d of 5", f.Seq())
	}
	changed := f.Changed()
	seq := add(t, b.Log(), "demo", "m2", 6)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := f.Wait(ctx, seq); err != nil {
		t.Fatal(err)
	}
	wait.Closed(t, "changed", changed)
	f.Read(func(s models.State) {
		if s.Models["m2"].Load.V.GetVersion() != 7 {
			t.Errorf("state: %v", s.Models)
		}
	})
	if err := stop(); err != nil {
		t.Fatalf("a clean stop: %v", err)
	}
	if len(hooked) != 6 {
		t.Errorf("hook ran for %v", hooked)
	}
	if err := f.Wait(t.Context(), seq+1); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait for what never comes after Run: %v", err)
	}
}

func TestEmptyLogIsReadyAtOnce(t *testing.T) {
	b := mem.New()
	defer b.Close()
	f := follow.New(b.Log(), registry.Plan, follow.Options{SnapshotDir: t.TempDir()})
	start(t, f)
	wait.Closed(t, "ready", f.Ready())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
}

func TestRunReportsTheLogsFailure(t *testing.T) {
	b := mem.New()
	f := follow.New(b.Log(), registry.Plan, follow.Options{})
	stop := start(t, f)
	wait.Closed(t, "ready", f.Ready())
	waited := make(chan error, 1)
	go func() { waited <- f.Wait(t.Context(), 1) }()
	b.Close()
	select {
	case err := <-waited:
		if !errors.Is(err, bus.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v", err)
		}
	case <-time.After(within):
		t.Fatal("Wait outlives Run")
	}
	if err := stop(); err != nil && !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Run = %v", err)
	}
}

// counting says from where a follower reads.
type counting struct {
	bus.Log
	from uint64
}

func (c *counting) Cut(ctx context.Context) (bus.Cut, error) { return c.Log.(bus.Trimmer).Cut(ctx) }

func (c *counting) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	c.from = from
	return c.Log.Follow(ctx, from, until, handle)
}

// once follows log to its end, stops, and returns where it started and where it stood.
func once(t testing.TB, log bus.Log, dir string, v follow.View[models.State], logged *bytes.Buffer) (from, seq uint64, hash string) {
	t.Helper()
	c := &counting{Log: log}
	o := follow.Options{SnapshotDir: dir, SnapshotEvery: 7}
	if logged != nil {
		o.Log = slog.New(slog.NewTextHandler(logged, nil))
	}
	f := follow.New(bus.Log(c), v, o)
	stop := start(t, f)
	wait.Closed(t, "ready", f.Ready())
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	seq, hash = f.Hash()
	return c.from, seq, hash
}

func TestSnapshot(t *testing.T) {
	b := mem.New()
	defer b.Close()
	dir := t.TempDir()
	for i := range 10 {
		add(t, b.Log(), "demo", fmt.Sprint("m", i%3), i)
	}
	if from, seq, _ := once(t, b.Log(), dir, registry.Catalog, nil); from != 1 || seq != 10 {
		t.Fatalf("first run from %d to %d", from, seq)
	}
	add(t, b.Log(), "demo", "m1", 10)
	from, seq, hash := once(t, b.Log(), dir, registry.Catalog, nil)
	if from != 11 || seq != 11 {
		t.Errorf("second run from %d to %d, want from 11 to 11", from, seq)
	}
	_, want, err := registry.Replay(t.Context(), b.Log(), "catalog", "", follow.End)
	if err != nil || hash != want {
		t.Errorf("hash %s, replay says %s, %v", hash, want, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestSnapshotIgnored(t *testing.T) {
	newer := registry.Catalog
	newer.Version++
	for _, tc := range []struct {
		name  string
		view  follow.View[models.State]
		spoil func(t *testing.T, file string, data []byte) []byte
		log   func(t *testing.T, old bus.Log) bus.Log
		says  string
	}{
		{name: "another fold version", view: newer, says: "another view or fold version"},
		{name: "another namespace", view: registry.Catalog.Only("demo")},
		{name: "cut short", view: registry.Catalog, says: "snapshot ignored", spoil: func(_ *testing.T, _ string, data []byte) []byte { return data[:len(data)/2] }},
		{name: "empty", view: registry.Catalog, says: "snapshot ignored", spoil: func(*testing.T, string, []byte) []byte { return nil }},
		{name: "flipped bit", view: registry.Catalog, says: "snapshot ignored", spoil: func(_ *testing.T, _ string, data []byte) []byte {
			data[len(data)/2] ^= 4
			return data
		}},
		{name: "shorter log", view: registry.Catalog, says: "beyond the end of the log", log: func(t *testing.T, _ bus.Log) bus.Log {
			b := mem.New()
			t.Cleanup(func() { b.Close() })
			add(t, b.Log(), "demo", "x", 1)
			return b.Log()
		}},
		{name: "another log", view: registry.Catalog, says: "another event at its sequence", log: func(t *testing.T, _ bus.Log) bus.Log {
			b := mem.New()
			t.Cleanup(func() { b.Close() })
			for i := range 9 {
				add(t, b.Log(), "demo", "x", i)
			}
			return b.Log()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := mem.New()
			defer b.Close()
			dir := t.TempDir()
			for i := range 3 {
				add(t, b.Log(), "demo", "m", i)
			}
			once(t, b.Log(), dir, registry.Catalog, nil)
			if tc.spoil != nil {
				file := filepath.Join(dir, "catalog.snapshot.gz")
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, tc.spoil(t, file, data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			log := b.Log()
			if tc.log != nil {
				log = tc.log(t, log)
			}
			var logged bytes.Buffer
			from, _, hash := once(t, log, dir, tc.view, &logged)
			if from != 1 {
				t.Errorf("replay began at %d", from)
			}
			if !strings.Contains(logged.String(), tc.says) {
				t.Errorf("log says %q, want %q", logged.String(), tc.says)
			}
			s, err := follow.Replay(t.Context(), log, tc.view, follow.End)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := hashOf(s); hash != want {
				t.Errorf("hash %s, want %s", hash, want)
			}
		})
	}
}

// A folder that cannot be written costs snapshots, nothing else.
func TestSnapshotFolderMissing(t *testing.T) {
	b := mem.New()
	defer b.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		add(t, b.Log(), "demo", "m", i)
	}
	var logged bytes.Buffer
	if _, seq, _ := once(t, b.Log(), filepath.Join(file, "below"), registry.Catalog, &logged); seq != 9 {
		t.Errorf("stands at %d", seq)
	}
	if !strings.Contains(logged.String(), "snapshot not written") {
		t.Errorf("log says %q", logged.String())
	}
}

func TestOnly(t *testing.T) {
	b := mem.New()
	defer b.Close()
	add(t, b.Log(), "demo", "m", 1)
	add(t, b.Log(), "other", "m", 2)
	s, err := follow.Replay(t.Context(), b.Log(), registry.Catalog.Only("demo"), follow.End)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Models["m"]; got.Seq != 1 || got.Load.V.GetVersion() != 2 {
		t.Errorf("demo's model: %+v", got)
	}
	f := follow.New(b.Log(), registry.Catalog.Only("demo"), follow.Options{})
	start(t, f)
	wait.Closed(t, "ready", f.Ready())
	if f.Seq() != 2 {
		t.Errorf("the cursor stands at %d, want 2", f.Seq())
	}
}

func TestReplayUntil(t *testing.T) {
	b := mem.New()
	defer b.Close()
	if s, err := follow.Replay(t.Context(), b.Log(), registry.Catalog, follow.End); err != nil || s.Seq != 0 {
		t.Errorf("empty log: %d, %v", s.Seq, err)
	}
	for i := range 4 {
		add(t, b.Log(), "demo", "m", i)
	}
	for until, want := range map[uint64]uint64{0: 0, 1: 1, 3: 3, 4: 4, follow.End: 4} {
		if s, err := follow.Replay(t.Context(), b.Log(), registry.Catalog, until); err != nil || s.Seq != want {
			t.Errorf("until %d: at %d, %v", until, s.Seq, err)
		}
	}
	if _, err := follow.Replay(t.Context(), b.Log(), registry.Catalog, 5); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("beyond the end: %v", err)
	}
}

// held is a log that hands on the event at seq when it is released.
type held struct {
	bus.Log
	seq     uint64
	release chan struct{}
}

func (h held) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	return h.Log.Follow(ctx, from, until, func(r events.Recorded) error {
		if r.Seq == h.seq {
			select {
			case <-h.release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return handle(r)
	})
}

func TestLagMetric(t *testing.T) {
	b := mem.New()
	defer b.Close()
	reg := prometheus.NewRegistry()
	add(t, b.Log(), "demo", "m", 1)
	add(t, b.Log(), "demo", "m", 2)
	log := held{b.Log(), 2, make(chan struct{})}
	f := follow.New(bus.Log(log), registry.Catalog, follow.Options{Metrics: reg, LagEvery: time.Millisecond})
	follow.New(b.Log(), registry.Plan, follow.Options{Metrics: reg}) // a second view of one registry
	start(t, f)
	got := map[string]float64{}
	deadline := time.Now().Add(within)
	for want := 1.0; ; { // while the second event is held up, and behind it
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, fam := range families {
			for _, m := range fam.GetMetric() {
				if fam.GetName() == "monolith_projection_lag_events" {
					got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		if v, ok := got["catalog"]; ok && v == want {
			if want == 0 {
				break
			}
			want = 0
			close(log.release)
		}
		if time.Now().After(deadline) {
			t.Fatalf("gauges: %v", got)
		}
	}
	if _, ok := got["plan"]; !ok {
		t.Errorf("gauges: %v", got)
	}
}

// Wherever snapshots fall, and however often a follower restarts, the hash is the log's.
func TestHashDoesNotDependOnRestarts(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		b := mem.New()
		defer b.Close()
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "restarts") {
			for range rapid.IntRange(0, 12).Draw(rt, "events") {
				name := rapid.SampledFrom([]string{"a", "b", "c<&>"}).Draw(rt, "model")
				if rapid.Bool().Draw(rt, "garbage") {
					_, err := b.Publish(t.Context(), string(events.Join("demo", "model", name)), nil, []byte("{"))
					if err != nil {
						rt.Fatal(err)
					}
					continue
				}
				add(t, b.Log(), "demo", name, rapid.IntRange(0, 99).Draw(rt, "n"))
			}
			_, seq, hash := once(t, b.Log(), dir, registry.Catalog, nil)
			_, want, err := registry.Replay(t.Context(), b.Log(), "catalog", "", seq)
			if err != nil || hash != want {
				rt.Fatalf("at %d: %s, replay says %s, %v", seq, hash, want, err)
			}
		}
	})
}

// Somebody who began to wait before the snapshot was restored hears of it.
func TestWaitForWhatTheSnapshotHolds(t *testing.T) {
	b := mem.New()
	defer b.Close()
	dir := t.TempDir()
	last := add(t, b.Log(), "demo", "m", 1)
	once(t, b.Log(), dir, registry.Catalog, nil)
	f := follow.New(b.Log(), registry.Catalog, follow.Options{SnapshotDir: dir})
	changed := f.Changed()
	waited := make(chan error, 1)
	go func() { waited <- f.Wait(t.Context(), last) }()
	start(t, f)
	wait.Closed(t, "changed", changed)
	select {
	case err := <-waited:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(within):
		t.Fatal("still waiting for an event that the snapshot holds")
	}
}

// hashOf is what a Follower's Hash must be at the state s.
func hashOf[S any](s S) (string, error) {
	b, err := follow.Canonical(s)
	return follow.HashBytes(b), err
}
