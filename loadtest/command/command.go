package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/cluster"
	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Command is loadtest with its commands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "loadtest",
		Short: "Load any TensorFlow Serving by the clock, find its capacity, compare runs",
		Long: "Calls fall due whether or not those before were answered, and latencies count from that moment, so that\n" +
			"a server that stalls is seen to stall. What the generator itself is late by is told; more than a\n" +
			"tenth of the median latency makes a run invalid.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRun(), newCapacity(), newCompare())
	return cmd
}

// output is how a result is written.
type output struct {
	asJSON    bool
	html, log string
}

func (o *output) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&o.html, "html", "", "write a page with the percentile curve to `file`")
}

// write prints v, or text, and writes the page.
func (o *output) write(w io.Writer, v any, text func(io.Writer) error, page report.Load) error {
	if o.html != "" {
		if err := durable.Replace(o.html, 0o644, func(f *os.File) error { return page.HTML(f) }); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	if o.asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return text(w)
}

// asked is a scenario's argument and whom it is for.
type asked struct {
	changes
	target string
}

func (a *asked) register(cmd *cobra.Command) {
	a.changes.register(cmd.Flags())
	cmd.Flags().StringVar(&a.target, "target", "", "`host:port` of the server; empty: this binary's own is started, as processes of their own, and ended")
}

func (a *asked) scenario(args []string) (Scenario, error) {
	if len(args) != 1 {
		return Scenario{}, fmt.Errorf("%w: name one scenario (%s) or a YAML file, got %q", flags.ErrUsage, names(), args)
	}
	s, err := find(args[0])
	if err != nil {
		return s, err
	}
	return s, a.apply(&s)
}

func newRun() *cobra.Command {
	var a asked
	var o output
	var fail string
	cmd := &cobra.Command{
		Use:   "run SCENARIO|FILE",
		Short: "Load a server, and tell its latencies from when each call was due",
		Long:  "Scenarios are " + names() + "; a YAML file has the fields that docs/operations.md lists. Samples are drawn\nby the model's signature. With --fail it exits with 1 where a goal is missed, or the run is invalid.",
		Example: "  monolith loadtest run predict --target 127.0.0.1:8500 --rate 500 --fail 'p99<2ms,errors<1%'\n" +
			"  monolith loadtest run fan-out --duration 60s --log fan-out.hlog --html fan-out.html --json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s, err := a.scenario(args)
			if err != nil {
				return err
			}
			goals, err := openloop.ParseGoals(fail)
			if err != nil {
				return fmt.Errorf("%w: --fail: %w", flags.ErrUsage, err)
			}
			g, err := newGenerator(cmd.Context(), s, a.target, saying(cmd))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, g.close()) }()
			res, err := o.logged(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := o.write(cmd.OutOrStdout(), res, res.Text, page(args[0], g.place(), s, res)); err != nil {
				return err
			}
			return missed(goals, res.Result)
		},
	}
	a.register(cmd)
	o.register(cmd)
	cmd.Flags().StringVar(&o.log, "log", "", "write the histogram of each second to `file`, in HdrHistogram's log format")
	cmd.Flags().StringVar(&fail, "fail", "", "`goals` such as p99<2ms,mean<=1ms,rate>400,errors<1%")
	return cmd
}

// logged is a run that writes its log as it goes, so that a crash keeps what was measured.
func (o *output) logged(ctx context.Context, g *generator, scenario string) (res Measured, err error) {
	if o.log == "" {
		return g.run(ctx, g.offered, g.s.Duration, nil)
	}
	f, err := os.Create(o.log)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return g.run(ctx, g.offered, g.s.Duration, func(start time.Time) (*openloop.Log, error) {
		return openloop.NewLog(f, start, fmt.Sprintf("microseconds; %s at %s, %v calls/s offered", scenario, g.place(), g.offered))
	})
}

// missed joins the goals that a result does not reach; an invalid run reaches none.
func missed(goals []openloop.Goal, res openloop.Result) error {
	if len(goals) == 0 {
		return nil
	}
	var errs []error
	if !res.Valid {
		errs = append(errs, errors.New("the run proves nothing: "+res.Why))
	}
	for _, g := range goals {
		if why := g.Missed(res); why != "" {
			errs = append(errs, errors.New(why))
		}
	}
	return errors.Join(errs...)
}

// page shows a run.
func page(name, place string, s Scenario, res Measured) report.Load {
	check := "The generator made each call when it was due"
	if !res.Valid {
		check += ": " + res.Why
	}
	p := report.Load{
		Title: "Load: " + name, Summary: fmt.Sprintf("%s, %s, %s arrivals", s.Model, place, s.Arrivals), Check: check, OK: res.Valid,
		Figures: []report.Fact{
			{Name: "offered, 1/s", Value: report.Number(res.Offered)}, {Name: "achieved, 1/s", Value: report.Number(res.Achieved)},
			{Name: "p50, ms", Value: report.Number(res.P50)}, {Name: "p99, ms", Value: report.Number(res.P99)}, {Name: "p99.9, ms", Value: report.Number(res.P999)},
		},
		Settings: []report.Fact{
			{Name: "Calls", Value: fmt.Sprint(res.Calls)}, {Name: "Failed", Value: failures(res.Errors)}, {Name: "Samples of a call", Value: fmt.Sprint(s.Batch)},
			{Name: "Seconds", Value: report.Number(res.Seconds)}, {Name: "Generator late, p50 and p99 in ms", Value: report.Number(res.LateP50) + ", " + report.Number(res.LateP99)},
		},
		Curves: []report.Curve{{Name: "", Spread: res.Spread}}, Seconds: res.BySecond, Marks: res.Events,
	}
	if res.Capacity > 0 {
		p.Settings = append(p.Settings, report.Fact{Name: "Answered at most, 1/s", Value: report.Number(res.Capacity)})
	}
	return p
}

// Text writes the run for people.
func (m Measured) Text(w io.Writer) error {
	if m.Capacity > 0 {
		fmt.Fprintf(w, "answered at most: %s/s\n", report.Number(m.Capacity))
	}
	for _, e := range m.Events {
		fmt.Fprintf(w, "%5.1f s  %s\n", e.Second, e.Text)
	}
	return m.Result.Text(w)
}

// failures lists how many calls failed, by code.
func failures(byCode map[string]int64) string {
	var all []string
	for _, code := range slices.Sorted(maps.Keys(byCode)) {
		all = append(all, fmt.Sprint(byCode[code], " ", code))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// place is where the server is, for people.
func (g *generator) place() string {
	if g.own == nil {
		return g.target
	}
	return fmt.Sprintf("%d shards with %d replicas each, started for this run", g.s.Shards, g.s.Replicas)
}

// saying tells how things get on.
func saying(cmd *cobra.Command) cluster.Say {
	return func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
}
