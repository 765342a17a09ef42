package command

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Interval is a percentile, and where it lies with 95 % certainty as far as chance goes.
type Interval struct {
	Ms   report.Figure `json:"ms"`
	Low  report.Figure `json:"low_ms"`
	High report.Figure `json:"high_ms"`
}

// Line is a percentile of both.
type Line struct {
	Percent float64       `json:"percent"`
	A       Interval      `json:"a"`
	B       Interval      `json:"b"`
	Ratio   report.Figure `json:"ratio"`   // B by A
	Differ  bool          `json:"differs"` // the intervals do not meet
}

// compared are the percentiles that a comparison lists.
var compared = []float64{50, 90, 95, 99, 99.9, 99.99}

// interval is that of the order statistics: as many calls more or fewer below a percentile as a
// binomial distribution has within 1.96 standard deviations.
func interval(r openloop.Result, percent float64) Interval {
	p, n := percent/100, float64(r.Answered)
	off := 100 * 1.96 * math.Sqrt(p*(1-p)/n)
	return Interval{Ms: r.At(percent), Low: r.At(max(percent-off, 0)), High: r.At(min(percent+off, 100))}
}

// lines are the percentiles that both have at least one call beyond.
func lines(a, b openloop.Result) (all []Line) {
	for _, p := range compared {
		if float64(min(a.Answered, b.Answered))*(100-p)/100 < 1 {
			break
		}
		l := Line{Percent: p, A: interval(a, p), B: interval(b, p)}
		l.Ratio = l.B.Ms / l.A.Ms
		l.Differ = l.A.High < l.B.Low || l.B.High < l.A.Low
		all = append(all, l)
	}
	return all
}

func newCompare() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Show the percentile curves of two runs side by side",
		Long: "A and B are logs that loadtest run --log has written, several of them with commas between, which are\n" +
			"merged: those of several generators or rounds. Intervals are of chance alone; rounds in turns\n" +
			"show what else changes.",
		Example: "  monolith loadtest compare before.hlog after-1.hlog,after-2.hlog --html compare.html",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%w: compare takes two logs or lists of logs, got %q", flags.ErrUsage, args)
			}
			var of [2]openloop.Result
			for i, arg := range args {
				h, err := openloop.ReadLogs(flags.List(arg))
				if err != nil {
					return err
				}
				of[i] = openloop.Of(h)
			}
			all := lines(of[0], of[1])
			p := report.Load{
				Title: "Two loads", Summary: fmt.Sprintf("A: %s; B: %s", args[0], args[1]),
				Curves: []report.Curve{{Name: "A", Spread: of[0].Spread}, {Name: "B", Spread: of[1].Spread}},
			}
			for _, l := range all {
				p.Settings = append(p.Settings, report.Fact{Name: fmt.Sprintf("p%g, ms", l.Percent), Value: l.String()})
			}
			return o.write(cmd.OutOrStdout(), struct {
				A           string `json:"a"`
				B           string `json:"b"`
				Percentiles []Line `json:"percentiles"`
			}{args[0], args[1], all}, func(w io.Writer) error { return table(w, all) }, p)
		},
	}
	o.register(cmd)
	return cmd
}

func (i Interval) String() string {
	return fmt.Sprintf("%s (%s to %s)", report.Number(i.Ms), report.Number(i.Low), report.Number(i.High))
}

func (l Line) String() string {
	verdict := "within chance"
	if l.Differ {
		verdict = "differs"
	}
	return fmt.Sprintf("A %s, B %s, ratio %s, %s", l.A, l.B, report.Number(l.Ratio), verdict)
}

func table(w io.Writer, all []Line) error {
	for _, l := range all {
		if _, err := fmt.Fprintf(w, "p%-6g %s\n", l.Percent, l); err != nil {
			return err
		}
	}
	return nil
}
