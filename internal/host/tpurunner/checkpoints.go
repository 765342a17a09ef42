package tpurunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/host/jobs"
	"github.com/monolith-go/monolith/internal/model/tfevents"
	"github.com/monolith-go/monolith/internal/retry"
)

// checkpoints evaluates each checkpoint of a job, in their order and as they come, until one has so many
// steps or the job is over.
type checkpoints struct {
	jobs.Evaluate
	MaxSteps int64  // 0: all
	Summary  string // folder for TensorBoard
}

// lookForCheckpoints is the time between two looks for another one.
const lookForCheckpoints = 2 * time.Second

// toEvaluate makes it of the task.
func (c *Runner) toEvaluate(data jobs.Data) error {
	if c.task.Eval.FilePattern == "" {
		return errors.New("give eval.file_pattern: the records to evaluate by, which are not learnt")
	}
	data.Files = []string{c.task.Eval.FilePattern}
	c.eval = checkpoints{
		Evaluate: jobs.Evaluate{Place: jobs.Place{Dir: c.ModelDir, BZID: c.BZID}, Data: data, Steps: c.task.Eval.StepsPerEval, AsJSON: c.AsJSON},
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
		all, over, err := c.Checkpoints(ctx)
		if err != nil {
			return err
		}
		for _, k := range all {
			if k.GetId() <= done {
				continue
			}
			done = k.GetId()
			c.Checkpoint = done
			q, err := c.Measure(ctx)
			if errors.Is(err, jobs.ErrNotOnDisk) || errors.Is(err, fs.ErrNotExist) { // newer ones have taken its place, whether a fact says so yet or not
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
			if err := errors.Join(to.Scalars(time.Now(), int64(k.Step()), scalars(q)), c.print(stdout, k.Step(), q)); err != nil {
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

// scalars are the quality as summaries.
func scalars(q *jobs.Quality) (all []tfevents.Scalar) {
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

func (c *checkpoints) print(w io.Writer, step uint64, q *jobs.Quality) error {
	if c.AsJSON {
		return json.NewEncoder(w).Encode(struct {
			Step uint64 `json:"step"`
			*jobs.Quality
		}{step, q})
	}
	_, err := fmt.Fprintf(w, "checkpoint %d, step %d: loss %s, AUC %s, %d samples, %d refused\n", q.Checkpoint, step, jobs.Figure(q.Loss), jobs.Figure(q.Tasks[0].AUC), q.Samples, q.Refused)
	return err
}
