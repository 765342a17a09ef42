package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// TrainAndEvaluate learns files of records in slices, and tells after each how well the model predicts
// others.
type TrainAndEvaluate struct {
	Train
	EvalFiles []string
	EvalEvery int64
	eval      Evaluate
}

// Register binds the command's flags.
func (c *TrainAndEvaluate) Register(fs *pflag.FlagSet) {
	c.Train.Register(fs)
	fs.StringArrayVar(&c.EvalFiles, "eval-files", nil, "`files` of records to evaluate by, written as --files are; they are never learnt")
	fs.Int64Var(&c.EvalEvery, "eval-every", 1000, "steps of --batch records between two evaluations")
	_ = fs.MarkHidden("steps") // a slice is that many
}

// Validate complains about what would only fail later, and finds the files.
func (c *TrainAndEvaluate) Validate() error {
	var errs []error
	if c.EvalEvery < 1 {
		errs = append(errs, fmt.Errorf("%w: --eval-every %d must be 1 or more", flags.ErrUsage, c.EvalEvery))
	}
	if c.Steps != 0 {
		errs = append(errs, fmt.Errorf("%w: --steps is for train: give --max-steps", flags.ErrUsage))
	}
	if c.stdin() {
		errs = append(errs, fmt.Errorf("%w: --files -: an evaluation cannot stop standard input: name files", flags.ErrUsage))
	}
	if len(c.EvalFiles) == 0 {
		errs = append(errs, fmt.Errorf("%w: --eval-files must name records that are not learnt", flags.ErrUsage))
	}
	if err := errors.Join(append(errs, c.Train.Validate())...); err != nil {
		return err
	}
	c.eval = Evaluate{Place: Place{Dir: c.Dir, BZID: c.BZID}, Data: c.Data}
	c.eval.Files = c.EvalFiles
	return c.eval.Validate()
}

// Slice is what one slice came to.
type Slice struct {
	Learnt *Learnt  `json:"learnt"`
	Eval   *Quality `json:"eval"`
}

// Run prints a line for each slice until the files, or the steps, are at their end. Killed, the
// same command goes on with the slice that was under way.
func (c *TrainAndEvaluate) Run(ctx context.Context, stdout, stderr io.Writer) error {
	for before, first := int64(0), true; ; first = false {
		slice := c.Train
		slice.Steps = c.EvalEvery
		learnt, err := slice.Learn(ctx, stderr)
		if err != nil {
			return err
		}
		over := learnt.Learnt == before
		if over && !first {
			return nil
		}
		before = learnt.Learnt
		quality, err := c.eval.Measure(ctx)
		if err != nil {
			return err
		}
		if err := c.print(stdout, Slice{learnt, quality}); err != nil {
			return err
		}
		if over || learnt.Left == 0 {
			return nil
		}
	}
}

func (c *TrainAndEvaluate) print(w io.Writer, s Slice) error {
	if c.AsJSON {
		return json.NewEncoder(w).Encode(s)
	}
	_, err := fmt.Fprintf(w, "%d learnt, checkpoint %d: training loss %s, AUC %s; evaluation loss %s, AUC %s, %d refused\n",
		s.Learnt.Learnt, s.Learnt.Checkpoint, Figure(s.Learnt.Loss), Figure(s.Learnt.AUC), Figure(s.Eval.Loss), Figure(s.Eval.Tasks[0].AUC), s.Eval.Refused)
	return err
}
