package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/model/tfevents"
	"github.com/monolith-go/monolith/services/trainer/figures"
)

// summaries is the event file into which this trainer's figures go, for TensorBoard. It is a picture of
// the facts and nobody's state: a start begins another file, and what cannot be written is logged.
type summaries struct {
	s    *Server
	file *os.File // nil: not begun
	to   *tfevents.Writer
	step uint64 // of the last summary
}

// write adds the figures that are known, with the records that are left, at the step that every shard has.
func (w *summaries) write(ctx context.Context, at time.Time, all []figures.Figure) {
	if step, err := w.s.globalStep(ctx); err == nil { // at the end the shards may be gone already
		w.step = step
	}
	err := w.begin(at)
	if err == nil {
		values := []tfevents.Scalar{{Tag: "lag_records", Value: float64(w.s.left())}}
		for _, f := range all {
			values = append(values, tfevents.Scalar{Tag: f.Name, Value: f.Value})
		}
		err = w.to.Scalars(at, int64(w.step), values)
	}
	if err != nil && ctx.Err() == nil {
		w.s.log.Warn("no summary was written", "dir", w.s.cfg.SummaryDir, "err", err)
	}
}

// begin opens a file that no earlier start of the trainer has.
func (w *summaries) begin(at time.Time) error {
	if w.file != nil {
		return nil
	}
	dir := filepath.Join(w.s.cfg.SummaryDir, events.Escape(w.s.cfg.Name))
	host, err := os.Hostname()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", at.Unix(), host, at.Nanosecond())
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if w.to, err = tfevents.New(f, at); err != nil {
		return errors.Join(err, f.Close())
	}
	w.file = f
	return nil
}

func (w *summaries) close() {
	if w.file == nil {
		return
	}
	if err := w.file.Close(); err != nil {
		w.s.log.Warn("the file of summaries was not closed", "err", err)
	}
}

// left is how many records of this trainer's partitions are still to be learnt.
func (s *Server) left() (n int64) {
	s.lags.Range(func(_, records any) bool {
		n += records.(int64)
		return true
	})
	return n
}
