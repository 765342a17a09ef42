// Package modelserver is the built-in model server. It speaks TensorFlow Serving's gRPC
// and REST API and the open inference protocol, loads what HandleReloadConfigRequest names, and keeps it fresh from the
// delta stream: an entry sub-model computes scores with its own dense tower and rows
// that it looks up at serving shards; a ps sub-model is such a shard, and answers the
// row protocol.
//
// Where the shards are, it learns from the fleet view alone; whose deltas to follow,
// from the plan; which export to go back to, from the lineage. It writes no facts: its
// supervisor reports its states. One without a container serves exports by itself: its views
// stay empty, and an entry has the shards that lie beside it.
package modelserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/modelserver/admission"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
	"github.com/monolith-go/monolith/services/modelserver/servables"
)

// maxMessage is the most bytes of one gRPC message.
const maxMessage = 16 << 20

// Server is one model server; it implements services.Role and http.Handler.
type Server struct {
	cfg     Config
	env     services.Env
	metrics *metrics
	// monitoring is nil unless it was asked for.
	monitoring *monitoring
	keys       portKeys

	plan    *follow.Follower[plan.State]
	fleet   *follow.Follower[fleet.State]
	lineage *follow.Follower[lineage.State]

	access      *kafka.Access // to where impressions go
	servables   *servables.Manager
	bodies      *semaphore.Weighted
	gate        *admission.Gate
	pool        *rowwire.Pool
	rows        *rows.Client
	fresh       *rows.Freshness
	scorer      *entry.Scorer
	impressions *entry.Impressions // nil: none are written
	canaries    *canaries

	ready                        chan struct{}
	stopping                     chan struct{} // closed when the ports are about to go
	grpcAddr, httpAddr, rowsAddr string        // fixed before ready is closed
}

var _ services.Role = (*Server)(nil)

// New checks cfg and allocates; nothing is started.
func New(cfg Config, env services.Env) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.settle(env.TLS)
	if cfg.PredictionsTopic == "" {
		cfg.PredictionsTopic = kafka.TopicOf(env.BZID, impression.Topic)
	}
	ports, err := openPorts(cfg, env)
	if err != nil {
		return nil, err
	}
	monitoring, err := newMonitoring(cfg.MonitoringConfigFile)
	if err != nil {
		return nil, fmt.Errorf("modelserver: %w", err)
	}
	batching, err := cfg.takePlatform()
	if err != nil {
		return nil, fmt.Errorf("modelserver: %w", err)
	}
	batcher, err := newBatcher(cfg, batching, env.Metrics)
	if err != nil {
		return nil, fmt.Errorf("modelserver: %w", err)
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Tracer == nil {
		env.Tracer = noop.NewTracerProvider().Tracer("")
	}
	env.Log = env.Log.With("container", cfg.Container)
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	s := &Server{
		cfg: cfg, env: env, metrics: newMetrics(env.Metrics), monitoring: monitoring, keys: ports,
		plan:    follow.New(env.Bus.Log(), registry.Plan.Only(env.BZID), o),
		fleet:   follow.New(env.Bus.Log(), registry.Fleet.Only(env.BZID), o),
		lineage: follow.New(env.Bus.Log(), registry.Lineage.Only(env.BZID), o),
		pool:    env.Local.NewPool(env.Rows),
		ready:   make(chan struct{}), stopping: make(chan struct{}),
	}
	m := rows.NewMetrics(env.Metrics, cfg.Container)
	s.rows = rows.NewClient(s.fleet, s.pool, m, cfg.LookupTimeout, cfg.LookupRetries)
	s.fresh = rows.NewFreshness(env.BZID, cfg.Container, env.Bus.Signals(), m, env.Log)
	slots := entry.Slots(env.Lanes)
	if batcher != nil {
		slots = batcher.Threads()
	}
	s.gate = admission.New(slots, s.metrics.refused)
	s.scorer = &entry.Scorer{Rows: s.rows, Lanes: env.Lanes, MaxBatch: cfg.MaxBatch, Batcher: batcher, Joined: s.metrics.joined}
	var warmUp servables.WarmUp
	if cfg.EnableModelWarmUp {
		warmUp = s.warmUp
	}
	s.servables = servables.New(servables.Options{
		BZID: env.BZID, Container: cfg.Container, Model: cfg.OfModel, Frozen: cfg.Frozen, Linger: cfg.Linger, Poll: cfg.PollInterval, LoadBytes: cfg.LoadBytes, LoadRate: cfg.LoadRate, Turn: cfg.LoadTurn,
		Beside: cfg.alone, LookOnce: cfg.lookOnce, Loads: cfg.LoadThreads, Retries: cfg.LoadRetries, RetryEvery: time.Duration(cfg.LoadRetryMicros) * time.Microsecond,
		Bus: env.Bus, Plan: s.plan, Fleet: s.fleet, Lineage: s.lineage, Ready: s.ready,
		WarmUp: warmUp, WarmUpWait: cfg.WarmUpWait, Rows: s.rows, Fresh: s.fresh, Metrics: m, Registry: env.Metrics, Health: env.Health, Log: env.Log, Tracer: env.Tracer,
	})
	s.canaries = newCanaries(env.Metrics, s.servables.Candidate, s.scorer.Answer)
	s.bodies = semaphore.NewWeighted(maxBodies)
	if s.access, err = cfg.Access.Access(); err != nil {
		return nil, fmt.Errorf("modelserver: %w", err)
	}
	if len(cfg.Brokers) > 0 {
		s.impressions = entry.NewImpressions(cfg.PredictionsTopic, cfg.Container, env.Metrics, env.Log, env.Health.Attempts("impressions"))
	}
	return s, nil
}

// Ready is closed once the ports answer and the views have caught up. Which models are
// available is GetModelStatus' to say.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// GRPCAddr is where the gRPC API listens, host:port, once Ready is closed.
func (s *Server) GRPCAddr() string { return s.grpcAddr }

// HTTPAddr is where the REST API listens, host:port, once Ready is closed.
func (s *Server) HTTPAddr() string { return s.httpAddr }

// GRPCSecure says that the gRPC port is one of TLS.
func (s *Server) GRPCSecure() bool { return s.keys.grpc != nil }

// RowsAddr is where the row protocol listens, once Ready is closed: host:port or
// unix:///path.
func (s *Server) RowsAddr() string { return s.rowsAddr }

func (s *Server) abs(path string) string {
	if filepath.IsAbs(path) || s.cfg.BaseDir == "" {
		return path
	}
	return filepath.Join(s.cfg.BaseDir, path)
}

// listeners opens the three ports and the socket, which is nil where none is wanted, or nothing.
func (s *Server) listeners(ctx context.Context) (g, h, r, socket net.Listener, err error) {
	var lc net.ListenConfig
	defer func() {
		for _, ln := range []net.Listener{g, h, r} {
			if err != nil && ln != nil {
				_ = ln.Close()
			}
		}
	}()
	if g, err = lc.Listen(ctx, "tcp", s.cfg.GRPC); err != nil {
		return g, h, r, nil, fmt.Errorf("modelserver: grpc: %w", err)
	}
	if h, err = lc.Listen(ctx, "tcp", s.cfg.HTTP); err != nil {
		return g, h, r, nil, fmt.Errorf("modelserver: http: %w", err)
	}
	if r, err = rowwire.Listen(ctx, s.cfg.Rows); err != nil {
		return g, h, r, nil, fmt.Errorf("modelserver: rows: %w", err)
	}
	if s.cfg.GRPCSocket != "" {
		path, err := filepath.Abs(s.cfg.GRPCSocket)
		if err == nil {
			socket, err = rowwire.Listen(ctx, "unix://"+path)
		}
		if err != nil {
			return g, h, r, nil, fmt.Errorf("modelserver: --grpc-socket-path: %w", err)
		}
	}
	return g, h, r, socket, nil
}

// Run serves until ctx ends, then lets requests in flight finish within Config.Drain.
// It may be called once.
func (s *Server) Run(ctx context.Context) error {
	file := &configFile{s: s}
	if err := s.start(file); err != nil {
		return err
	}
	gln, hln, rln, sln, err := s.listeners(ctx)
	if err != nil {
		return err
	}
	s.grpcAddr, s.httpAddr, s.rowsAddr = gln.Addr().String(), hln.Addr().String(), rowwire.Addr(rln.Addr())
	defer s.pool.Close()
	defer s.env.Lanes.Expect(s.env.Lanes.Threads())() // requests come side by side

	// The ports go first, then what answers behind them.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	back, inner := errgroup.WithContext(inner)
	back.Go(func() error { return s.plan.Run(inner) })
	back.Go(func() error { return s.fleet.Run(inner) })
	back.Go(func() error { return s.lineage.Run(inner) })
	back.Go(func() error { s.servables.Run(inner, s.cfg.PollInterval); return nil })
	back.Go(func() error { s.rows.Run(inner); return nil })
	back.Go(func() error { s.scorer.Run(inner); return nil })
	back.Go(func() error { s.canaries.run(inner); return nil })
	back.Go(func() error { s.fresh.Run(inner, s.cfg.SignalInterval); return nil })
	if every := s.cfg.ModelConfigPoll; s.cfg.ModelConfigFile != "" && every > 0 {
		back.Go(func() error { file.follow(inner, time.Duration(every)*time.Second); return nil })
	}
	if s.impressions != nil {
		w := kafka.NewWriter(kafka.WriterConfig{Brokers: s.cfg.Brokers, Access: s.access})
		back.Go(func() error {
			defer w.Close()
			s.impressions.Run(inner, w.Write, s.cfg.Drain)
			return nil
		})
	}
	back.Go(func() error {
		if !role.Ready(inner, s.plan.Ready(), s.fleet.Ready(), s.lineage.Ready()) {
			return nil
		}
		s.env.Log.Info("model server is up", "grpc", s.grpcAddr, "http", s.httpAddr, "rows", s.rowsAddr)
		close(s.ready)
		return nil
	})

	front, fctx := errgroup.WithContext(ctx)
	front.Go(func() error { // whatever ends behind the ports ends them
		defer close(s.stopping)
		select {
		case <-inner.Done():
			return errors.New("modelserver: a part has ended")
		case <-fctx.Done():
			return nil
		}
	})
	at := &calls{most: maxCalls}
	front.Go(func() error { return s.serveGRPC(fctx, gln, s.keys.credentials(), at) })
	if sln != nil {
		front.Go(func() error { return s.serveGRPC(fctx, sln, insecure.NewCredentials(), at) })
	}
	front.Go(func() error {
		srv := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: s.cfg.restTimeout(), WriteTimeout: s.cfg.restTimeout() + 5*time.Second, IdleTimeout: 2 * time.Minute}
		return s.serveHTTP(fctx, srv, func() error { return srv.Serve(mtls.Listen(hln, s.keys.rest)) })
	})
	front.Go(func() error {
		return rowwire.Serve(fctx, rln, rows.NewHandler(s.servables.Shards), rowwire.Options{Drain: s.cfg.Drain, TLS: s.keys.rows, Log: s.env.Log, Local: s.env.Local})
	})
	err = front.Wait()
	stop()
	if cause := back.Wait(); cause != nil {
		err = cause // what brought the ports down
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) serveGRPC(ctx context.Context, ln net.Listener, creds credentials.TransportCredentials, at *calls) error {
	srv := grpc.NewServer(
		grpc.Creds(creds),
		tfserving.Codec(),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InTapHandle(at.tap),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 10 * time.Second}),
	)
	tfserving.RegisterPrediction(srv, predictionService{s: s})
	tfserving.RegisterModel(srv, modelService{s})
	grpc_health_v1.RegisterHealthServer(srv, healthService{s: s, watchers: semaphore.NewWeighted(maxWatchers)})
	inferencepb.RegisterGRPCInferenceServiceServer(srv, openService{s: s})
	reflection.Register(srv)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("modelserver: grpc: %w", err)
	case <-ctx.Done():
	}
	kill := time.AfterFunc(s.cfg.Drain, srv.Stop)
	srv.GracefulStop()
	kill.Stop()
	<-failed
	return nil
}
