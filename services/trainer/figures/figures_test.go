package figures

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// labelled is a batch of one task.
type labelled []float32

func (l labelled) Len() int              { return len(l) }
func (l labelled) Labels(int) []float32  { return l }
func (l labelled) Weights(int) []float32 { return nil }

// learn notes a step of one task.
func (m *Meter) learn(scores, labels []float32, loss float64) {
	task := []modelspec.Task{{Name: "score", Label: &model.Label{Field: "rating", Threshold: 1}}}
	m.Learnt(task, labelled(labels), runtime.Result{Loss: loss, Losses: []float64{loss}, Scores: [][]float32{scores}})
}

// The window holds the newest predictions, and says nothing of a few.
func TestTheWindowOfPredictions(t *testing.T) {
	m := New()
	var scores []float64
	var labels []bool
	feed := func(n int) {
		for i := range n {
			score, label := float32((i*7)%97)/97, float32(i%2)
			m.learn([]float32{score}, []float32{label}, 0.5)
			scores, labels = append(scores, float64(score)), append(labels, label > 0.5)
		}
	}
	check := func(what string) {
		t.Helper()
		from := max(0, len(scores)-aucWindow)
		if got, want := m.Figures().auc, eval.AUC(scores[from:], labels[from:]); got != want {
			t.Errorf("%s: auc %v, want %v", what, got, want)
		}
		if w := m.tasks[0]; len(w.scores) != len(scores)-from || len(w.labels) != len(w.scores) {
			t.Errorf("%s: %d predictions are kept", what, len(w.scores))
		}
	}
	if feed(aucLeast - 1); !math.IsNaN(m.Figures().auc) {
		t.Errorf("auc of %d predictions: %v", aucLeast-1, m.Figures().auc)
	}
	feed(1)
	check("as few as may be")
	feed(aucWindow - aucLeast)
	check("a full window")
	for i := range 11 { // the oldest go
		m.learn([]float32{float32(i) / 1000}, []float32{1}, 0.5)
		scores, labels = append(scores, float64(float32(i)/1000)), append(labels, true)
	}
	check("more than a window")
	feed(aucWindow)
	check("another window")
	f := m.Figures()
	if named := f.Named(); len(named) != 2 { // a single task's figures are the model's
		t.Errorf("of one task: %+v", named)
	}
	if f.Samples != uint64(len(scores)) || f.Steps != uint64(len(scores)) || math.Abs(f.loss-0.5) > 1e-9 {
		t.Errorf("%+v", f)
	}
}

// twoTasks is a batch of which the first task learns the samples that were seen.
type twoTasks struct{ like, stars, seen []float32 }

func (b twoTasks) Len() int { return len(b.stars) }

func (b twoTasks) Labels(task int) []float32 { return [][]float32{b.like, b.stars}[task] }

func (b twoTasks) Weights(task int) []float32 { return [][]float32{b.seen, nil}[task] }

// Each of several tasks has figures of its own, of the samples that it learns from.
func TestFiguresByTask(t *testing.T) {
	m := New()
	b := twoTasks{stars: make([]float32, 200), like: make([]float32, 200), seen: make([]float32, 200)}
	for i := range b.stars {
		b.stars[i], b.seen[i] = float32(i%6), float32(min(i%4, 1))
		if b.stars[i] >= 3 {
			b.like[i] = 1
		}
	}
	tasks := []modelspec.Task{{Name: "like", Label: &model.Label{Field: "stars", Threshold: 3}}, {Name: "stars", Label: &model.Label{Field: "stars", Raw: true}}}
	m.Learnt(tasks, b, runtime.Result{Loss: 300, Losses: []float64{100, 200}, Scores: [][]float32{b.like, b.like}})
	f := m.Figures()
	named := map[string]float64{}
	for _, v := range f.Named() {
		named[v.Name] = v.Value
	}
	if f.auc != 1 || named["auc/like"] != 1 || named["loss/like"] != 0.5 || named["loss/stars"] != 1 || named["loss"] != 1.5 || !math.IsNaN(named["auc/stars"]) {
		t.Errorf("%+v", named)
	}
	if n := len(m.tasks[0].scores); n != 150 {
		t.Errorf("%d of 150 samples with a weight are counted", n)
	}
}

// What layers add to the loss has figures of its own.
func TestAddedLossesAreFigures(t *testing.T) {
	m := New()
	b := labelled{0, 1}
	res := runtime.Result{Loss: 8, Losses: []float64{2}, Scores: [][]float32{{0.5, 0.5}}, Added: []runtime.Added{{Name: "deep/kernel", Loss: 5}, {Name: "deep/activity", Loss: 1}}}
	m.Learnt([]modelspec.Task{{Name: "score", Label: &model.Label{}}}, b, res)
	f := m.Figures()
	named := map[string]float64{}
	for _, v := range f.Named() {
		named[v.Name] = v.Value
	}
	if named["loss"] != 4 || named["loss/deep/kernel"] != 2.5 || named["loss/deep/activity"] != 0.5 || len(named) != 4 {
		t.Errorf("%+v", named)
	}
}

// What rules have dropped is told by rule and in all, where a model has rules.
func TestDroppedSamplesAreFigures(t *testing.T) {
	m := New()
	if f := m.Figures(); len(f.Named()) != 2 {
		t.Errorf("without rules: %+v", f.Named())
	}
	for rule, n := range map[string]int{"a": 3, "b": 0} {
		m.Dropped(rule, n)
		m.Dropped(rule, n)
	}
	f := m.Figures()
	named := map[string]float64{}
	for _, v := range f.Named() {
		named[v.Name] = v.Value
	}
	if none, ok := named["dropped/b"]; f.Dropped != 6 || named["dropped"] != 6 || named["dropped/a"] != 6 || none != 0 || !ok {
		t.Errorf("%+v", named)
	}
}

func TestTheMovingLoss(t *testing.T) {
	m := New()
	if !math.IsNaN(m.Figures().loss) {
		t.Errorf("before the first: %v", m.Figures().loss)
	}
	m.learn(nil, nil, 0)
	if f := m.Figures(); !math.IsNaN(f.loss) || f.Steps != 1 || f.Samples != 0 {
		t.Errorf("after nothing: %+v", f)
	}
	m.learn([]float32{0.5, 0.5}, []float32{1, 0}, 8) // 4 each
	if f := m.Figures(); f.loss != 4 || f.Samples != 2 {
		t.Errorf("the first: %+v", f)
	}
	was := 4.0
	m.learn([]float32{0.5}, []float32{1}, 1004)
	if want := was + (1004-was)/lossMemory; math.Abs(m.Figures().loss-want) > 1e-9 {
		t.Errorf("one of a thousand: %v, want %v", m.Figures().loss, want)
	}
	was = m.Figures().loss
	if m.learn(nil, nil, 0); m.Figures().loss != was {
		t.Errorf("a batch of nothing: %v, want %v", m.Figures().loss, was)
	}
}
