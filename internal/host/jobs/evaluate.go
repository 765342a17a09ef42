package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Evaluate measures how well a checkpoint predicts files of records.
type Evaluate struct {
	Place
	Data
	Steps  int64
	AsJSON bool
}

// Register binds the command's flags.
func (c *Evaluate) Register(fs *pflag.FlagSet) {
	c.Place.Register(fs)
	c.Data.Register(fs)
	fs.Int64Var(&c.Steps, "steps", 0, "evaluate so many steps of --batch records alone; 0: all")
	fs.BoolVar(&c.AsJSON, "json", false, "print one JSON object")
}

// Validate complains about what no folder is needed for, and finds the files.
func (c *Evaluate) Validate() error {
	if c.Steps < 0 {
		return fmt.Errorf("%w: --steps %d must not be negative", flags.ErrUsage, c.Steps)
	}
	return errors.Join(c.Place.Validate(), c.Data.Validate())
}

// Quality is how well a checkpoint predicts.
type Quality struct {
	Model            string        `json:"model"`
	Job              string        `json:"job"`
	Checkpoint       int64         `json:"checkpoint"`
	Rows             int           `json:"rows"` // of its tables
	Files            int           `json:"files"`
	Records          int64         `json:"records"`
	Samples          int64         `json:"samples"`
	Dropped          int64         `json:"dropped"` // samples, by rules that do not go by chance
	Refused          int64         `json:"refused"` // records that the model cannot read
	Reasons          []refused     `json:"reasons,omitempty"`
	Loss             *float64      `json:"loss"` // mean of a sample, tasks by their weights; null: of no sample
	Tasks            []TaskQuality `json:"tasks"`
	Seconds          float64       `json:"seconds"`
	SamplesPerSecond float64       `json:"samples_per_second"`
}

// TaskQuality is that of one task.
type TaskQuality struct {
	Name string   `json:"name"`
	Loss *float64 `json:"loss"`
	AUC  *float64 `json:"auc"` // null: its labels are not 0 and 1, or all alike
}

// maxReasons is how many refused records a report explains.
const maxReasons = 10

// Run prints the quality.
func (c *Evaluate) Run(ctx context.Context, stdout io.Writer) error {
	q, err := c.Measure(ctx)
	if err != nil {
		return err
	}
	return show(stdout, c.AsJSON, q)
}

// tally is what was added up of one task.
type tally struct {
	loss   float64
	scores []float64
	labels []bool
	ranked bool
}

// Measure predicts the records and adds up how well.
func (c *Evaluate) Measure(ctx context.Context) (*Quality, error) {
	s, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	q := &Quality{Model: s.spec.GetName(), Job: s.job, Checkpoint: s.checkpoint.GetId(), Rows: p.size(), Files: len(c.paths)}
	tallies := make([]tally, len(p.engine.Tasks()))
	for i, t := range p.engine.Tasks() {
		tallies[i].ranked = t.Label != nil && !t.Label.GetRaw()
	}
	var loss float64
	began := time.Now()
	err = c.each(ctx, p, input.Options{Measure: true}, c.Steps, func(b *runtime.Batch, _ int64, records []int) error {
		q.Records += int64(len(records))
		if b.Len() == 0 {
			return nil
		}
		lane, err := p.lanes.Get(ctx)
		if err != nil {
			return err
		}
		res, err := p.engine.Train(lane, b, p.weights) // the gradients go nowhere
		p.lanes.Put(lane)
		if err != nil {
			return err
		}
		q.Samples += int64(b.Len())
		loss += res.Loss
		for i := range tallies {
			tallies[i].add(res.Losses[i], res.Scores[i], b.Labels(i), b.Weights(i))
		}
		return nil
	}, func(r refused) error {
		q.Refused++
		if len(q.Reasons) < maxReasons {
			q.Reasons = append(q.Reasons, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.Dropped = c.dropped
	q.Seconds = time.Since(began).Seconds()
	q.SamplesPerSecond = float64(q.Samples) / q.Seconds
	q.Loss = known(loss / float64(q.Samples))
	for i, t := range p.engine.Tasks() {
		q.Tasks = append(q.Tasks, TaskQuality{t.Name, known(tallies[i].loss / float64(q.Samples)), known(eval.AUC(tallies[i].scores, tallies[i].labels))})
	}
	return q, nil
}

// add takes a batch in; samples without a weight count in no AUC, as in training.
func (t *tally) add(loss float64, scores, labels, weights []float32) {
	t.loss += loss
	if !t.ranked {
		return
	}
	for i, s := range scores {
		if weights == nil || weights[i] != 0 {
			t.scores, t.labels = append(t.scores, float64(s)), append(t.labels, labels[i] > 0.5)
		}
	}
}

// known is v, or nil where there is no such number.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Figure is a number for people.
func Figure(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.6f", *v)
}

// Print writes the quality for people.
func (q *Quality) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "model\t%s, checkpoint %d of job %s, %d rows\n", q.Model, q.Checkpoint, q.Job, q.Rows)
	fmt.Fprintf(t, "records\t%d in %d files, %d samples, %d refused\n", q.Records, q.Files, q.Samples, q.Refused)
	if q.Dropped > 0 {
		fmt.Fprintf(t, "dropped\t%d samples, by sample rules\n", q.Dropped)
	}
	fmt.Fprintf(t, "loss\t%s\n", Figure(q.Loss))
	for _, x := range q.Tasks {
		if len(q.Tasks) > 1 {
			fmt.Fprintf(t, "  %s\tloss %s, AUC %s\n", x.Name, Figure(x.Loss), Figure(x.AUC))
			continue
		}
		fmt.Fprintf(t, "AUC\t%s\n", Figure(x.AUC))
	}
	fmt.Fprintf(t, "speed\t%.0f samples/s, %.1f s\n", q.SamplesPerSecond, q.Seconds)
	for _, r := range q.Reasons {
		fmt.Fprintf(t, "refused\trecord %d: %s\n", r.Record, r.Reason)
	}
	return t.Flush()
}
