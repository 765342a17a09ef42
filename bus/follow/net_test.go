package follow_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// An event whose fold panics is skipped, counted and told of once, by followers and
// replays alike, and what comes behind it is folded.
func TestAFoldThatPanicsEndsNobody(t *testing.T) {
	b := mem.New()
	defer b.Close()
	var bad uint64
	for i := range 3 {
		seq := add(t, b.Log(), "demo", "m", i)
		if i == 1 {
			bad = seq
		}
	}
	var folds atomic.Int64
	v := tallies(&folds, nil)
	v.Fold = func(s tally, r events.Recorded) tally {
		if r.Seq == bad {
			panic("out of range")
		}
		s.N++
		return s
	}
	v.Failed = func(s tally, r events.Recorded) tally {
		if r.Seq != bad {
			t.Errorf("event %d failed, want %d", r.Seq, bad)
		}
		s.N += 100
		return s
	}
	metrics := prometheus.NewRegistry()
	said := &lines{}
	f := follow.New(b.Log(), v, follow.Options{Metrics: metrics, Log: slog.New(said)})
	start(t, f)
	wait.Closed(t, "ready", f.Ready())
	f.Read(func(s tally) {
		if s.N != 102 {
			t.Errorf("the follower has %d, want 102", s.N)
		}
	})
	if s, err := follow.Replay(t.Context(), b.Log(), v, follow.End); err != nil || s.N != 102 {
		t.Errorf("a replay has %d, want 102, %v", s.N, err)
	}
	want := `# HELP monolith_projection_failed_events_total Events that were skipped because their fold panicked, each of which is a defect.
# TYPE monolith_projection_failed_events_total counter
monolith_projection_failed_events_total{view="tally"} 1
`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "monolith_projection_failed_events_total"); err != nil {
		t.Error(err)
	}
	if n := said.n.Load(); n != 1 {
		t.Errorf("%d errors were logged, want 1", n)
	}
}

// A registry that has something else under the counter's name costs the counter, and that
// is told; one that takes it, or has it from another follower, is no news.
func TestARefusedCounterIsTold(t *testing.T) {
	b := mem.New()
	defer b.Close()
	const name = "monolith_projection_failed_events_total"
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Another one."}))
	var folds atomic.Int64
	for _, tc := range []struct {
		name    string
		metrics prometheus.Registerer
		told    bool
	}{{"free", prometheus.NewRegistry(), false}, {"taken", taken, true}, {"none", nil, false}} {
		var said bytes.Buffer
		for range 2 {
			follow.New(b.Log(), tallies(&folds, nil), follow.Options{Metrics: tc.metrics, Log: slog.New(slog.NewTextHandler(&said, nil))})
		}
		if got := strings.Contains(said.String(), "is not exported"); got != tc.told {
			t.Errorf("%s: the log says %q", tc.name, said.String())
		}
	}
}

// lines counts what is logged as an error.
type lines struct{ n atomic.Int64 }

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (l *lines) Handle(context.Context, slog.Record) error        { l.n.Add(1); return nil }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *lines) WithGroup(string) slog.Handler                    { return l }
