// Package demo is the main job: it streams ratings, has them learnt and served by everything
// that a host runs, and measures what comes of it from outside.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// Config is one run of the main job.
type Config struct {
	stack    host.Config
	Data     string
	duration time.Duration
	Rate     float64
	load     float64
	seed     uint64
	report   string
	spec     string
	keep     bool
	asJSON   bool
	patience time.Duration
	Born     time.Time // of the process
}

// Register binds the demo's flags, those of its stack among them.
func (c *Config) Register(fs *pflag.FlagSet) {
	c.stack.Register(fs, "")
	fs.StringVar(&c.Data, "data", "", "MovieLens `ratings.csv`; empty: a simulated audience with a known best AUC")
	fs.DurationVar(&c.duration, "duration", 0, "length of the stream; 0: the whole file, or 60s of simulation")
	fs.Float64Var(&c.Rate, "rate", 1000, "ratings per second")
	fs.Float64Var(&c.load, "load", 200, "open-loop Predict calls per second beside the stream; 0: none")
	fs.Uint64Var(&c.seed, "seed", 1, "seed of the simulation and of the load")
	fs.StringVar(&c.report, "report", "", "`folder` of the report; empty: report in --dir, or monolith-report")
	fs.StringVar(&c.spec, "spec", "", "YAML `file` that declares the model, whose features read fields of the demo's records; empty: the one built in")
	fs.BoolVar(&c.keep, "keep", false, "stay up afterwards, until interrupted")
	fs.BoolVar(&c.asJSON, "json", false, "print one JSON object instead of a page")
	fs.DurationVar(&c.patience, "patience", 2*time.Minute, "longest wait for any one thing to happen")
}

// Validate complains about what no run could mend.
func (c *Config) Validate() error {
	if err := c.stack.Validate(); err != nil {
		return err
	}
	if !(c.Rate > 0) || math.IsInf(c.Rate, 0) || c.load < 0 || math.IsInf(c.load, 0) || math.IsNaN(c.load) {
		return fmt.Errorf("%w: --rate must be positive and --load not negative", flags.ErrUsage)
	}
	if c.duration < 0 {
		return fmt.Errorf("%w: --duration %s must not be negative", flags.ErrUsage, c.duration)
	}
	if c.stack.Deterministic {
		return fmt.Errorf("%w: --deterministic learns whole batches only, and a stream's last ones are not whole: use it with monolith up", flags.ErrUsage)
	}
	return nil
}

// model is what --spec declares.
func (c *Config) model() (*model.ModelSpec, error) {
	if c.spec == "" {
		return movies()
	}
	spec, err := specfile.Read(c.spec, os.Stdin)
	if err != nil {
		return nil, err
	}
	if _, err := scenario.InputsOf(spec); err != nil {
		return nil, fmt.Errorf("%w: --spec %s: %w", flags.ErrUsage, c.spec, err)
	}
	return spec, nil
}

// Run opens the logs and the source, runs the roles around the driver, and prints what
// the driver reports.
func Run(ctx context.Context, cfg Config, stdout, stderr io.Writer) (err error) {
	if cfg.stack.Dir == "" {
		temp, err := os.MkdirTemp("", "monolith-demo-")
		if err != nil {
			return err
		}
		cfg.stack.Dir = temp
		cfg.report = cmp.Or(cfg.report, "monolith-report")
		if !cfg.keep {
			defer func() { _ = os.RemoveAll(temp) }() // a temporary folder nobody asked for
		}
	}
	cfg.report = cmp.Or(cfg.report, filepath.Join(cfg.stack.Dir, "report"))
	cfg.stack.Spans = true
	source, err := OpenSource(cfg)
	if err != nil {
		return err
	}
	spec, err := cfg.model()
	if err != nil {
		return err
	}
	ui := newProgress(stderr)
	defer ui.close()
	cfg.stack.Model = spec.GetName()
	inputs, err := scenario.InputsOf(spec)
	if err != nil {
		return err
	}
	s, err := host.Start(ctx, cfg.stack)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := source.pin(s.Config.Dir); err != nil {
		return err
	}
	for _, n := range s.Notes {
		ui.say("%s", n)
	}
	ui.say("data in %s, NATS %s, Kafka %s", s.Config.Dir, connect.Redacted(s.Config.Logs.NATS), s.Config.Kafka)

	run, cancel := context.WithCancel(ctx)
	defer cancel()
	running := make(chan error, 1)
	go func() { running <- s.Run(run, func() {}) }()
	d := &driver{cfg: cfg, spec: spec, inputs: inputs, frozen: spec.GetName() + "-frozen", stack: s, source: source, ui: ui}
	type outcome struct {
		r   *report.Report
		err error
	}
	driven := make(chan outcome, 1)
	go func() {
		r, err := d.run(run)
		driven <- outcome{r, err}
	}()
	var out outcome
	select {
	case out = <-driven:
	case err := <-running:
		cancel()
		<-driven
		return errors.Join(err, errors.New("a role could not be started, see above"))
	}
	if out.err == nil {
		out.err = d.publish(out.r, stdout)
	}
	if out.err == nil && cfg.keep {
		ui.say("staying up until interrupted (ctrl-c)")
		<-ctx.Done()
	}
	cancel()
	return errors.Join(out.err, <-running)
}

// publish writes the report's folder and prints it.
func (d *driver) publish(r *report.Report, stdout io.Writer) error {
	if err := report.Write(d.cfg.report, *r); err != nil {
		return err
	}
	if d.cfg.asJSON {
		raw, err := r.JSON()
		if err != nil {
			return err
		}
		_, err = stdout.Write(raw)
		return err
	}
	if err := r.Text(stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "\nThe page: %s\n", filepath.Join(d.cfg.report, "report.html"))
	return err
}
