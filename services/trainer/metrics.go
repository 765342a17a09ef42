package trainer

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/prom"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/eval"
)

const (
	reportEvery = 10 * time.Second
	lossMemory  = 1000 // samples that weigh in the moving loss
	aucWindow   = 5000 // predictions, each made before its record was learnt
	aucLeast    = 100  // fewer tell nothing
)

// metrics counts what the trainer does, and measures how well it predicts what it is
// about to learn.
type metrics struct {
	samples, rejected, steps, retries, rewinds prometheus.Counter
	checkpoints, failures                      prometheus.Counter
	stepSeconds                                prometheus.Histogram
	requests                                   *prometheus.CounterVec // by road

	mu     sync.Mutex // guards all below
	total  uint64
	nSteps uint64
	loss   float64 // moving mean; NaN before the first
	scores []float64
	labels []bool
	at     int // next place in the window
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prom.Register(r, prometheus.NewCounter(prometheus.CounterOpts{Namespace: "monolith", Subsystem: "trainer", Name: name, Help: help}))
	}
	return &metrics{
		samples:     counter("samples_total", "records learnt"),
		rejected:    counter("rejected_total", "records parked in the dead letters"),
		steps:       counter("steps_total", "batches applied"),
		retries:     counter("shard_retries_total", "requests repeated because a shard gave no answer"),
		rewinds:     counter("rewinds_total", "times a partition was taken up again at the shards' offsets"),
		checkpoints: counter("checkpoints_total", "checkpoints saved"),
		failures:    counter("checkpoint_failures_total", "checkpoints failed"),
		requests: prom.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "monolith", Subsystem: "trainer", Name: "shard_requests_total",
			Help: "requests to shards, by the road they took: process, unix or tcp"}, []string{"road"})),
		stepSeconds: prom.Register(r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "monolith", Subsystem: "trainer", Name: "step_seconds", Help: "time of one batch from lookup to applied",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		})),
		loss: math.NaN(),
	}
}

// learnt notes an applied batch with the predictions made before it.
func (m *metrics) learnt(scores, labels []float32, loss float64, rejected int, took time.Duration) {
	m.steps.Inc()
	m.samples.Add(float64(len(labels)))
	m.rejected.Add(float64(rejected))
	m.stepSeconds.Observe(took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nSteps++
	m.total += uint64(len(labels))
	if n := float64(len(labels)); n > 0 {
		if math.IsNaN(m.loss) {
			m.loss = loss / n
		}
		w := 1 - math.Pow(1-1.0/lossMemory, n)
		m.loss += w * (loss/n - m.loss)
	}
	for i, s := range scores {
		if len(m.scores) < aucWindow {
			m.scores, m.labels = append(m.scores, float64(s)), append(m.labels, labels[i] > 0.5)
			continue
		}
		m.scores[m.at], m.labels[m.at] = float64(s), labels[i] > 0.5
		m.at = (m.at + 1) % aucWindow
	}
}

type figures struct {
	samples, steps uint64
	loss, auc      float64 // NaN: not known yet
}

func (m *metrics) figures() figures {
	m.mu.Lock()
	f := figures{m.total, m.nSteps, m.loss, math.NaN()}
	scores, labels := append([]float64(nil), m.scores...), append([]bool(nil), m.labels...)
	m.mu.Unlock()
	if len(scores) >= aucLeast {
		f.auc = eval.AUC(scores, labels)
	}
	return f
}

// report appends the figures as facts while something is learnt.
func (s *Server) report(ctx context.Context) error {
	t := time.NewTicker(s.reportEvery)
	defer t.Stop()
	var was figures
	last := time.Now()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		f := s.m.figures()
		if f.samples == was.samples {
			last = now
			continue
		}
		rate := float64(f.samples-was.samples) / now.Sub(last).Seconds()
		was, last = f, now
		var bodies []*training.Event
		for _, v := range []struct {
			name  string
			value float64
		}{{"samples_per_second", rate}, {"loss", f.loss}, {"auc", f.auc}} {
			if !math.IsNaN(v.value) {
				bodies = append(bodies, &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{
					Name: v.name, Value: v.value, Samples: f.samples, Step: f.steps,
				}}})
			}
		}
		if err := s.tell(ctx, bodies...); err != nil && ctx.Err() == nil {
			s.log.Warn("metrics were not reported", "err", err)
		}
	}
}
