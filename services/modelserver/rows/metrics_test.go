package rows

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/transfer"
)

// value is what a counter says.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

func TestMetricsMayBeShared(t *testing.T) {
	reg := prometheus.NewRegistry()
	a, b := NewMetrics(reg, "c"), NewMetrics(reg, "c")
	a.Dropped.Inc()
	b.Dropped.Inc()
	if got := value(t, a.Dropped); got != 2 {
		t.Errorf("two servers counted %v rows left out", got)
	}
	at := time.Unix(1000, 0)
	a.updated(at, at.Add(time.Second))
	a.updated(at.Add(-time.Second), at.Add(time.Second)) // older: the newest stays
	if got := a.newest.Load().published; !got.Equal(at) {
		t.Errorf("newest update published at %v", got)
	}
}

func TestFreshnessDropsTheOldest(t *testing.T) {
	b := mem.New()
	defer b.Close()
	var got []uint64
	heard := make(chan struct{}, 64)
	stop, err := b.Signals().Listen(t.Context(), "mpulse.b.applied.c", func(_ string, payload []byte) {
		var d transfer.DeltasApplied
		if err := protojson.Unmarshal(payload, &d); err != nil {
			t.Error(err)
		}
		for _, a := range d.GetApplied() {
			got = append(got, a.GetSyncSeq())
		}
		heard <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	f := NewFreshness("b", "c", b.Signals(), NewMetrics(nil, "c"), slog.New(slog.DiscardHandler))
	for seq := range uint64(maxPending + 3) {
		f.Add("m", "ps_0", Flush{seq + 1, time.Now()})
	}
	f.flush(t.Context())
	for range maxPending / maxSignal {
		<-heard
	}
	if len(got) != maxPending || got[0] != 4 || got[len(got)-1] != maxPending+3 {
		t.Errorf("%d signalled, from %d to %d", len(got), got[0], got[len(got)-1])
	}
	if n := value(t, f.metrics.signals.WithLabelValues("dropped")); n != 3 {
		t.Errorf("%v dropped, want 3", n)
	}
	if n := value(t, f.metrics.signals.WithLabelValues("sent")); n != maxPending {
		t.Errorf("%v sent, want %d", n, maxPending)
	}
}

// The age is that of the newest update, and 0 before the first.
func TestTheAgeOfTheNewestUpdate(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, "c")
	age := func() float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "monolith_modelserver_newest_update_age_seconds" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("there is no such metric")
		return 0
	}
	if got := age(); got != 0 {
		t.Errorf("before the first update: %v", got)
	}
	now := time.Now()
	if m.updated(now.Add(-time.Hour), now); age() < 3600 {
		t.Errorf("an hour behind the newest update: %v", age())
	}
}
