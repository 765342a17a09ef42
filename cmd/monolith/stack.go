package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/freeport"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

const (
	ratingsTopic     = "ratings"     // in the namespace demo, where no flag names another
	predictionsTopic = "predictions" // likewise
	jobName          = "movies"
	modelName        = "movies"
	hostName         = "local"

	// lastBreath is how long the ports of an earlier start in the same folder are awaited.
	lastBreath = 2 * time.Second
)

// stackConfig says how large the whole is and where it lives.
type stackConfig struct {
	conn        connect.Config
	kafka       string
	topics      topicNames
	keep        retention
	dir         string
	shards      int
	replicas    int
	trainers    int
	partitions  int
	batch       int
	linger      time.Duration
	sync        time.Duration
	checkpoints time.Duration
	processes   bool
	determinism bool
	status      string

	insecureStatus bool
	natsPort       int
	kafkaPort      int
	zkPort         int
	zkWords        []string
	zkSuper        string
	grpcPort       int
	restPort       int
	spans          bool
}

func (c *stackConfig) register(fs *pflag.FlagSet, dir string) {
	fs.StringVar(&c.conn.NATS, "nats", os.Getenv(connect.EnvNATS), "NATS `URL`; empty: an embedded server (MONOLITH_NATS)")
	fs.StringVar(&c.conn.Archive, "archive", flags.Env("MONOLITH_ARCHIVE", ""), connect.ArchiveUsage)
	fs.StringVar(&c.conn.BZID, "bzid", flags.Env("MONOLITH_BZID", "demo"), "business `id`: the namespace of all subjects and paths (MONOLITH_BZID)")
	fs.StringVar(&c.conn.Level, "log-level", flags.Env("MONOLITH_LOG", "warn"), "debug, info, warn or error (MONOLITH_LOG)")
	fs.StringVar(&c.kafka, "kafka", os.Getenv("MONOLITH_KAFKA"), "Kafka `brokers`; empty: an embedded one (MONOLITH_KAFKA)")
	c.topics.register(fs)
	c.keep.register(fs)
	fs.StringVar(&c.dir, "dir", dir, "`folder` of everything that lasts; empty: a temporary one")
	fs.IntVar(&c.shards, "shards", 2, "training parameter-server shards, and serving shards")
	fs.IntVar(&c.replicas, "replicas", 2, "replicas of each serving shard")
	fs.IntVar(&c.trainers, "trainers", 2, "trainers")
	fs.IntVar(&c.partitions, "partitions", 4, "partitions of the ratings topic, when it is created here; one that is there may have more")
	fs.IntVar(&c.batch, "batch", 64, "most ratings of one training step")
	fs.DurationVar(&c.linger, "linger", 10*time.Millisecond, "time a training step waits for more ratings")
	fs.DurationVar(&c.sync, "sync-interval", 25*time.Millisecond, "time between two deltas of a shard")
	fs.DurationVar(&c.checkpoints, "checkpoint-interval", 30*time.Second, "time between checkpoints; 0: only on request")
	fs.BoolVar(&c.processes, "processes", false, "run each role as a process of its own")
	fs.BoolVar(&c.determinism, "deterministic", false, "train in one fixed order, so that equal inputs give equal tables")
	fs.StringVar(&c.status, "status", "127.0.0.1:0", "listen `address` of /livez, /readyz and /metrics")
	fs.BoolVar(&c.insecureStatus, "insecure-status", false, "let other machines reach the status address, though it is neither encrypted nor authenticated")
	fs.IntVar(&c.natsPort, "nats-port", 4222, "`port` of the embedded NATS")
	fs.IntVar(&c.kafkaPort, "kafka-port", 9092, "`port` of the embedded Kafka broker")
	fs.IntVar(&c.zkPort, "zk-port", 2181, "`port` of the ZooKeeper view")
	fs.StringSliceVar(&c.zkWords, "zk-words", nil, "four-letter words that the ZooKeeper port answers; * is all (default: those of replica-registry)")
	fs.StringVar(&c.zkSuper, "zk-super-digest-file", "", "`file` with the digest of the one who may do everything on the ZooKeeper port (default: nobody)")
	fs.IntVar(&c.grpcPort, "grpc-port", 8500, "`port` of the entry's TensorFlow Serving gRPC API")
	fs.IntVar(&c.restPort, "rest-port", 8501, "`port` of the entry's REST API")
	fs.BoolVar(&c.spans, "traces", false, "write spans to traces.jsonl in the folder")
}

func (c *stackConfig) validate() error {
	if err := c.conn.Validate(); err != nil {
		return err
	}
	var errs []error
	for flag, v := range map[string]int{"shards": c.shards, "replicas": c.replicas, "trainers": c.trainers, "partitions": c.partitions, "batch": c.batch} {
		if v < 1 || v > 1024 {
			errs = append(errs, fmt.Errorf("--%s %d: give 1 to 1024", flag, v))
		}
	}
	errs = append(errs, c.topics.of(c.conn.BZID).validate(), c.keep.validate())
	if c.sync < time.Millisecond || c.sync > time.Minute {
		errs = append(errs, fmt.Errorf("--sync-interval %v: give 1ms to 1m", c.sync))
	}
	if err := (&replicaregistry.Config{ZK: replicaregistry.ZKPort{Words: c.zkWords}}).Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	return nil
}

// stack is everything running: the logs, embedded or not, and all roles around them.
type stack struct {
	cfg    stackConfig
	log    *slog.Logger
	reg    *prometheus.Registry
	health *health.State
	spans  *tracing
	tasks  []task
	notes  []string // what a person should know, such as a port that was taken

	data      *dataDir
	nats      *jetstream.Server
	broker    *kafka.Broker
	status    *statusServer
	traceFile string
	claims    []io.Closer // of ports
}

// startLogs opens the folder, NATS and Kafka; the roles come with run.
func startLogs(ctx context.Context, cfg stackConfig) (_ *stack, err error) {
	well := health.New()
	cfg.topics = cfg.topics.of(cfg.conn.BZID)
	s := &stack{cfg: cfg, reg: newRegistry(well), health: well}
	if s.log, err = cfg.conn.Logger(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.data, err = openDataDir(cfg.dir); err != nil {
		return nil, err
	}
	s.cfg.dir = s.data.path
	if cfg.spans {
		s.traceFile = filepath.Join(s.cfg.dir, "traces.jsonl")
	}
	if s.spans, err = newTracing(s.traceFile, "monolith"); err != nil {
		return nil, err
	}
	if err := s.ports(); err != nil {
		return nil, err
	}
	if s.cfg.conn.NATS == "" {
		s.nats, err = jetstream.StartServer(jetstream.ServerConfig{Dir: filepath.Join(s.cfg.dir, "nats"), Port: s.cfg.natsPort, Log: s.log.With("server", "nats")})
		if err != nil {
			return nil, fmt.Errorf("start the embedded NATS in %s: %w", s.cfg.dir, err)
		}
		s.cfg.conn.NATS = s.nats.URL()
	} else if warning := connect.Unsynced(s.cfg.conn.NATS); warning != "" {
		s.log.Warn(warning)
		s.notes = append(s.notes, warning)
	}
	if s.cfg.kafka == "" {
		s.broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(s.cfg.dir, "kafka"), Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cfg.kafkaPort)),
			Topics: s.topics(), Retention: s.retention(), Log: s.log.With("server", "kafka")})
		if err != nil {
			return nil, fmt.Errorf("start the embedded Kafka broker in %s: %w", s.cfg.dir, err)
		}
		s.cfg.kafka = s.broker.Addr()
	} else {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		if err := kafka.EnsureTopics(ctx, s.brokers(), s.topics()); err != nil {
			return nil, fmt.Errorf("make the topics at %s: %w", s.cfg.kafka, err)
		}
	}
	if s.status, err = serveStatus(cfg.status, cfg.insecureStatus, s.reg, s.health); err != nil {
		return nil, err
	}
	s.tasks = s.plan()
	return s, s.data.announce(running{PID: os.Getpid(), BZID: cfg.conn.BZID, NATS: s.cfg.conn.NATS, Kafka: s.cfg.kafka, Predictions: s.cfg.topics.predictions, Status: s.status.addr})
}

func (s *stack) brokers() []string { return flags.List(s.cfg.kafka) }

func (s *stack) topics() map[string]int32 {
	return map[string]int32{s.cfg.topics.ratings: int32(s.cfg.partitions), s.cfg.topics.predictions: 1}
}

// retention is how long the embedded broker keeps records, by topic.
func (s *stack) retention() map[string]time.Duration {
	return map[string]time.Duration{s.cfg.topics.ratings: s.cfg.keep.ratings, s.cfg.topics.predictions: s.cfg.keep.predictions}
}

func (s *stack) path(parts ...string) string {
	return filepath.Join(append([]string{s.cfg.dir}, parts...)...)
}

// exports is where the job's models appear.
func (s *stack) exports() string { return s.path("training", jobName, "exported_models") }

// port is want if it becomes free on loopback before the deadline, else any that is,
// with a note; 0 wants any. It is the stack's until close, also while the role behind it is
// started again.
func (s *stack) port(what string, want int, until time.Time) (int, error) {
	for want != 0 {
		err := s.claim(want)
		if err == nil {
			return want, nil
		}
		if !time.Now().Before(until) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	port, err := freeport.Find()
	if err == nil {
		err = s.claim(port)
	}
	if err != nil {
		return 0, fmt.Errorf("find a port for %s: %w", what, err)
	}
	if want != 0 {
		s.notes = append(s.notes, fmt.Sprintf("port %d is taken, so %s got %d", want, what, port))
	}
	return port, nil
}

// ports finds the ports of what a person or a client dials.
func (s *stack) ports() error {
	until := time.Now()
	if _, err := readRunning(s.cfg.dir); err == nil {
		// The processes of a start that was killed end a moment after it.
		until = until.Add(lastBreath)
	}
	for _, p := range []struct {
		what string
		port *int
		skip bool
	}{
		{"NATS", &s.cfg.natsPort, s.cfg.conn.NATS != ""}, {"Kafka", &s.cfg.kafkaPort, s.cfg.kafka != ""},
		{"ZooKeeper", &s.cfg.zkPort, false}, {"gRPC", &s.cfg.grpcPort, false}, {"REST", &s.cfg.restPort, false},
	} {
		if p.skip {
			continue
		}
		port, err := s.port(p.what, *p.port, until)
		if err != nil {
			return err
		}
		*p.port = port
	}
	return nil
}

// plan lists the roles with the very flags that a pod would give them.
func (s *stack) plan() []task {
	loopback := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	snapshots := func(name string) []string { return []string{"--snapshot-dir", s.path("snapshots", name)} }
	n, c := strconv.Itoa, s.cfg
	tasks := []task{
		{name: "portal", role: "portal", control: true, args: snapshots("portal")},
		{name: "publisher", role: "publisher", control: true, args: snapshots("publisher")},
		{name: "replica-registry", role: "replica-registry", control: true, args: append(snapshots("replica-registry"),
			append(c.zkFlags(), "--zk-listen", loopback(c.zkPort))...)},
		{name: "model-sync", role: "model-sync", control: true, args: append(snapshots("model-sync"), "--host", hostName, "--dir", s.path("copies"))},
	}
	serving := func(name string, shard, replica int, kind, grpc, rest string) task {
		return task{name: name, role: "tfs-supervisor", args: []string{"--container", name, "--server-type", kind,
			"--shard", n(shard), "--replica", n(replica), "--host", hostName, "--server-dir", s.path("servers", name)},
			server: []string{"--grpc", grpc, "--http", rest, "--kafka", c.kafka, "--predictions-topic", c.topics.predictions, "--base-dir", s.path("copies")}}
	}
	tasks = append(tasks, serving("entry-0", -1, 0, "entry", loopback(c.grpcPort), loopback(c.restPort)))
	for shard := range c.shards {
		for replica := range c.replicas {
			tasks = append(tasks, serving(fmt.Sprintf("serving-%d-%d", shard, replica), shard, replica, "ps", loopback(0), loopback(0)))
		}
	}
	for shard := range c.shards {
		tasks = append(tasks, task{name: "ps-" + n(shard), role: "ps", args: append(snapshots("ps-"+n(shard)),
			"--job", jobName, "--model", modelName, "--shard", n(shard), "--shards", n(c.shards), "--dir", s.path("training", jobName),
			"--sync-interval", c.sync.String(), "--deterministic="+strconv.FormatBool(c.determinism))})
	}
	for i := range c.trainers {
		tasks = append(tasks, task{name: "trainer-" + n(i), role: "trainer", args: []string{
			"--job", jobName, "--model", modelName, "--name", "trainer-" + n(i), "--index", n(i), "--kafka", c.kafka, "--topic", c.topics.ratings, "--label-range", "0,5", "--time-field", "timestamp",
			"--shards", n(c.shards), "--dir", s.path("training", jobName), "--batch", n(c.batch), "--linger", c.linger.String(),
			"--checkpoint-every", c.checkpoints.String(), "--deterministic=" + strconv.FormatBool(c.determinism)}})
	}
	return tasks
}

// zkFlags are those of the ZooKeeper port that were given.
func (c stackConfig) zkFlags() (flags []string) {
	if len(c.zkWords) > 0 {
		flags = append(flags, "--zk-words", strings.Join(c.zkWords, ","))
	}
	if c.zkSuper != "" {
		flags = append(flags, "--zk-super-digest-file", c.zkSuper)
	}
	return flags
}

// run keeps every role running until ctx ends, and returns when all have drained. The
// control roles come first and go last, so that the others are heard. ready is called
// once, when each role has been ready.
func (s *stack) run(ctx context.Context, ready func()) error {
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

func (s *stack) start(ctx context.Context, control bool, giveUp context.CancelCauseFunc) *taskGroup {
	c := &taskGroup{ready: make(chan struct{})}
	var pending atomic.Int64
	pending.Store(1)
	settle := func() {
		if pending.Add(-1) == 0 {
			close(c.ready)
		}
	}
	defer settle()
	for _, t := range s.tasks {
		if t.control != control {
			continue
		}
		pending.Add(1)
		once := sync.OnceFunc(settle)
		c.running.Go(func() {
			defer once()
			if err := s.supervise(ctx, t, once); err != nil {
				giveUp(fmt.Errorf("%s: %w", t.name, err))
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

// close stops the logs. Call it after run has returned.
func (s *stack) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	if s.status != nil {
		errs = append(errs, s.status.close(ctx))
	}
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.nats != nil {
		errs = append(errs, s.nats.Close())
	}
	if s.spans != nil {
		errs = append(errs, s.spans.close(ctx))
	}
	for _, c := range s.claims {
		errs = append(errs, c.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.close())
	}
	return errors.Join(errs...)
}
