package ps

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/rowwire"
)

// Refused and repeated applies count too, each under its outcome, and all are timed.
func TestFiguresByOutcome(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg, Config{Job: job, Shard: 1})
	if err != nil {
		t.Fatal(err)
	}
	m.apply(time.Millisecond, 3, &rowwire.ApplyResponse{Applied: true}, nil)
	m.apply(time.Millisecond, 3, &rowwire.ApplyResponse{}, nil)
	m.apply(2*time.Millisecond, 3, nil, rowwire.Errorf(rowwire.Gap, "too far"))
	m.lookup(time.Millisecond, 7, nil)
	m.lookup(time.Millisecond, 0, rowwire.Errorf(rowwire.NotFound, "no such table"))

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
	for name, want := range map[string]float64{
		"monolith_ps_applies_total ok": 1, "monolith_ps_applies_total known": 1, "monolith_ps_applies_total gap": 1, "monolith_ps_apply_seconds": 3,
		"monolith_ps_lookups_total ok": 1, "monolith_ps_lookup_rows_total": 7, "monolith_ps_lookup_seconds": 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
		}
	}
}
