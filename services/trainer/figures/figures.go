// Package figures measures how well a trainer predicts what it is about to learn.
package figures

import (
	"math"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

const (
	lossMemory = 1000 // samples that weigh in the moving loss
	aucWindow  = 5000 // predictions, each made before its record was learnt
	aucLeast   = 100  // fewer tell nothing
)

// Meter measures how well a trainer predicts what it is about to learn.
type Meter struct {
	mu     sync.Mutex // guards all below
	total  uint64
	nSteps uint64
	loss   float64 // moving mean; NaN before the first
	tasks  []taskWindow
	added  []added
	drops  []drops
}

// added is a loss of a layer's.
type added struct {
	name string
	loss float64 // moving mean
}

// drops are how many samples a rule has dropped.
type drops struct {
	rule string
	n    uint64
}

// New returns a meter that has seen nothing.
func New() *Meter { return &Meter{loss: math.NaN()} }

// taskWindow is how well a task was predicted of late.
type taskWindow struct {
	name   string
	loss   float64 // moving mean, of the task by itself; NaN before the first
	ranked bool    // its labels are 0 and 1
	scores []float64
	labels []bool
	at     int // next place in the window
}

// Learnable is what tasks learn from, as a runtime.Batch has it.
type Learnable interface {
	Len() int
	Labels(task int) []float32
	Weights(task int) []float32
}

// Learnt notes a batch with the predictions made before it was applied.
func (m *Meter) Learnt(tasks []modelspec.Task, b Learnable, res runtime.Result) {
	n := float64(b.Len())
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
	for i, a := range res.Added {
		if i == len(m.added) {
			m.added = append(m.added, added{a.Name, math.NaN()})
		}
		moving(&m.added[i].loss, a.Loss, n)
	}
	for i := range m.tasks {
		moving(&m.tasks[i].loss, res.Losses[i], n)
		m.tasks[i].predicted(res.Scores[i], b.Labels(i), b.Weights(i))
	}
}

// Dropped notes that a sample rule has dropped n samples of a batch.
func (m *Meter) Dropped(rule string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.drops, func(d drops) bool { return d.rule == rule })
	if i < 0 {
		i, m.drops = len(m.drops), append(m.drops, drops{rule: rule})
	}
	m.drops[i].n += uint64(n)
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

// Figures are what a Meter has measured so far.
type Figures struct {
	Samples, Steps uint64
	Dropped        uint64  // samples, by rules
	loss, auc      float64 // NaN: not known yet; auc is the first task's
	tasks          []taskFigures
	added          []added
	drops          []drops
}

// taskFigures are a task's own.
type taskFigures struct {
	name      string
	loss, auc float64
}

// Figures returns them as they are now.
func (m *Meter) Figures() Figures {
	m.mu.Lock()
	f := Figures{Samples: m.total, Steps: m.nSteps, loss: m.loss, auc: math.NaN()}
	f.drops, f.added = slices.Clone(m.drops), slices.Clone(m.added)
	windows := slices.Clone(m.tasks)
	for i := range windows {
		w := &windows[i]
		w.scores, w.labels = slices.Clone(w.scores), slices.Clone(w.labels)
	}
	m.mu.Unlock()
	for _, d := range f.drops {
		f.Dropped += d.n
	}
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

// Figure is one by its name.
type Figure struct {
	Name  string
	Value float64
}

// Named are the figures as facts call them. A task's own have its name where there are several; what layers add to
// the loss and what rules have dropped is there where the model has any.
func (f *Figures) Named() []Figure {
	all := []Figure{{"loss", f.loss}, {"auc", f.auc}}
	if len(f.tasks) > 1 {
		for _, t := range f.tasks {
			all = append(all, Figure{"loss/" + t.name, t.loss}, Figure{"auc/" + t.name, t.auc})
		}
	}
	for _, a := range f.added {
		all = append(all, Figure{"loss/" + a.name, a.loss})
	}
	if len(f.drops) > 0 {
		all = append(all, Figure{"dropped", float64(f.Dropped)})
	}
	for _, d := range f.drops {
		all = append(all, Figure{"dropped/" + d.rule, float64(d.n)})
	}
	return all
}
