// Package replay learns a stream of ratings as a job does, in one goroutine: the trainer's
// engine on the parameter servers' tables, without logs and network between them. What a job
// owes to its speed is a number here: how many ratings the model lags behind.
package replay

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// Learner is a model, its rows and its dense variables. It is not safe for concurrent use.
type Learner struct {
	spec   *model.ModelSpec
	engine *runtime.Engine
	batch  *runtime.Batch
	lane   *runtime.Lane
	tables map[string]*table.Table
	dense  [][]float32
	slots  [][]float32
	optim  optim.Optimizer
	steps  int64
	w      *runtime.Weights
	labels []*model.Label // by task
	sample runtime.Sample
	scores [][]float32
}

// New returns a learner that has learnt nothing, for batches of at most so many ratings. The
// spec reads fields that records have; its first task is the one that Score answers.
func New(spec *model.ModelSpec, samples int) (*Learner, error) {
	e, err := runtime.New(spec, 1, samples)
	if err != nil {
		return nil, err
	}
	if len(spec.GetFloats()) > 0 {
		return nil, fmt.Errorf("model %s has floats: records of ratings have ids alone", spec.GetName())
	}
	l := &Learner{spec: spec, engine: e, batch: e.NewBatch(), lane: &runtime.Lane{}, tables: map[string]*table.Table{}, optim: modelspec.DenseOptimizer(spec)}
	for _, t := range spec.GetTables() {
		if l.tables[t.GetName()], err = modelspec.NewTable(spec, t.GetName()); err != nil {
			return nil, err
		}
	}
	for _, v := range e.Variables() {
		slots := make([]float32, l.optim.SlotSize(v.Size))
		l.optim.InitSlots(slots)
		l.dense, l.slots = append(l.dense, modelspec.InitVariable(spec, v)), append(l.slots, slots)
	}
	for _, f := range spec.GetFeatures() {
		if _, known := (rating.Record{}).IDs(Field(f)); !known && len(f.GetCross()) == 0 {
			return nil, fmt.Errorf("feature %q reads the field %q, which records of ratings do not have", f.GetName(), Field(f))
		}
	}
	tasks := spec.GetTasks()
	if len(tasks) == 0 {
		tasks = []*model.Task{{}}
	}
	for _, t := range tasks {
		label := t.GetLabel()
		if label == nil {
			label = spec.GetLabel()
		}
		if label.GetField() != "rating" {
			return nil, fmt.Errorf("task %q learns the field %q: records of ratings have rating", t.GetName(), label.GetField())
		}
		l.labels = append(l.labels, label)
	}
	l.sample = runtime.Sample{IDs: make([][]int64, len(spec.GetFeatures())), Labels: make([]float32, len(tasks))}
	return l, l.weigh()
}

// Field is where a record has a feature.
func Field(f *model.Feature) string {
	if f.GetField() != "" {
		return f.GetField()
	}
	return f.GetName()
}

// weigh makes the dense variables, as they are now, those of the next batch.
func (l *Learner) weigh() (err error) {
	values := make([][]float32, len(l.dense))
	for i, v := range l.dense {
		values[i] = slices.Clone(v)
	}
	l.w, err = l.engine.Weights(uint64(l.steps), values)
	return err
}

// read fills the batch and looks its rows up.
func (l *Learner) read(recs []rating.Record) error {
	l.batch.Reset()
	for _, r := range recs {
		for i, f := range l.spec.GetFeatures() {
			l.sample.IDs[i] = l.sample.IDs[i][:0]
			if len(f.GetCross()) > 0 {
				continue
			}
			ids, _ := r.IDs(Field(f))
			for _, id := range ids {
				l.sample.IDs[i] = append(l.sample.IDs[i], modelspec.FID(f.GetSlot(), id))
			}
		}
		for i, label := range l.labels {
			y := float32(r.Rating.Rating)
			if !label.GetRaw() {
				y = 0
				if r.Rating.Rating >= float64(label.GetThreshold()) {
					y = 1
				}
			}
			l.sample.Labels[i] = y
		}
		if err := l.batch.Add(l.sample); err != nil {
			return err
		}
	}
	if err := l.batch.Seal(); err != nil {
		return err
	}
	for _, b := range l.batch.Blocks(0) {
		if _, err := l.tables[b.Table].Lookup(b.IDs, b.Rows, nil); err != nil {
			return err
		}
	}
	return nil
}

// Score returns the chances that each is a liked one, valid until the next call.
func (l *Learner) Score(recs ...rating.Record) ([]float32, error) {
	if err := l.read(recs); err != nil {
		return nil, err
	}
	var err error
	for i := range l.scores {
		l.scores[i] = l.scores[i][:0]
	}
	if l.scores, err = l.engine.Score(l.lane, l.batch, l.w, l.scores); err != nil {
		return nil, err
	}
	return l.scores[0], nil
}

// Learn takes ratings in, as one step, and returns what was predicted before it; the scores are valid until the
// next call.
func (l *Learner) Learn(recs ...rating.Record) (runtime.Result, error) {
	if err := l.read(recs); err != nil {
		return runtime.Result{}, err
	}
	res, err := l.engine.Train(l.lane, l.batch, l.w)
	if err != nil {
		return runtime.Result{}, err
	}
	at := table.Rates{GlobalStep: l.steps}
	for _, b := range l.batch.Blocks(0) {
		if err := l.tables[b.Table].OptimizeAt(b.IDs, b.Grads, uint32(recs[0].Timestamp), at); err != nil {
			return runtime.Result{}, err
		}
	}
	for i, g := range l.batch.Dense {
		l.optim.Update(l.dense[i], l.slots[i], g, optim.Step{GlobalStep: l.steps})
	}
	l.steps++
	return res, l.weigh()
}

// Begin gives different new ids within a slot their rows before any rating has: gradients of zero make them, with their
// first values. It returns the rows, one behind the other.
func (l *Learner) Begin(name string, slot uint32, ids []int64) ([]float32, error) {
	fids := make([]int64, len(ids))
	for i, id := range ids {
		fids[i] = modelspec.FID(slot, id)
	}
	t := l.tables[name]
	rows := make([]float32, len(ids)*t.Dim())
	if err := t.OptimizeAt(fids, rows, 0, table.Rates{}); err != nil {
		return nil, err
	}
	_, err := t.Lookup(fids, rows, nil)
	return rows, err
}

// Variables are the dense ones, in the model's order, with their values now.
func (l *Learner) Variables() (of []modelspec.Variable, values [][]float32) {
	return l.engine.Variables(), l.w.Values
}
