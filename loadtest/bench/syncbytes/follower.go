package syncbytes

import (
	"fmt"
	"math"
	"strings"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/loadtest/bench/psrole"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// follower is what a model server holds of the job: the rows as its tables keep them, and the variables of the tower.
type follower struct {
	rows   *rows.Shard
	engine *runtime.Engine
	input  *input.Decoder
	batch  *runtime.Batch
	lane   *runtime.Lane
	dense  [][]float32
	places map[string]int // of a variable in dense
	w      *runtime.Weights
	scores [][]float32
}

func newFollower(spec *model.ModelSpec, samples int) (*follower, error) {
	e, err := runtime.New(spec, 1, samples)
	if err != nil {
		return nil, err
	}
	f := &follower{rows: &rows.Shard{Model: psrole.Job, Job: psrole.Job, Shards: 1}, engine: e, input: input.New(spec, input.Options{Serving: true}), batch: e.NewBatch(), lane: &runtime.Lane{}, places: map[string]int{}}
	for _, t := range spec.GetTables() {
		if err := f.rows.Declare(spec, t.GetName(), int(t.GetDim())); err != nil {
			return nil, err
		}
	}
	for i, v := range e.Variables() {
		f.places[v.Name] = i
		f.dense = append(f.dense, make([]float32, v.Size))
	}
	return f, f.rows.Whole()
}

// apply takes a delta as a model server does.
func (f *follower) apply(subject string, d *delta.Delta, seq uint64) error {
	if !strings.HasSuffix(subject, ".dense") {
		return f.rows.Apply(d, seq, 1)
	}
	for _, v := range d.GetDense() {
		values := f.dense[f.places[v.GetName()]]
		at, n := int(v.GetAt()), len(v.GetValues())/4
		compress.FP32{}.Decode(values[at:at+n], v.GetValues())
	}
	if len(d.GetDense()) > 0 {
		f.w = nil
	}
	return nil
}

// score is the chance of the first task for each record.
func (f *follower) score(records []kafka.Record) ([]float32, error) {
	f.batch.Reset()
	for _, r := range records {
		if err := f.input.Into(f.batch, r.Value, input.Position{Offset: r.Offset}); err != nil {
			return nil, err
		}
	}
	if err := f.batch.Seal(); err != nil {
		return nil, err
	}
	for _, b := range f.batch.Blocks(0) {
		found, err := f.rows.Find([]rowwire.TableIDs{{Table: b.Table, IDs: b.IDs}})
		if err != nil {
			return nil, err
		}
		copy(b.Rows, found[0])
	}
	var err error
	if f.w == nil {
		if f.w, err = f.engine.Weights(0, f.dense); err != nil {
			return nil, err
		}
	}
	for i := range f.scores {
		f.scores[i] = f.scores[i][:0]
	}
	if f.scores, err = f.engine.Score(f.lane, f.batch, f.w, f.scores); err != nil {
		return nil, err
	}
	for _, x := range f.scores[0] {
		if math.IsNaN(float64(x)) {
			return nil, fmt.Errorf("a score is no number")
		}
	}
	return f.scores[0], nil
}
