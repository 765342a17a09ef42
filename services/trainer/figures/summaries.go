package figures

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/model/tfevents"
)

// Summaries is the event file into which this trainer's figures go, for TensorBoard. It is a picture of
// the facts and nobody's state: a start begins another file, and what cannot be written is logged.
type Summaries struct {
	Dir     string                                // each trainer has a folder of its own below it
	Trainer string                                // its name
	Step    func(context.Context) (uint64, error) // that every shard has
	Left    func() int64                          // records that are still to be learnt
	Log     *slog.Logger

	to   *tfevents.File // nil: not begun
	step uint64         // of the last summary
}

// Write adds the figures that are known, with the records that are left, at the step that every shard has.
func (w *Summaries) Write(ctx context.Context, at time.Time, all []Figure) {
	if step, err := w.Step(ctx); err == nil { // at the end the shards may be gone already
		w.step = step
	}
	err := w.begin(at)
	if err == nil {
		values := []tfevents.Scalar{{Tag: "lag_records", Value: float64(w.Left())}}
		for _, f := range all {
			values = append(values, tfevents.Scalar{Tag: f.Name, Value: f.Value})
		}
		err = w.to.Scalars(at, int64(w.step), values)
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("no summary was written", "dir", w.Dir, "err", err)
	}
}

// begin opens a file that no earlier start of the trainer has.
func (w *Summaries) begin(at time.Time) (err error) {
	if w.to == nil {
		w.to, err = tfevents.Create(filepath.Join(w.Dir, events.Escape(w.Trainer)), at)
	}
	return err
}

// Close ends the file, where one was begun.
func (w *Summaries) Close() {
	if w.to == nil {
		return
	}
	if err := w.to.Close(); err != nil {
		w.Log.Warn("the file of summaries was not closed", "err", err)
	}
}
