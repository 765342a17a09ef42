package react

import (
	"errors"

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
		handled: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_reactions_total", Help: "Events that a reaction has settled: done, parked, or counted in a summary of dead letters that had no room.",
		}, []string{"reaction", "result"})),
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monolith_reaction_seconds", Help: "Time of one attempt, append included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"reaction"})),
		retries: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_reaction_retries_total", Help: "Attempts that followed a conflict or an outage.",
		})),
	}
}

// register returns c, or the collector of that name that is registered already.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	var again prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &again) {
		if old, ok := again.ExistingCollector.(C); ok {
			return old
		}
	} else if err != nil {
		panic(err) // two metrics of ours under one name
	}
	return c
}
