package otlp

import (
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// newCounters makes the counters of what became of telemetry, by signal.
func newCounters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monolith_otlp_items_total",
		Help: "Spans, log records and collections of metrics on their way to the OTLP collector: sent, failed there, or dropped since the queue was full"}, []string{"signal", "outcome"})
}

// tally counts one signal's, and says once when its collector begins or ceases to fail. What
// it says goes to standard error alone, never to the collector.
type tally struct {
	signal string
	counts *prometheus.CounterVec
	log    *slog.Logger
	fails  *atomic.Bool
}

func newTally(signal string, counts *prometheus.CounterVec, log *slog.Logger) tally {
	for _, outcome := range []string{"sent", "failed", "dropped"} {
		counts.WithLabelValues(signal, outcome)
	}
	return tally{signal, counts, log, new(atomic.Bool)}
}

func (t tally) dropped(n int) { t.counts.WithLabelValues(t.signal, "dropped").Add(float64(n)) }

func (t tally) sent(n int, err error) {
	outcome := "sent"
	if err != nil {
		outcome = "failed"
	}
	t.counts.WithLabelValues(t.signal, outcome).Add(float64(n))
	switch before := t.fails.Swap(err != nil); {
	case err != nil && !before:
		t.log.Warn("the OTLP collector does not take telemetry, which is lost meanwhile; nothing else is", "signal", t.signal, "err", err)
	case err == nil && before:
		t.log.Info("the OTLP collector takes telemetry again", "signal", t.signal)
	}
}
