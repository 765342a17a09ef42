// Package verify computes the figures of a demo's report once more from the logs of its data
// folder, of a process that runs or of one that has ended.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/projections/registry"
)

// Config says what is proved and where it lies.
type Config struct {
	dir, bzid, report, nats, kafka, data string
	parts                                []string
	keys                                 connect.Config // of the connection to NATS; nothing else of it is set
	brokers                              kafka.Credentials
	rows                                 mtls.Files
}

// Register binds the flags of a proof.
func (c *Config) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.dir, "dir", "", "data `folder` of the demo or of up; where --nats and --kafka name the logs, any (required)")
	fs.StringVar(&c.bzid, "bzid", flags.Env("MONOLITH_BZID", "demo"), "namespace of the folder's logs, where no report says it (MONOLITH_BZID)")
	fs.StringVar(&c.report, "report", "", "`folder` of the report; empty: report in --dir")
	fs.StringVar(&c.nats, "nats", "", "NATS `URL`, if it was not embedded")
	c.keys.RegisterKeys(fs)
	fs.StringVar(&c.kafka, "kafka", "", "Kafka `brokers`, if they were not embedded")
	c.brokers.Register(fs)
	c.rows.Register(fs, host.RowsTLS, "the rows ports of replicas that serve (default: --nats-cert, -key and -ca, where all of them are given)")
	fs.StringArrayVar(&c.parts, "parts", nil, "`folder` with checkpoints and exports of the job that the one does not hold which it has in the log, such as that of another machine's disk, or what checkpoint fetch brought; may be repeated")
	fs.StringVar(&c.data, "data", "", "the demo's `ratings.csv`, to compare the topic with; empty: the simulator is asked again")
}

func (c Config) connection(url, bzid string) connect.Config {
	conn := c.keys
	conn.NATS, conn.BZID, conn.Level = url, bzid, "warn"
	return conn
}

// Run computes the figures once more and compares them.
func (c Config) Run(ctx context.Context) (_ []audit.Check, err error) {
	if c.dir == "" {
		return nil, fmt.Errorf("%w: --dir must name the data folder of the demo", flags.ErrUsage)
	}
	folder := cmp.Or(c.report, filepath.Join(c.dir, "report"))
	r, err := report.Read(folder)
	if errors.Is(err, fs.ErrNotExist) && c.report == "" {
		return c.job(ctx)
	}
	if err != nil {
		return nil, err
	}
	logs, err := c.open(ctx, r.Run.BZID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, logs.close()) }()
	b := logs.bus
	in := audit.Inputs{Report: r, Parts: c.parts, Log: b.Log(), Deltas: b.Deltas(), DeadLetters: b.DeadLetters()}
	if in.Ratings, err = audit.ReadTopic(ctx, logs.access, logs.brokers, r.Run.Topic, audit.MaxRatings); err != nil {
		return nil, err
	}
	if in.Scores, err = audit.ReadScores(ctx, logs.access, logs.brokers, host.PredictionsOf(c.dir, r.Run.BZID)); err != nil {
		return nil, err
	}
	acks, err := os.Open(filepath.Join(folder, audit.AckFile))
	switch {
	case err == nil:
		in.Acks, err = audit.DecodeAcks(acks)
		if err := errors.Join(err, acks.Close()); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if in.Source, err = c.source(r); err != nil {
		return nil, err
	}
	if logs.live {
		close, err := c.replicas(ctx, logs, r, &in)
		if err != nil {
			return nil, err
		}
		defer close()
	}
	return audit.Verify(ctx, in)
}

// job proves a folder that holds no report.
func (c Config) job(ctx context.Context) (_ []audit.Check, err error) {
	if _, err := os.Stat(filepath.Join(c.dir, "training")); err != nil && (c.nats == "" || c.kafka == "") {
		return nil, fmt.Errorf("%s is no data folder of demo or up, and not both --nats and --kafka name the logs of roles that run by themselves: %w", c.dir, err)
	}
	logs, err := c.open(ctx, c.bzid)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, logs.close()) }()
	lineage, err := follow.Replay(ctx, logs.bus.Log(), registry.Lineage.Only(c.bzid), follow.End)
	if err != nil {
		return nil, err
	}
	started := lineage.Jobs[host.JobName].Started.V
	if started == nil {
		return nil, fmt.Errorf("the log of %s knows no job %s in namespace %s: --bzid names another", c.dir, host.JobName, c.bzid)
	}
	in := audit.JobInputs{BZID: c.bzid, Parts: c.parts, Job: host.JobName, Log: logs.bus.Log(), Deltas: logs.bus.Deltas(), Shards: int(started.GetShards())}
	in.Bounds = func(ctx context.Context) (first, ends map[int32]int64, err error) {
		return logs.access.Bounds(ctx, logs.brokers, started.GetTopic())
	}
	if logs.live {
		j, err := demo.OpenJob(ctx, c.connection(logs.natsURL, c.bzid))
		if err != nil {
			return nil, err
		}
		defer func() { _ = j.Close() }() // nothing is written by this connection
		if in.Hashes, err = j.LiveHashes(ctx); err != nil {
			return nil, err
		}
	}
	return audit.VerifyJob(ctx, in)
}

// source is the ratings once more, if they can be had.
func (c Config) source(r *report.Report) (audit.Source, error) {
	switch {
	case c.data != "":
		f, err := gen.OpenCSV(c.data, nil)
		if err != nil {
			return nil, err
		}
		return gen.Limit(f, int(r.RatingsRead)), nil
	case r.Run.Data == r.Run.Stream && r.Run.Stream == gen.SimulatorName(r.Seed):
		return gen.NewSimulator(gen.SimulatorConfig{Seed: r.Seed, Count: int(r.RatingsRead)})
	}
	return nil, nil
}

// replicas adds the rows ports of everything that serves now.
func (c Config) replicas(ctx context.Context, logs *openedLogs, r *report.Report, in *audit.Inputs) (func(), error) {
	j, err := demo.OpenJob(ctx, c.connection(logs.natsURL, r.Run.BZID))
	if err != nil {
		return nil, err
	}
	close := func() { _ = j.Close() } // nothing is written by this connection
	if j.Rows, err = c.rowKeys().Load(); err != nil {
		close()
		return nil, fmt.Errorf("%w: --%s-… or --nats-…: %w", flags.ErrUsage, host.RowsTLS, err)
	}
	serving, hangUp, err := j.Serving(ctx, r.Run.Model)
	if err != nil {
		close()
		return nil, err
	}
	in.Replicas = serving
	return func() { hangUp(); close() }, nil
}

// rowKeys are the certificates of rows ports: the ones that are named, or those that NATS is shown.
func (c Config) rowKeys() mtls.Files {
	if nats := c.keys.Keys; c.rows == (mtls.Files{}) && nats.Cert != "" && nats.CA != "" {
		return nats
	}
	return c.rows
}

// openedLogs are the logs of a data folder: those of the process that holds it, or
// opened here while nobody does.
type openedLogs struct {
	bus     bus.Bus
	natsURL string
	access  *kafka.Access
	brokers []string
	live    bool
	nats    *natsserver.Server
	broker  *kafka.Broker
	data    *host.DataDir
}

func (c Config) open(ctx context.Context, bzid string) (_ *openedLogs, err error) {
	l := &openedLogs{natsURL: c.nats, brokers: flags.List(c.kafka)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.access, err = c.brokers.Access(); err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	l.data, err = host.OpenDataDir(c.dir)
	if errors.Is(err, host.ErrInUse) {
		r, rerr := host.ReadRunning(c.dir)
		if rerr != nil {
			return nil, errors.Join(err, rerr)
		}
		l.live = true
		l.natsURL, l.brokers = cmp.Or(l.natsURL, r.NATS), flags.List(cmp.Or(c.kafka, r.Kafka))
	} else if err != nil {
		return nil, err
	}
	if l.natsURL == "" {
		if l.nats, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(l.data.Path, "nats")}); err != nil {
			return nil, err
		}
		l.natsURL = l.nats.URL()
	}
	if len(l.brokers) == 0 {
		if l.access != nil {
			return nil, fmt.Errorf("%w: the Kafka broker of %s is embedded and spoken to in the clear: take --kafka-tls and --kafka-sasl away, or name other brokers with --kafka", flags.ErrUsage, c.dir)
		}
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		if l.broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(l.data.Path, "kafka"), Addr: "127.0.0.1:0", Log: log}); err != nil {
			return nil, err
		}
		l.brokers = []string{l.broker.Addr()}
	}
	conn := c.connection(l.natsURL, bzid)
	l.bus, err = conn.Dial(ctx, "monolith verify")
	return l, err
}

func (l *openedLogs) close() error {
	var errs []error
	if l.bus != nil {
		errs = append(errs, l.bus.Close())
	}
	if l.broker != nil {
		errs = append(errs, l.broker.Close())
	}
	if l.nats != nil {
		errs = append(errs, l.nats.Close())
	}
	if l.data != nil {
		errs = append(errs, l.data.Close())
	}
	return errors.Join(errs...)
}
