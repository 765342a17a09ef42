package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

// demoConfig is one run of the main job.
type demoConfig struct {
	stack    host.Config
	data     string
	duration time.Duration
	rate     float64
	load     float64
	seed     uint64
	report   string
	spec     string
	keep     bool
	asJSON   bool
	patience time.Duration
	born     time.Time
}

func (c *demoConfig) register(flags *pflag.FlagSet) {
	c.stack.Register(flags, "")
	flags.StringVar(&c.data, "data", "", "MovieLens `ratings.csv`; empty: a simulated audience with a known best AUC")
	flags.DurationVar(&c.duration, "duration", 0, "length of the stream; 0: the whole file, or 60s of simulation")
	flags.Float64Var(&c.rate, "rate", 1000, "ratings per second")
	flags.Float64Var(&c.load, "load", 200, "open-loop Predict calls per second beside the stream; 0: none")
	flags.Uint64Var(&c.seed, "seed", 1, "seed of the simulation and of the load")
	flags.StringVar(&c.report, "report", "", "`folder` of the report; empty: report in --dir, or monolith-report")
	flags.StringVar(&c.spec, "spec", "", "YAML `file` that declares the model, "+host.ModelName+", with features user and movie; empty: the one built in")
	flags.BoolVar(&c.keep, "keep", false, "stay up afterwards, until interrupted")
	flags.BoolVar(&c.asJSON, "json", false, "print one JSON object instead of a page")
	flags.DurationVar(&c.patience, "patience", 2*time.Minute, "longest wait for any one thing to happen")
}

func newDemo() *cobra.Command {
	cfg := demoConfig{born: time.Now()}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the main job: stream ratings, learn, serve, and report",
		Long: "Starts NATS, Kafka and all seven services, streams ratings into Kafka, scores each by the\n" +
			"serving path before the trainer sees its label, freezes a copy of the model at half time,\n" +
			"loads the serving port meanwhile, and ends with a report. With --dir, a run that was killed\n" +
			"goes on where it was.",
		Example: "  monolith demo\n  monolith demo --data ratings.csv --json",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.stack.Validate(); err != nil {
				return err
			}
			if !(cfg.rate > 0) || math.IsInf(cfg.rate, 0) || cfg.load < 0 || math.IsInf(cfg.load, 0) || math.IsNaN(cfg.load) {
				return fmt.Errorf("%w: --rate must be positive and --load not negative", flags.ErrUsage)
			}
			if cfg.duration < 0 {
				return fmt.Errorf("%w: --duration %s must not be negative", flags.ErrUsage, cfg.duration)
			}
			if cfg.stack.Deterministic {
				return fmt.Errorf("%w: --deterministic learns whole batches only, and a stream's last ones are not whole: use it with monolith up", flags.ErrUsage)
			}
			return demo(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cfg.register(cmd.Flags())
	return cmd
}

// model is what --spec declares.
func (c *demoConfig) model() (*model.ModelSpec, error) {
	if c.spec == "" {
		return modelspec.MovieRanking(), nil
	}
	spec, err := readSpec(c.spec, os.Stdin)
	if err != nil {
		return nil, err
	}
	if spec.GetName() != host.ModelName {
		return nil, fmt.Errorf("%w: --spec declares %q: the demo's model is called %s", flags.ErrUsage, spec.GetName(), host.ModelName)
	}
	return spec, nil
}

// demo opens the logs and the source, runs the roles around the driver, and prints what
// the driver reports.
func demo(ctx context.Context, cfg demoConfig, stdout, stderr io.Writer) (err error) {
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
	source, err := openSource(cfg)
	if err != nil {
		return err
	}
	spec, err := cfg.model()
	if err != nil {
		return err
	}
	ui := newProgress(stderr)
	defer ui.close()
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
	d := &driver{cfg: cfg, spec: spec, stack: s, source: source, ui: ui}
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

// source is the ratings of a run and what was wrong with their rows.
type source struct {
	gen.Source
	name   string // in record headers; the same for a run that is resumed
	file   string // "" for the simulator
	rows   int64
	broken []rating.Broken
	total  int
}

func openSource(cfg demoConfig) (*source, error) {
	limit := int(cfg.rate * cfg.duration.Seconds())
	if cfg.data == "" {
		if limit == 0 {
			limit = int(cfg.rate * 60)
		}
		sim, err := gen.NewSimulator(gen.SimulatorConfig{Seed: cfg.seed, Count: limit})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
		}
		return &source{Source: sim, name: simulatorName(cfg.seed), rows: int64(limit), total: limit}, nil
	}
	s := &source{name: filepath.Base(cfg.data), file: cfg.data}
	f, err := gen.OpenCSV(cfg.data, func(b rating.Broken) { s.broken = append(s.broken, b) })
	if err != nil {
		return nil, fmt.Errorf("%w (--data names a MovieLens ratings.csv; without it a simulated audience is used)", err)
	}
	s.Source, s.total, s.rows = f, f.Total(), int64(f.Rows())
	if s.total == 0 {
		if len(s.broken) == 0 {
			return nil, fmt.Errorf("%s holds no rating: there is nothing below its header", cfg.data)
		}
		return nil, fmt.Errorf("none of the %d rows of %s could be read as a rating; the first, line %d: %s", len(s.broken), cfg.data, s.broken[0].Line, s.broken[0].Reason)
	}
	if limit > 0 && limit < s.total {
		s.Source, s.rows, s.total = gen.Limit(f, limit), int64(limit+len(s.broken)), limit
	}
	return s, nil
}

// parkBroken keeps every broken row of the source with its reason. Parking again, after
// a restart, changes nothing.
func (s *source) parkBroken(ctx context.Context, letters bus.DeadLetters) error {
	for _, b := range s.broken {
		p := bus.Parked{Reason: b.Reason, By: "demo", Stream: "csv:" + s.name, StreamSeq: uint64(b.Line), Subject: host.RatingsTopic, Data: b.Raw}
		if _, err := letters.Park(ctx, p); err != nil {
			return fmt.Errorf("park line %d of %s: %w", b.Line, s.file, err)
		}
	}
	return nil
}

// sourceFile keeps, in the data folder, what the run was begun with.
const sourceFile = "source.json"

// pin refuses to go on with another source than the one that the folder's run was begun
// with: ratings are told apart by their place in it.
func (s *source) pin(dir string) error {
	if s.file == "" {
		return nil // the simulator's name holds its seed
	}
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	now, err := json.Marshal(map[string]string{"name": s.name, "sha256": hex.EncodeToString(h.Sum(nil))})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, sourceFile)
	was, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return host.ReplaceFile(path, now)
	case err != nil:
		return err
	case !bytes.Equal(was, now):
		return fmt.Errorf("%w: %s was begun with another file than %s: name that one with --data, or another folder with --dir", flags.ErrUsage, dir, s.file)
	}
	return nil
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// learning watches a stream for its half time.
type learning struct {
	half   int
	frozen atomic.Pointer[string] // name of the frozen copy once it is served
}

func simulatorName(seed uint64) string { return fmt.Sprintf("simulator-%d", seed) }
