package trainer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/services/trainer/figures"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// metrics counts what the trainer does, and meters how well it predicts what it learns.
type metrics struct {
	samples, rejected, steps, rewinds prometheus.Counter
	checkpoints, failures             prometheus.Counter
	dropped                           *prometheus.CounterVec
	stepSeconds                       prometheus.Histogram
	figures                           *prometheus.GaugeVec // by name, as facts call them
	lag                               *prometheus.GaugeVec // by job and partition
	paused                            prometheus.Gauge

	meter *figures.Meter
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prom.Register(r, prometheus.NewCounter(prometheus.CounterOpts{Namespace: "monolith", Subsystem: "trainer", Name: name, Help: help}))
	}
	return &metrics{
		samples:     counter("samples_total", "records learnt"),
		rejected:    counter("rejected_total", "records parked in the dead letters"),
		steps:       counter("steps_total", "batches applied"),
		rewinds:     counter("rewinds_total", "times a partition was taken up again at the shards' offsets"),
		checkpoints: counter("checkpoints_total", "checkpoints saved"),
		failures:    counter("checkpoint_failures_total", "checkpoints failed"),
		dropped: prom.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "monolith", Subsystem: "trainer", Name: "dropped_total", Help: "samples that a sample rule has dropped",
		}, []string{"rule"})),
		stepSeconds: prom.Register(r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "monolith", Subsystem: "trainer", Name: "step_seconds", Help: "time of one batch from lookup to applied",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		})),
		figures: prom.Register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "monolith", Subsystem: "trainer", Name: "figure",
			Help: "newest figures that the trainer reports as facts: loss and auc of predictions made before their records were learnt, samples_per_second",
		}, []string{"name"})),
		lag: prom.Register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "monolith", Subsystem: "trainer", Name: "lag_records",
			Help: "records of a partition that are still to be learnt, without those that were parked, have expired or were aborted",
		}, []string{"job", "partition"})),
		paused: prom.Register(r, prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "monolith", Subsystem: "trainer", Name: "paused", Help: "1 while the job is paused and takes no records",
		})),
		meter: figures.New(),
	}
}

// learnt notes an applied batch with the predictions made before it.
func (m *metrics) learnt(st *step.Step, res runtime.Result, took time.Duration) {
	m.steps.Inc()
	m.samples.Add(float64(st.Samples()))
	m.rejected.Add(float64(len(st.Bad)))
	m.stepSeconds.Observe(took.Seconds())
	m.meter.Learnt(st.Engine.Tasks(), st.Batch, res)
	for i, r := range st.Engine.Spec().GetSampleRules() {
		m.dropped.WithLabelValues(r.GetName()).Add(float64(st.Dropped[i]))
		m.meter.Dropped(r.GetName(), st.Dropped[i])
	}
}
