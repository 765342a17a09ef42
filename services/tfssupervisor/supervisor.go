// Package tfssupervisor keeps one model server running and in line with the plan, or with
// a layout: it starts the process and starts it again when it dies, tells it which of the
// copied sub-models, or of the declared saved models, to load, watches their states, writes what happens as facts of its
// container, and tells the replica registry by heartbeats who can be asked for what.
//
// All that is used of the server is TensorFlow Serving's ModelService. The built-in one
// writes a file with its addresses once it is ready; another one needs a wrapper that does.
package tfssupervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/compat/layoutfilter"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/savedmodels"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/role"
)

const (
	// slowStart is how long a start may take before it is told as a problem.
	slowStart = time.Minute
	// failedStarts is how many lives in a row end early before that is.
	failedStarts = 3
	// startProblem names both.
	startProblem = "start of the model server"
)

// errEnded is of a server that has ended without an error, and is not started again.
var errEnded = errors.New("the model server has ended")

// Supervisor is the role; New makes it.
type Supervisor struct {
	cfg      Config
	env      services.Env
	launcher Launcher
	metrics  metrics

	plan    *follow.Follower[plan.State]
	lineage *follow.Follower[lineage.State]
	layout  *follow.Follower[savedmodels.State] // nil: the container follows the plan
	tree    *follow.Follower[view.State]        // nil, unless its layout lies outside of the namespace's
	facts   *eventWriter
	gauge   gauge // the heartbeats' own

	layoutPath, layoutName string // "": the plan
	filters                layoutfilter.Filters

	ready      chan struct{}
	heartbeats *role.Heartbeats

	outcome error // of a server that is not started again; supervise's own until it has returned

	mu       sync.Mutex
	address  *Server // newest one, running or not; nil: none has started yet
	replicas []*replica.Replica
}

var _ services.Role = (*Supervisor)(nil)

type metrics struct {
	starts     prometheus.Counter
	exits      prometheus.Counter
	heartbeats *prometheus.CounterVec // outcome
	facts      *prometheus.CounterVec // type
}

func newMetrics(reg prometheus.Registerer) metrics {
	return metrics{
		starts: prom.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_tfssupervisor_starts_total", Help: "Starts of the model server."})),
		exits: prom.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_tfssupervisor_exits_total", Help: "Ends of the model server, asked for or not."})),
		heartbeats: prom.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_tfssupervisor_heartbeats_total", Help: "Heartbeats by outcome."}, []string{"outcome"})),
		facts: prom.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_tfssupervisor_facts_total", Help: "Facts written, by type."}, []string{"type"})),
	}
}

// New checks cfg and allocates; nothing is started.
func New(cfg Config, env services.Env, launcher Launcher) (*Supervisor, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.HostIP == "" && cfg.HostIPv6 == "" {
		cfg.HostIP = localIP(context.Background(), net.DefaultResolver.LookupIP, net.InterfaceAddrs)
	}
	filters, err := cfg.compileFilters()
	if err != nil {
		return nil, err
	}
	layoutPath, layoutName, err := layoutOf(env.BZID, cfg.Layout)
	if err != nil {
		return nil, err
	}
	if launcher == nil {
		return nil, errors.New("tfssupervisor: no launcher; give one for the built-in server, or a --command")
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	env.Log = env.Log.With("container", cfg.Container)
	m := newMetrics(env.Metrics)
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	s := &Supervisor{
		cfg: cfg, env: env, launcher: launcher, metrics: m,
		plan:       follow.New(env.Bus.Log(), registry.Plan.Only(env.BZID), o),
		lineage:    follow.New(env.Bus.Log(), registry.Lineage.Only(env.BZID), o),
		facts:      newEventWriter(env.BZID, cfg.Container, env.Bus.Log(), m.facts, env.Log),
		gauge:      gauge{files: os.DirFS("/"), memory: cfg.Memory},
		ready:      make(chan struct{}),
		layoutPath: layoutPath, layoutName: layoutName, filters: filters,
	}
	if layoutPath != "" {
		s.layout = follow.New(env.Bus.Log(), registry.Layout.Only(env.BZID), o)
	}
	if layoutPath != "" && layoutName == "" {
		s.tree = follow.New(env.Bus.Log(), registry.Znode.Only(env.BZID), o)
	}
	s.heartbeats = role.NewHeartbeats(env, cfg.Heartbeat, s.heartbeat)
	s.heartbeats.Answered = s.answered
	return s, nil
}

// Ready is closed once the views have caught up and the first server has started.
func (s *Supervisor) Ready() <-chan struct{} { return s.ready }

// Run supervises until ctx ends; then the container leaves the fleet, the server is
// asked to stop and, if need be, killed. It may be called once.
func (s *Supervisor) Run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	back, inner := errgroup.WithContext(inner)
	back.Go(func() error { return s.plan.Run(inner) })
	back.Go(func() error { return s.lineage.Run(inner) })
	caughtUp := []<-chan struct{}{s.plan.Ready(), s.lineage.Ready()}
	if s.layout != nil {
		back.Go(func() error { return s.layout.Run(inner) })
		caughtUp = append(caughtUp, s.layout.Ready())
	}
	if s.tree != nil {
		back.Go(func() error { return s.tree.Run(inner) })
		caughtUp = append(caughtUp, s.tree.Ready())
	}
	back.Go(func() error { s.facts.run(inner, s.cfg.Drain); return nil })

	front, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(inner, cancel) // whatever ends behind ends this too
	if role.Ready(front, caughtUp...) {
		beating := make(chan struct{})
		go func() {
			defer close(beating)
			s.heartbeats.Run(front)
		}()
		s.supervise(front, sync.OnceFunc(func() {
			cancel() // nothing else ends the heartbeats of a server that is not started again
			<-beating
			s.heartbeats.Leave(ctx)
		}))
		<-beating
	}
	stop()
	err := back.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(s.outcome, err)
}

// supervise starts the server again and again until ctx ends, or once with [Config.Once]. leave is called then,
// before the server is stopped, so that nobody is sent to a server that goes; it acts
// once.
func (s *Supervisor) supervise(ctx context.Context, leave func()) {
	defer leave()
	pauses, early := retry.New(s.cfg.Backoff, s.cfg.MaxBackoff), 0
	complaint := ""
	first := sync.OnceFunc(func() { close(s.ready) })
	if s.cfg.Gate != nil {
		if s.outcome = s.cfg.Gate(ctx); s.outcome != nil {
			return
		}
	}
	for ctx.Err() == nil {
		srv, err := s.start(ctx)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			s.env.Log.Error("model server did not start", "err", err)
			if reason := "it did not start: " + err.Error(); reason != complaint {
				complaint = reason
				s.facts.say(ctx, &server.Event{Body: &server.Event_ProcessExited{ProcessExited: &server.ProcessExited{Reason: reason}}})
			}
		} else {
			complaint = ""
			first()
			began := time.Now()
			// Once it has lived for longer than any pause, it is well.
			well := time.AfterFunc(s.cfg.MaxBackoff, func() { s.env.Health.OK(startProblem) })
			err = s.live(ctx, &srv, leave)
			well.Stop()
			if time.Since(began) > s.cfg.MaxBackoff {
				early = 0
				pauses.Reset()
			}
		}
		if ctx.Err() != nil {
			return
		}
		if s.cfg.Once {
			s.outcome = cmp.Or(err, errEnded)
			return
		}
		if early++; early >= failedStarts {
			s.env.Health.Fail(startProblem, fmt.Errorf("it has ended again and again: %w", cmp.Or(err, errors.New("by itself"))))
		}
		_ = pauses.Wait(ctx)
	}
}

// start is one start of the server. One that takes long is told.
func (s *Supervisor) start(ctx context.Context) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	slow := time.AfterFunc(slowStart, func() {
		s.env.Health.Fail(startProblem, fmt.Errorf("it has not been ready for %v; it is given %v", slowStart, s.cfg.StartTimeout))
	})
	srv, err := s.launcher.Start(ctx)
	if !slow.Stop() && err == nil {
		s.env.Health.OK(startProblem)
	}
	return srv, err
}

// live looks after a server that has started, and tells of its beginning and end.
func (s *Supervisor) live(ctx context.Context, srv *Server, leave func()) error {
	s.env.Log.Info("model server started", "pid", srv.PID, "grpc", srv.GRPCAddr, "http", srv.HTTPAddr, "rows", srv.RowsAddr)
	s.metrics.starts.Inc()
	s.facts.say(ctx, &server.Event{Body: &server.Event_ProcessStarted{ProcessStarted: &server.ProcessStarted{
		Pid: int32(srv.PID), Command: srv.Command, GrpcAddress: srv.GRPCAddr, HttpAddress: srv.HTTPAddr, RowsAddress: srv.RowsAddr}}})
	s.mu.Lock()
	s.address = srv
	s.mu.Unlock()
	s.heartbeats.Soon()
	err := s.attend(ctx, srv, leave)
	s.metrics.exits.Inc()
	exit := exited(srv.PID, err, ctx.Err() != nil)
	s.env.Log.Log(ctx, level(ctx), "model server ended", "pid", srv.PID, "reason", exit.GetReason())
	// At a stop ctx has ended: the fact gets the little time that is left.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	s.facts.say(last, &server.Event{Body: &server.Event_ProcessExited{ProcessExited: exit}})
	return err
}

func level(ctx context.Context) slog.Level {
	if ctx.Err() != nil {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// attend looks after one life of the server and returns how it ended.
func (s *Supervisor) attend(ctx context.Context, srv *Server, leave func()) error {
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait() }()
	life, cancel := context.WithCancel(ctx)
	managed := make(chan error, 1)
	go func() { managed <- s.manage(life, srv) }()
	defer func() {
		cancel()
		if managed != nil {
			<-managed
		}
		s.report(nil) // nobody answers any more
	}()
	var why error // it had to be killed
	for {
		select {
		case err := <-ended:
			if why != nil {
				err = fmt.Errorf("%w, and was killed: %w", why, cmp.Or(err, errors.New("it ended")))
			}
			return err
		case err := <-managed:
			managed = nil
			if err != nil && ctx.Err() == nil {
				s.env.Log.Error("model server cannot be managed; killing it, to start another one", "err", err)
				why = err
				srv.Kill()
			}
		case <-ctx.Done():
			leave()
			return s.shutdown(srv, ended)
		}
	}
}

// shutdown asks the server to stop, and kills it when it takes longer than Drain.
func (s *Supervisor) shutdown(srv *Server, ended <-chan error) error {
	if srv.Stop != nil {
		srv.Stop()
		t := time.NewTimer(s.cfg.Drain)
		defer t.Stop()
		select {
		case err := <-ended:
			return err
		case <-t.C:
			s.env.Log.Warn("model server does not stop; killing it", "pid", srv.PID, "after", s.cfg.Drain)
		}
	}
	srv.Kill()
	return <-ended
}

// exited describes the end of a process.
func exited(pid int, err error, asked bool) *server.ProcessExited {
	e := &server.ProcessExited{Pid: int32(pid)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		e.ExitCode = int32(exit.ExitCode())
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = ws.Signal().String()
		}
		e.Reason = err.Error()
	case err != nil:
		e.ExitCode = 1
		e.Reason = err.Error()
	case asked:
		e.Reason = "the supervisor is stopping"
	default:
		e.Reason = "it ended by itself"
	}
	if asked && err != nil {
		e.Reason = fmt.Sprintf("the supervisor is stopping: %s", e.Reason)
	}
	return e
}
