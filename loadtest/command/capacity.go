package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Step is one rate that was tried.
type Step struct {
	Rate   float64         `json:"rate"`
	OK     bool            `json:"ok"`
	Why    string          `json:"why,omitempty"`
	Result openloop.Result `json:"result"`
}

// Capacity is the highest rate at which the goals were reached; 0: none.
type Capacity struct {
	Rate  float64 `json:"rate"`
	Goals string  `json:"slo"`
	Steps []Step  `json:"steps"`
}

const (
	// closeness ends the search: the rates that held and failed differ by no more.
	closeness = 1.05
	// maxRate is where it gives up doubling.
	maxRate = 1e6
	// keptUp is the part of the offered rate that must be answered.
	keptUp = 0.95
)

// search doubles the rate until a step fails, and then halves the interval. A rate that fails at
// once is halved instead.
func search(from float64, try func(rate float64) (Step, error)) (steps []Step, best float64, err error) {
	low, high := 0.0, 0.0
	for rate := from; rate >= 1 && rate <= maxRate; {
		s, err := try(rate)
		if err != nil {
			return steps, low, err
		}
		steps = append(steps, s)
		if s.OK {
			low = rate
		} else {
			high = rate
		}
		switch {
		case high == 0:
			rate *= 2
		case low == 0:
			rate /= 2
		case high/low <= closeness:
			return steps, low, nil
		default:
			rate = (low + high) / 2
		}
	}
	return steps, low, nil
}

// judged says whether a step held: the goals, no error, and the server kept up.
func judged(rate float64, goals []openloop.Goal, res openloop.Result) Step {
	s := Step{Rate: rate, Result: res}
	switch err := missed(goals, res); {
	case err != nil:
		s.Why = err.Error()
	case res.Calls > res.Answered:
		s.Why = fmt.Sprintf("%d of %d calls failed", res.Calls-res.Answered, res.Calls)
	case float64(res.Achieved) < keptUp*float64(res.Offered):
		s.Why = fmt.Sprintf("%.4g of %.4g calls per second were answered", res.Achieved, res.Offered)
	}
	s.OK = s.Why == ""
	return s
}

func newCapacity() *cobra.Command {
	var a asked
	var o output
	var slo string
	cmd := &cobra.Command{
		Use:   "capacity SCENARIO|FILE",
		Short: "Find the highest rate at which a server reaches a goal",
		Long: "Loads the server for --duration at --rate, then at doubled rates until the goal is missed, a call fails or\n" +
			"fewer than 95 % are answered in time, then in between, until the rates that held and that failed are\n" +
			"within 5 %. It exits with 1 where no rate held.",
		Example: "  monolith loadtest capacity predict --slo 'p99<10ms' --duration 10s",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s, err := a.scenario(args)
			if err != nil {
				return err
			}
			goals, err := openloop.ParseGoals(slo)
			if err != nil {
				return fmt.Errorf("%w: --slo: %w", flags.ErrUsage, err)
			}
			if len(goals) == 0 {
				return fmt.Errorf("%w: give a goal such as --slo 'p99<10ms'", flags.ErrUsage)
			}
			g, err := newGenerator(cmd.Context(), s, a.target, saying(cmd))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, g.close()) }()
			c := Capacity{Goals: slo}
			c.Steps, c.Rate, err = search(g.offered, func(rate float64) (Step, error) {
				res, err := g.run(cmd.Context(), rate, s.Duration, nil)
				if err != nil {
					return Step{}, err
				}
				step := judged(rate, goals, res.Result)
				fmt.Fprintln(cmd.ErrOrStderr(), step)
				return step, nil
			})
			if err != nil {
				return err
			}
			if err := o.write(cmd.OutOrStdout(), c, c.text, c.page(args[0], g.place())); err != nil {
				return err
			}
			if c.Rate == 0 {
				return fmt.Errorf("at no rate was %s reached", slo)
			}
			return nil
		},
	}
	a.register(cmd)
	o.register(cmd)
	cmd.Flags().StringVar(&slo, "slo", "", "`goals` such as p99<10ms")
	return cmd
}

func (s Step) String() string {
	verdict := "held"
	if !s.OK {
		verdict = s.Why
	}
	return fmt.Sprintf("%.4g/s: p50 %s ms, p99 %s ms: %s", s.Rate, report.Number(s.Result.P50), report.Number(s.Result.P99), verdict)
}

func (c Capacity) text(w io.Writer) error {
	_, err := fmt.Fprintf(w, "capacity %.4g calls/s with %s, of %d rates tried\n", c.Rate, c.Goals, len(c.Steps))
	return err
}

// page shows the step at the capacity, and all that were tried.
func (c Capacity) page(name, target string) report.Load {
	p := report.Load{Title: "Capacity: " + name, Summary: target + ", " + c.Goals, Figures: []report.Fact{{Name: "calls per second", Value: fmt.Sprintf("%.4g", c.Rate)}}}
	for _, s := range c.Steps {
		p.Settings = append(p.Settings, report.Fact{Name: fmt.Sprintf("%.4g/s", s.Rate), Value: s.String()})
		if s.Rate == c.Rate {
			p.Curves, p.Seconds = []report.Curve{{Spread: s.Result.Spread}}, s.Result.BySecond
		}
	}
	return p
}
