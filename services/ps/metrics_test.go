package ps

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// Refused and repeated applies count too, each under its outcome, and all are timed.
func TestFiguresByOutcome(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(reg, Config{Job: job, Shard: 1})
	m.apply(time.Millisecond, 3, false, &rowwire.ApplyResponse{Applied: true}, nil)
	m.apply(time.Millisecond, 3, false, &rowwire.ApplyResponse{}, nil)
	m.apply(time.Millisecond, 3, true, &rowwire.ApplyResponse{}, nil)
	m.apply(2*time.Millisecond, 3, false, nil, rowwire.Errorf(rowwire.Gap, "too far"))
	m.lookup(time.Millisecond, 7, nil)
	m.fetch(time.Millisecond, nil)
	m.fetch(time.Millisecond, rowwire.Errorf(rowwire.NotFound, "no such variable"))
	m.lookup(time.Millisecond, 0, rowwire.Errorf(rowwire.NotFound, "no such table"))
	m.flush(time.Millisecond, nil)
	m.flush(time.Millisecond, nil)
	m.flush(time.Millisecond, bus.ErrUnavailable)

	got := figures(t, reg)
	for name, want := range map[string]float64{
		"monolith_ps_applies_total ok": 1, "monolith_ps_applies_total known": 1, "monolith_ps_applies_total staged": 1, "monolith_ps_applies_total gap": 1, "monolith_ps_apply_seconds": 4,
		"monolith_ps_lookups_total ok": 1, "monolith_ps_lookup_rows_total": 7, "monolith_ps_lookup_seconds": 2,
		"monolith_ps_dense_total ok": 1, "monolith_ps_dense_total not_found": 1, "monolith_ps_dense_seconds": 2,
		"monolith_ps_flushes_total ok": 2, "monolith_ps_flushes_total failed": 1, "monolith_ps_flush_seconds": 3,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
		}
	}
}

// Fetches of dense variables, which every trainer sends all the time, are no lookups.
func TestDenseFetchesAreCountedApart(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	for range 3 {
		if _, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job}); err != nil {
			t.Fatal(err)
		}
	}
	p.user(1)
	s := must[shardcmd.StatsResponse](w, 0, shardcmd.Stats, struct{}{})
	if s.Lookup.Count != 1 || s.Lookup.Rows != 1 || s.Dense.Count != 3 || !(s.Dense.AvgLatencyUS > 0) {
		t.Errorf("lookups %+v, fetches of variables %+v", s.Lookup, s.Dense)
	}
}

// figures are counts by name and outcome.
func figures(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			name := f.GetName()
			for _, l := range x.GetLabel() {
				if l.GetName() == "outcome" {
					name += " " + l.GetValue()
				}
			}
			if h := x.GetHistogram(); h != nil {
				got[name] = float64(h.GetSampleCount())
				continue
			}
			got[name] = x.GetCounter().GetValue()
		}
	}
	return got
}

// What a shard is told again it knows, and a part of a range waits for its others.
func TestAppliesByWhatBecameOfThem(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	whole := pstest.Teach(0, 0, 0, 10, 1, 1)
	whole.Parts = 1
	p.teach(whole)
	p.teach(whole)
	half := pstest.Teach(0, 0, 10, 20, 1, 1)
	half.Parts = 2
	p.teach(half)
	reg := prometheus.NewRegistry()
	reg.MustRegister(p.m.applies)
	got := figures(t, reg)
	for _, outcome := range []string{"ok", "known", "staged"} {
		if n := got["monolith_ps_applies_total "+outcome]; n != 1 {
			t.Errorf("%v applies are %s, want one; all: %v", n, outcome, got)
		}
	}
}
