// Package host embeds and supervises the roles: one of them in a process of its own, or all
// of them in one process with NATS and Kafka beside them.
package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/nn"
)

// The one job of a stack, its model, and its topics in the namespace demo where no flag names
// others.
const (
	JobName          = "movies"
	ModelName        = "movies"
	RatingsTopic     = "ratings"
	predictionsTopic = "predictions"
)

const (
	hostName = "local"
	// portWait is how long the ports of an earlier start in the same folder are awaited.
	portWait = 2 * time.Second
)

// Stack is everything running: the logs, embedded or not, and all roles around them.
type Stack struct {
	Config    Config // with the addresses and ports that were found
	Log       *slog.Logger
	Metrics   *prometheus.Registry
	Notes     []string           // what a person should know, such as a port that was taken
	NATS      *natsserver.Server // nil: it is not embedded
	Broker    *kafka.Broker      // likewise
	Access    *kafka.Access      // to brokers that are not
	TraceFile string             // "": no spans are written
	Tasks     []Task             // to be changed before Run alone, as is Surveys
	Surveys   *files.Surveys     // of the files that trainers learn; nil: each makes its own
	Stdin     *files.Pipe        // what trainers learn in place of files; likewise

	health *health.State
	local  *rowwire.Local // the servers of roles that run here
	rows   *tls.Config    // of the row protocol's two ends; nil: plain text
	lanes  *nn.Lanes      // what they compute on
	told   *telemetry
	data   *DataDir
	status *statusServer
	heap   func()      // ends the heap profiles
	claims []io.Closer // of ports
}

// Start opens the folder, NATS and Kafka; the roles come with Run.
func Start(ctx context.Context, cfg Config) (_ *Stack, err error) {
	well := health.New()
	cfg.Topics = cfg.Topics.Of(cfg.Logs.BZID)
	s := &Stack{Config: cfg, Metrics: newRegistry(well), health: well, local: rowwire.NewLocal(), lanes: nn.NewLanes(0)}
	if s.Log, err = cfg.Logs.Logger(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.data, err = OpenDataDir(cfg.Dir); err != nil {
		return nil, err
	}
	s.Config.Dir = s.data.Path
	if cfg.Spans {
		s.TraceFile = filepath.Join(s.Config.Dir, "traces.jsonl")
	}
	if s.told, err = newTelemetry(ctx, s.TraceFile, "monolith", cfg.OTLP, s.Metrics, s.Log); err != nil {
		return nil, err
	}
	s.Log = s.told.logger(s.Log)
	if s.heap, err = heapFiles(s.Log); err != nil {
		return nil, err
	}
	if err := s.ports(); err != nil {
		return nil, err
	}
	if s.Config.Logs.NATS == "" {
		if err := s.nats(); err != nil {
			return nil, err
		}
	} else if warning := connect.Unsynced(s.Config.Logs.NATS); warning != "" {
		s.Log.Warn(warning)
		s.Notes = append(s.Notes, warning)
	}
	if err := s.kafka(ctx); err != nil {
		return nil, err
	}
	if s.rows, err = ofBothEnds(cfg.Ports.TLS).Load(); err != nil {
		return nil, fmt.Errorf("%w: --%s-…: %w", flags.ErrUsage, mtls.Shared, err)
	}
	if s.status, err = cfg.Ports.status().serve(s.Metrics, s.health); err != nil {
		return nil, err
	}
	s.Tasks = s.plan()
	return s, s.data.announce(Running{PID: os.Getpid(), BZID: cfg.Logs.BZID, NATS: s.Config.Logs.NATS, Kafka: s.Config.Kafka, Predictions: s.Config.Topics.Predictions, Status: s.status.addr})
}

// nats starts the embedded server; the roles here show it the certificate of every port.
func (s *Stack) nats() error {
	keys, err := s.Config.Ports.keys("nats", s.Config.NATSPort)
	if err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	s.NATS, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(s.Config.Dir, "nats"), Host: s.Config.Ports.host(), Port: s.Config.NATSPort, TLS: keys, Log: s.Log.With("server", "nats")})
	if err != nil {
		return fmt.Errorf("start the embedded NATS in %s: %w", s.Config.Dir, err)
	}
	s.Config.Logs.NATS = s.NATS.URL()
	if keys != nil {
		s.Config.Logs.Keys = s.Config.Logs.Keys.Or(s.Config.Ports.TLS)
	}
	return nil
}

// kafka starts the embedded broker, or makes the topics where another one is given.
func (s *Stack) kafka(ctx context.Context) (err error) {
	switch {
	case s.Config.NoKafka:
	case s.Config.Kafka == "":
		if err := s.Config.Ports.kafka(); err != nil {
			return fmt.Errorf("%w: %w", flags.ErrUsage, err)
		}
		s.Broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(s.Config.Dir, "kafka"), Addr: s.Config.Ports.at(s.Config.KafkaPort),
			Topics: s.Topics(), Retention: s.retention(), Log: s.Log.With("server", "kafka")})
		if err != nil {
			return fmt.Errorf("start the embedded Kafka broker in %s: %w", s.Config.Dir, err)
		}
		s.Config.Kafka = s.Broker.Addr()
	default:
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		if s.Access, err = s.Config.KafkaAccess.Access(); err != nil {
			return err
		}
		if err := s.Access.EnsureTopics(ctx, s.Brokers(), s.Topics()); err != nil {
			return fmt.Errorf("make the topics at %s: %w", s.Config.Kafka, err)
		}
	}
	return nil
}

// Brokers are Kafka's addresses.
func (s *Stack) Brokers() []string { return flags.List(s.Config.Kafka) }

// Topics are those that the stack needs, with their partitions.
func (s *Stack) Topics() map[string]int32 {
	return map[string]int32{s.Config.Topics.Ratings: int32(s.Config.Partitions), s.Config.Topics.Predictions: 1}
}

// retention is how long the embedded broker keeps records, by topic.
func (s *Stack) retention() map[string]time.Duration {
	return map[string]time.Duration{s.Config.Topics.Ratings: s.Config.Keep.Ratings, s.Config.Topics.Predictions: s.Config.Keep.Predictions}
}

func (s *Stack) path(parts ...string) string {
	return filepath.Join(append([]string{s.Config.Dir}, parts...)...)
}

// Tracer records the spans of one part of the stack: those that a sampled parent began, and
// this share of the others.
func (s *Stack) Tracer(name string, share float64) trace.Tracer { return s.told.tracer(name, share) }

// Problems are what keeps the roles from their work at this moment.
func (s *Stack) Problems() []health.Problem { return s.health.Problems() }

// RowKeys is what rows ports are dialled with, nil for plain text.
func (s *Stack) RowKeys() *tls.Config { return s.rows }

// StatusAddr is where /livez, /readyz and /metrics are answered, host:port.
func (s *Stack) StatusAddr() string { return s.status.addr }

// Exports is where the job's models appear.
func (s *Stack) Exports() string { return Exports(s.Config.Dir, s.Config.job()) }

// Exports is where a job's models appear in the folder of a stack.
func Exports(dir, job string) string { return filepath.Join(dir, "training", job, "exported_models") }

// Run keeps every role running until ctx ends, and returns when all have drained. The
// control roles come first and go last, so that the others are heard. ready is called
// once, when each role has been ready.
func (s *Stack) Run(ctx context.Context, ready func()) error {
	if s.NATS != nil || s.Broker != nil {
		defer spareProcessors()()
	}
	work, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	control, stopControl := context.WithCancel(context.WithoutCancel(ctx))
	controllers := s.start(control, true, giveUp)
	if controllers.awaitReady(work) {
		workers := s.start(work, false, giveUp)
		if workers.awaitReady(work) {
			s.status.ready.Store(true)
			ready()
		}
		<-work.Done()
		workers.running.Wait()
	}
	stopControl()
	controllers.running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(work)
}

// taskGroup is tasks that start and drain together.
type taskGroup struct {
	running sync.WaitGroup
	ready   chan struct{} // closed once each has been ready, or given up
}

func (s *Stack) start(ctx context.Context, control bool, giveUp context.CancelCauseFunc) *taskGroup {
	c := &taskGroup{ready: make(chan struct{})}
	var pending atomic.Int64
	pending.Store(1)
	settle := func() {
		if pending.Add(-1) == 0 {
			close(c.ready)
		}
	}
	defer settle()
	for _, t := range s.Tasks {
		if t.control != control {
			continue
		}
		pending.Add(1)
		once := sync.OnceFunc(settle)
		c.running.Go(func() {
			defer once()
			if err := s.supervise(ctx, t, once); err != nil {
				giveUp(fmt.Errorf("%s: %w", t.Name, err))
			}
		})
	}
	return c
}

// awaitReady tells whether the group became ready before ctx ended.
func (c *taskGroup) awaitReady(ctx context.Context) bool {
	select {
	case <-c.ready:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Close stops the logs. Call it after Run has returned.
func (s *Stack) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	if s.status != nil {
		errs = append(errs, s.status.close(ctx))
	}
	if s.Broker != nil {
		errs = append(errs, s.Broker.Close())
	}
	if s.NATS != nil {
		errs = append(errs, s.NATS.Close())
	}
	if s.heap != nil {
		s.heap()
	}
	if s.told != nil {
		errs = append(errs, s.told.close(ctx))
	}
	for _, c := range s.claims {
		errs = append(errs, c.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.Close())
	}
	return errors.Join(errs...)
}
