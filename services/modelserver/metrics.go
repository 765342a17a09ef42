package modelserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/process/prom"
)

// metrics of one server. Registering twice with one registry is no error, so several
// servers of one process may share it and add up.
type metrics struct {
	predicts *prometheus.CounterVec // code
	rows     prometheus.Counter     // predicted
	joined   prometheus.Counter     // requests computed with others
	refused  prometheus.Counter     // calls whose deadline could not be met
	seconds  prometheus.Histogram   // per Predict
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		predicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_predict_total", Help: "Predict requests by gRPC code."}, []string{"code"}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_modelserver_predict_rows_total", Help: "Rows predicted."}),
		joined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_modelserver_joined_total", Help: "Requests that were computed with others, as they came while enough were computed already."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_modelserver_refused_total", Help: "Calls refused at once under overload, as their deadline could not be met."}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "monolith_modelserver_predict_seconds", Help: "Time of one Predict inside the server.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)}),
	}
	m.predicts = prom.Register(reg, m.predicts)
	m.rows = prom.Register(reg, m.rows)
	m.joined = prom.Register(reg, m.joined)
	m.refused = prom.Register(reg, m.refused)
	m.seconds = prom.Register(reg, m.seconds)
	return m
}
