package trainer

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/prom"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
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
	tasks  []taskWindow
}

// taskWindow is how well a task was predicted of late.
type taskWindow struct {
	name   string
	loss   float64 // moving mean, of the task by itself; NaN before the first
	ranked bool    // its labels are 0 and 1
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

// learnable is what tasks learn from, as a runtime.Batch has it.
type learnable interface {
	Len() int
	Labels(task int) []float32
	Weights(task int) []float32
}

// learnt notes an applied batch with the predictions made before it.
func (m *metrics) learnt(tasks []modelspec.Task, b learnable, res runtime.Result, rejected int, took time.Duration) {
	n := float64(b.Len())
	m.steps.Inc()
	m.samples.Add(n)
	m.rejected.Add(float64(rejected))
	m.stepSeconds.Observe(took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nSteps++
	m.total += uint64(n)
	if n == 0 {
		return
	}
	moving(&m.loss, res.Loss, n)
	if m.tasks == nil {
		for _, t := range tasks {
			m.tasks = append(m.tasks, taskWindow{name: t.Name, loss: math.NaN(), ranked: !t.Label.GetRaw() && t.Label != nil})
		}
	}
	for i := range m.tasks {
		moving(&m.tasks[i].loss, res.Losses[i], n)
		m.tasks[i].predicted(res.Scores[i], b.Labels(i), b.Weights(i))
	}
}

// moving takes the sum of n samples into a moving mean.
func moving(mean *float64, sum, n float64) {
	if math.IsNaN(*mean) {
		*mean = sum / n
	}
	w := 1 - math.Pow(1-1.0/lossMemory, n)
	*mean += w * (sum/n - *mean)
}

// predicted notes the samples that the task learns from.
func (t *taskWindow) predicted(scores, labels, weights []float32) {
	for i, s := range scores {
		if !t.ranked || weights != nil && weights[i] == 0 {
			continue
		}
		if len(t.scores) < aucWindow {
			t.scores, t.labels = append(t.scores, float64(s)), append(t.labels, labels[i] > 0.5)
			continue
		}
		t.scores[t.at], t.labels[t.at] = float64(s), labels[i] > 0.5
		t.at = (t.at + 1) % aucWindow
	}
}

type figures struct {
	samples, steps uint64
	loss, auc      float64 // NaN: not known yet; auc is the first task's
	tasks          []taskFigures
}

// taskFigures are a task's own.
type taskFigures struct {
	name      string
	loss, auc float64
}

func (m *metrics) figures() figures {
	m.mu.Lock()
	f := figures{samples: m.total, steps: m.nSteps, loss: m.loss, auc: math.NaN()}
	windows := slices.Clone(m.tasks)
	for i := range windows {
		w := &windows[i]
		w.scores, w.labels = slices.Clone(w.scores), slices.Clone(w.labels)
	}
	m.mu.Unlock()
	for i, w := range windows {
		t := taskFigures{w.name, w.loss, math.NaN()}
		if len(w.scores) >= aucLeast {
			t.auc = eval.AUC(w.scores, w.labels)
		}
		if i == 0 {
			f.auc = t.auc
		}
		f.tasks = append(f.tasks, t)
	}
	return f
}

// figure is one by its name.
type figure struct {
	name  string
	value float64
}

// named are the figures as facts call them. A task's own have its name where there are several.
func (f *figures) named() []figure {
	all := []figure{{"loss", f.loss}, {"auc", f.auc}}
	if len(f.tasks) > 1 {
		for _, t := range f.tasks {
			all = append(all, figure{"loss/" + t.name, t.loss}, figure{"auc/" + t.name, t.auc})
		}
	}
	return all
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
		for _, v := range append([]figure{{"samples_per_second", rate}}, f.named()...) {
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
