package react

import (
	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are shared by all reactors of one registerer.
type metrics struct {
	handled *prometheus.CounterVec   // reaction, result: done, parked or counted
	seconds *prometheus.HistogramVec // reaction
	retries prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		handled: prom.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_reactions_total", Help: "Events that a reaction has settled: done, parked, or counted in a summary of dead letters that had no room.",
		}, []string{"reaction", "result"})),
		seconds: prom.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monolith_reaction_seconds", Help: "Time of one attempt, append included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"reaction"})),
		retries: prom.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_reaction_retries_total", Help: "Attempts that followed a conflict or an outage.",
		})),
	}
}
