package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/tfevents"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/registry"
)

// checkpoints evaluates each checkpoint of a job, in their order and as they come, until one has so many
// steps or the job is over.
type checkpoints struct {
	Evaluate
	MaxSteps int64  // 0: all
	Summary  string // folder for TensorBoard
}

// lookForCheckpoints is the time between two looks for another one.
const lookForCheckpoints = 2 * time.Second

// toEvaluate makes it of the task.
func (c *TPURunner) toEvaluate(data Data) error {
	if c.task.Eval.FilePattern == "" {
		return errors.New("give eval.file_pattern: the records to evaluate by, which are not learnt")
	}
	data.Files = []string{c.task.Eval.FilePattern}
	c.eval = checkpoints{
		Evaluate: Evaluate{Place: Place{Dir: c.ModelDir, BZID: c.BZID}, Data: data, Steps: c.task.Eval.StepsPerEval, AsJSON: c.AsJSON},
		MaxSteps: c.task.Train.MaxSteps, Summary: filepath.Join(c.ModelDir, evalFolder),
	}
	return nil
}

// Run prints a line for each checkpoint.
func (c *checkpoints) Run(ctx context.Context, stdout io.Writer) error {
	var to *tfevents.File
	defer func() {
		if to != nil {
			_ = to.Close() // each event was written whole
		}
	}()
	done := int64(0)
	for {
		all, over, err := c.list(ctx)
		if err != nil {
			return err
		}
		for _, k := range all {
			if k.GetId() <= done {
				continue
			}
			done = k.GetId()
			c.Checkpoint = done
			q, err := c.measure(ctx)
			if errors.Is(err, errNotOnDisk) { // newer ones have taken its place
				continue
			}
			if err != nil {
				return err
			}
			if to == nil {
				if to, err = tfevents.Create(c.Summary, time.Now()); err != nil {
					return err
				}
			}
			if err := errors.Join(to.Scalars(time.Now(), int64(k.Step()), q.scalars()), c.print(stdout, k.Step(), q)); err != nil {
				return err
			}
			if c.MaxSteps > 0 && int64(k.Step()) >= c.MaxSteps {
				return nil
			}
		}
		if over {
			return nil
		}
		if err := retry.Sleep(ctx, lookForCheckpoints); err != nil {
			return err
		}
	}
}

// list are the checkpoints on disk, the oldest first, and whether no more will come.
func (c *checkpoints) list(ctx context.Context) (all []*training.Checkpoint, over bool, err error) {
	b, closed, err := host.DialFolder(ctx, c.Dir, connect.Config{BZID: c.BZID, Level: "warn"}, "monolith job")
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	cuts, err := folded(ctx, b, registry.Lineage.Only(c.BZID))
	if err != nil {
		return nil, false, err
	}
	for _, j := range cuts.Jobs {
		all, over = slices.Clone(j.Restorable()), j.Stopped
	}
	slices.Reverse(all)
	return all, over, nil
}

// scalars are the quality as summaries.
func (q *Quality) scalars() (all []tfevents.Scalar) {
	add := func(tag string, v *float64) {
		if v != nil {
			all = append(all, tfevents.Scalar{Tag: tag, Value: *v})
		}
	}
	add("loss", q.Loss)
	for _, t := range q.Tasks {
		suffix := ""
		if len(q.Tasks) > 1 {
			suffix = "/" + t.Name
			add("loss"+suffix, t.Loss)
		}
		add("auc"+suffix, t.AUC)
	}
	return all
}

func (c *checkpoints) print(w io.Writer, step uint64, q *Quality) error {
	if c.AsJSON {
		return json.NewEncoder(w).Encode(struct {
			Step uint64 `json:"step"`
			*Quality
		}{step, q})
	}
	_, err := fmt.Fprintf(w, "checkpoint %d, step %d: loss %s, AUC %s, %d samples, %d refused\n", q.Checkpoint, step, figure(q.Loss), figure(q.Tasks[0].AUC), q.Samples, q.Refused)
	return err
}
