package rows

import (
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the rows of one server. Registering twice with one registry is no error, so
// several servers of one process may share it and add up.
type Metrics struct {
	// Dropped counts rows left out because they are not finite.
	Dropped prometheus.Counter

	lookups *prometheus.CounterVec   // outcome
	hedges  *prometheus.CounterVec   // outcome
	deltas  *prometheus.CounterVec   // outcome
	visible prometheus.Histogram     // published -> served
	signals *prometheus.CounterVec   // outcome
	newest  atomic.Pointer[freshest] // behind the age gauge
}

// freshest is when the newest update that is served was published.
type freshest struct{ published time.Time }

// NewMetrics registers the metrics; the age of the newest update is that of the container.
func NewMetrics(reg prometheus.Registerer, container string) *Metrics {
	m := &Metrics{
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_lookup_total", Help: "Lookups sent to serving shards, by outcome: ok, or missing (another version is served), refused or failed and asked of another replica."}, []string{"outcome"}),
		hedges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_hedge_total", Help: "Lookups sent to another replica too, because the first took longer than 95 in 100 of the shard, by outcome: won, lost or failed. At most 5 in 100 are."}, []string{"outcome"}),
		deltas: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_delta_total", Help: "Deltas followed, by outcome: applied, contained in the export, fenced, forged (of an epoch in which nobody took the shard) or malformed."}, []string{"outcome"}),
		Dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_modelserver_rows_not_finite_total", Help: "Rows of exports and deltas left out because a value of theirs is not finite."}),
		visible: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "monolith_modelserver_delta_visible_seconds", Help: "From a delta's publishing to its being served.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 18)}),
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_applied_signal_total", Help: "Applied deltas by outcome of their signal: sent, dropped because the buffer was full, or failed."}, []string{"outcome"}),
	}
	m.lookups = prom.Register(reg, m.lookups)
	m.hedges = prom.Register(reg, m.hedges)
	m.deltas = prom.Register(reg, m.deltas)
	m.Dropped = prom.Register(reg, m.Dropped)
	m.visible = prom.Register(reg, m.visible)
	m.signals = prom.Register(reg, m.signals)
	m.age(reg, container)
	return m
}

// age registers the gauge of this container. Until the first update it reads 0.
func (m *Metrics) age(reg prometheus.Registerer, container string) {
	prom.Register(reg, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "monolith_modelserver_newest_update_age_seconds",
		Help:        "Age of the newest update that is served: now less the time it was published.",
		ConstLabels: prometheus.Labels{"container": container},
	}, func() float64 {
		f := m.newest.Load()
		if f == nil {
			return 0
		}
		return time.Since(f.published).Seconds()
	}))
}

// updated notes that something published then is served from now on.
func (m *Metrics) updated(published, now time.Time) {
	m.visible.Observe(max(0, now.Sub(published).Seconds()))
	for {
		old := m.newest.Load()
		if old != nil && !old.published.Before(published) {
			return
		}
		if m.newest.CompareAndSwap(old, &freshest{published}) {
			return
		}
	}
}
