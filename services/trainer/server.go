package trainer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/features"
	"github.com/monolith-go/monolith/services/trainer/hostcall"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/step"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

const (
	author     = chief.Author // of facts and letters
	kind       = "training"   // of its container
	serverType = "worker"

	lookAtTopicEvery = 10 * time.Second
	lagEvery         = 5 * time.Second

	heartbeatEvery = 500 * time.Millisecond
	drain          = 3 * time.Second // for the batches under way at the end
)

// Server is one trainer.
type Server struct {
	cfg      Config
	env      services.Env
	log      *slog.Logger
	tracer   trace.Tracer
	source   source.Source
	answered *warmup.Source // nil: exports take no requests along
	m        *metrics
	ready    chan struct{}

	reportEvery, lookAtTopicEvery, lagEvery time.Duration

	catalog  *follow.Follower[models.State]
	plan     *follow.Follower[plan.State]
	fleet    *follow.Follower[fleet.State]
	lineage  *follow.Follower[lineage.State]
	requests *follow.Follower[requests.State]
	begin    uint64 // the log's end when Run began

	shards *shards.Set

	controllerKeys *tls.Config

	// Set by prepare before it closes prepared.
	engine   *step.Engine
	dense    *shards.Dense
	prepared chan struct{}

	dumps dumps
	calls *hostcall.Calls // nil: there are none

	learners sync.WaitGroup
	work     underWay
	lags     sync.Map // partition -> int64, the records that are left of those that this trainer learns

	mu   sync.Mutex // guards last, and orders this trainer's facts
	last uint64     // sequence of its last fact
}

var _ services.Role = (*Server)(nil)

// New checks cfg, fills in defaults and starts nothing.
func New(cfg Config, env services.Env) (*Server, error) {
	cfg.Topic = cmp.Or(cfg.Topic, cfg.Files.Name(), kafka.TopicOf(env.BZID, "ratings"))
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Dir = filepath.Clean(cfg.Dir)
	s := &Server{cfg: cfg, env: env, log: env.Log, tracer: env.Tracer, ready: make(chan struct{}), prepared: make(chan struct{}), reportEvery: reportEvery, lookAtTopicEvery: lookAtTopicEvery, lagEvery: lagEvery}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = s.log.With("job", cfg.Job, "trainer", cfg.Name)
	if s.tracer == nil {
		s.tracer = noop.NewTracerProvider().Tracer("")
	}
	var err error
	if s.source, err = cfg.source(env, s.log); err != nil {
		return nil, err
	}
	if s.answered, err = cfg.answered(env.BZID); err != nil {
		return nil, err
	}
	if s.controllerKeys, err = cfg.controllerPort(env.TLS).Config(); err != nil {
		return nil, err
	}
	s.m = newMetrics(env.Metrics)
	s.dumps.out = features.Writer{Dir: cfg.Dir, Index: cfg.Index}
	log := env.Bus.Log()
	o := follow.Options{Log: s.log, Metrics: env.Metrics}
	s.catalog = follow.New(log, registry.Catalog.Only(env.BZID), o)
	s.plan = follow.New(log, registry.Plan.Only(env.BZID), o)
	s.fleet = follow.New(log, registry.Fleet.Only(env.BZID), o)
	s.lineage = follow.New(log, registry.Lineage.Only(env.BZID), o)
	s.requests = follow.New(log, requests.View(env.BZID, cfg.Job, env.Bus.Commands().Asked), o)
	return s, nil
}

// Ready is closed once the trainer has caught up with the log. It may still wait for
// its model, its topic, its shards, or for the job to be started.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run trains until ctx ends or the job is stopped, lets the batches under way finish
// and gives its partitions back. Both are clean ends.
func (s *Server) Run(ctx context.Context) error {
	err := s.run(ctx)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("trainer: %w", err)
}

func (s *Server) run(ctx context.Context) error {
	var err error
	if s.begin, err = s.env.Bus.Log().Last(ctx); err != nil {
		return fmt.Errorf("find the end of the log: %w", err)
	}
	pool := s.env.Local.NewPool(s.env.Rows)
	defer pool.Close()
	s.shards = shards.New(s.cfg.Job, s.cfg.Shards, s.fleet, pool, s.env.Metrics, s.env.Health)
	s.calls = hostcall.New(s.cfg.HostCall, events.Escape(s.cfg.Name), s.shards.GlobalStep, s.log)

	defer func() {
		if s.dense != nil {
			s.dense.Close()
		}
	}()

	// Views outlive the training that reads them.
	base, endViews := context.WithCancel(context.WithoutCancel(ctx))
	vg, base := errgroup.WithContext(base)
	vg.Go(func() error { return s.catalog.Run(base) })
	vg.Go(func() error { return s.plan.Run(base) })
	vg.Go(func() error { return s.fleet.Run(base) })
	vg.Go(func() error { return s.lineage.Run(base) })
	vg.Go(func() error { return s.requests.Run(base) })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(base, cancel) // a view that fails ends the training
	defer stop()

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		beats := role.NewHeartbeats(s.env, heartbeatEvery, s.heartbeat)
		beats.Run(gctx)
		beats.Leave(gctx)
		return nil
	})
	g.Go(func() error {
		err := s.works(gctx)
		cancel() // the job is over: so is the heartbeat
		return err
	})
	err = g.Wait()
	endViews()
	if verr := vg.Wait(); verr != nil {
		err = verr
	}
	return err
}

// works waits for what training needs and trains.
func (s *Server) works(ctx context.Context) error {
	if !role.Ready(ctx, s.catalog.Ready(), s.plan.Ready(), s.fleet.Ready(), s.lineage.Ready(), s.requests.Ready()) {
		return nil
	}
	close(s.ready)
	var err error
	if s.last, err = s.env.Bus.Log().LastOf(ctx, s.own()); err != nil {
		return fmt.Errorf("find the end of %s: %w", s.own(), err)
	}

	soft, cancel := context.WithCancel(ctx)
	defer cancel()
	hard, broken := context.WithCancel(context.WithoutCancel(ctx))
	defer broken()
	defer context.AfterFunc(soft, func() {
		t := time.AfterFunc(drain, broken)
		context.AfterFunc(hard, func() { t.Stop() })
	})()
	g, soft := errgroup.WithContext(soft)
	g.Go(func() error { return s.prepare(soft) })
	g.Go(func() error { return s.report(soft) })
	g.Go(func() error { s.calls.Run(soft); return nil })
	g.Go(func() error { return s.chief().Lead(soft) })
	g.Go(func() error {
		defer cancel()
		return s.train(soft, hard)
	})
	err = g.Wait()
	s.learners.Wait()
	s.endDump(context.WithoutCancel(ctx))
	return err
}

// untilStopped returns when the job was stopped after this trainer began, or ctx ends.
// A job that runs under another configuration is an error: trainers that disagree about
// its shards or partitions would break its order.
func (s *Server) untilStopped(ctx context.Context) error {
	for {
		changed := s.lineage.Changed()
		var j lineage.Job
		s.lineage.Read(func(l lineage.State) { j = l.Jobs[s.cfg.Job] })
		if j.Stopped && j.StoppedSeq > s.begin {
			s.log.Info("the job is stopped")
			return nil
		}
		if b := j.Started.V; b != nil && !j.Stopped {
			if err := s.differs(b); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// started is the jobStarted of this trainer's configuration; what belongs to the topic
// is the chief's to find out.
func (s *Server) started() *training.JobStarted {
	j := &training.JobStarted{
		Job: s.cfg.Job, ModelName: s.cfg.Model, Topic: s.cfg.Topic,
		Shards: uint32(s.cfg.Shards), Deterministic: s.cfg.Deterministic, SpecHash: s.engine.Hash(),
		Overrides: s.cfg.Overrides,
	}
	if f := s.cfg.input().Format; f != input.JSON {
		j.Format = f.String()
	}
	return j
}

// differs says why a job that runs as b is not the one this trainer was started for, nil if
// it is. A job begun before declarations were hashed runs as any of them. The model must
// be prepared.
func (s *Server) differs(b *training.JobStarted) error {
	mine, b := s.started(), proto.CloneOf(b)
	mine.Format, b.Format = cmp.Or(mine.GetFormat(), input.JSON.String()), cmp.Or(b.GetFormat(), input.JSON.String())
	mine.Begins, mine.Files, mine.Parent = b.GetBegins(), s.cfg.Files.Same(b.GetFiles()), b.GetParent()
	mine.Overrides = b.GetOverrides() // what they steer is compared
	mine.Partitions, mine.TopicId, mine.Ends = b.GetPartitions(), b.GetTopicId(), b.GetEnds()
	if b.GetSpecHash() == "" {
		mine.SpecHash = ""
	}
	if proto.Equal(b, mine) {
		return nil
	}
	if b.GetSpecHash() != mine.GetSpecHash() {
		return fmt.Errorf("job %s learns another declaration of model %s (hash %.12s) than the one in force (%.12s): declare that one again, or stop the job before it learns the new one", s.cfg.Job, s.cfg.Model, b.GetSpecHash(), mine.GetSpecHash())
	}
	return fmt.Errorf("job %s runs with %s: start this trainer alike, stop the job first, or name another", s.cfg.Job, differences(b, mine))
}

// differences names the fields in which a running job is not what a trainer was started for.
func differences(runs, mine *training.JobStarted) string {
	var out []string
	fields := runs.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if a, b := runs.ProtoReflect().Get(f), mine.ProtoReflect().Get(f); !a.Equal(b) {
			out = append(out, fmt.Sprintf("%s %v, not %v", f.JSONName(), a, b))
		}
	}
	return strings.Join(out, " and ")
}

// latestRecord is how late a record may be dated. The newest checkpoint's time counts where
// this machine's clock has fallen behind it.
func (s *Server) latestRecord() time.Time {
	now := time.Now()
	if at := s.job().SavedUnix; at > now.Unix() {
		now = time.Unix(at, 0)
	}
	return now.Add(s.cfg.RecordAhead)
}

// own is the subject of this trainer's facts.
func (s *Server) own() events.Subject {
	return training.TrainerSubject(s.env.BZID, s.cfg.Job, s.cfg.Name)
}

// tell appends facts of this trainer, in the order of the calls.
func (s *Server) tell(ctx context.Context, facts ...*training.Event) error {
	if len(facts) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := role.Store{Log: s.env.Bus.Log(), Source: author, Wait: func(context.Context, uint64) error { return nil }}
	ids := make([]string, len(facts))
	for i := range ids {
		ids[i] = rand.Text()
	}
	_, seqs, err := st.Append(ctx, func() ([]bus.Draft, error) {
		drafts := make([]bus.Draft, len(facts))
		for i, e := range facts {
			drafts[i] = bus.Draft{Subject: s.own(), Event: e, Expect: s.last, Header: events.Header{ID: ids[i]}}
		}
		return drafts, nil
	})
	if err == nil {
		s.last = seqs[len(seqs)-1]
	}
	return err
}

// heartbeat is what the registry hears of this trainer.
func (s *Server) heartbeat() *replica.Heartbeat {
	return &replica.Heartbeat{Container: &container.Container{
		Id: s.cfg.Name, Kind: kind, Job: s.cfg.Job, ServerType: serverType, Index: int32(s.cfg.Index), Shard: -1,
	}}
}
