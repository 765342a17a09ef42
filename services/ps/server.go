// Package ps is one shard of a training job's parameter server: it keeps embedding rows
// and dense variables, learns each range of Kafka records exactly once, publishes what
// changed, and writes its part of checkpoints and exports.
//
// Everything it holds is a fold of Kafka from the offsets it has recorded, on top of its
// newest checkpoint: kill it, start it, and trainers send again what is missing.
package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/compat/resources"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/peer"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/ps/publish"
	"github.com/monolith-go/monolith/services/ps/state"
)

const source = "ps"

// Server is the role.
type Server struct {
	cfg        Config
	env        services.Env
	log        *slog.Logger
	tracer     trace.Tracer
	m          *metrics
	ready      chan struct{}
	grpcKeys   *tls.Config // nil: plain text
	heartbeats *role.Heartbeats

	catalog *follow.Follower[models.State]
	fleet   *follow.Follower[fleet.State]
	lineage *follow.Follower[lineage.State]

	// Set by Run before anybody else can see them.
	st       *state.Shard
	addr     string
	near     []string // further ones, from this machine
	grpcAddr string   // "": none
	specHash string   // of the declaration that st was made of

	// The leading goroutine's own; others go through asks.
	pub       *publish.Publisher
	ready0    *shard.Ready     // the Ready of this process that is in force; nil: none yet
	lastSeq   uint64           // of what this process has said since
	failedIn  uint64           // the epoch in which it has said that its machine failed; 0: it has not, or said that it recovered
	live      bool             // ready0 is in force and its takeover published
	forced    *target          // a roll-back that was asked for
	resharded bool             // the state is of a checkpoint of another number of shards
	restored  lineage.Restored // the job's return to a checkpoint that the state follows
	asks      chan ask

	barriers barriers
	saving   chan struct{} // holds a token: whoever has it may write a snapshot

	client *peer.Client // nil: no checkpoint is fetched from other hosts

	memory func() (resources.Memory, error) // of the control group
}

// ask is work for the leading goroutine.
type ask struct {
	do   func(context.Context) error
	done chan error
}

var _ services.Role = (*Server)(nil)

// New checks cfg and starts nothing.
func New(cfg Config, env services.Env) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	cfg = cfg.withDefaults()
	rows := mtls.Port{Role: source, Name: "rows", Addr: cfg.Listen, TLS: env.Rows, Keys: "--rows-tls", Insecure: cfg.Insecure, Switch: "--insecure-rows"}
	if err := rows.Check(); err != nil {
		return nil, err
	}
	grpc := mtls.Port{Role: source, Name: "grpc", Addr: cfg.GRPC, Own: cfg.GRPCTLS, Shared: env.TLS, TLS: env.Rows, Keys: "--grpc-tls", Mutual: true, Insecure: cfg.InsecureGRPC, Switch: "--insecure-grpc"}
	keys, err := grpc.Config()
	if err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Tracer == nil {
		env.Tracer = noop.NewTracerProvider().Tracer(source)
	}
	s := &Server{
		cfg: cfg, env: env, m: newMetrics(env.Metrics, cfg), tracer: env.Tracer, grpcKeys: keys,
		log:   env.Log.With("job", cfg.Job, "shard", cfg.Shard),
		ready: make(chan struct{}), asks: make(chan ask), saving: make(chan struct{}, 1),
	}
	s.saving <- struct{}{}
	if err := s.transfers(); err != nil {
		return nil, err
	}
	s.memory = resources.New(os.DirFS("/"), os.Getenv).GroupHeadroom
	s.heartbeats = role.NewHeartbeats(env, cfg.HeartbeatInterval, s.heartbeat)
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	s.catalog = follow.New(env.Bus.Log(), registry.Catalog.Only(env.BZID), o)
	s.fleet = follow.New(env.Bus.Log(), registry.Fleet.Only(env.BZID), o)
	s.lineage = follow.New(env.Bus.Log(), registry.Lineage.Only(env.BZID), o)
	return s, nil
}

// Ready is closed once the shard is restored, taken and answers.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where rows are served, once Ready.
func (s *Server) Addr() string { return s.addr }

// GRPCAddr is where the gRPC API is served, "" if nowhere, once Ready is closed.
func (s *Server) GRPCAddr() string { return s.grpcAddr }

// Run serves until ctx ends, then publishes what is left and returns nil. It returns an
// error when another process has taken the shard.
func (s *Server) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.catalog.Run(gctx) })
	g.Go(func() error { return s.fleet.Run(gctx) })
	g.Go(func() error { return s.lineage.Run(gctx) })
	g.Go(func() error { return s.serve(gctx) })
	if s.client != nil {
		defer s.client.Close()
	}
	if err := clean(ctx, g.Wait()); err != nil {
		return fmt.Errorf("ps: shard %d of job %q: %w", s.cfg.Shard, s.cfg.Job, err)
	}
	return nil
}

func (s *Server) serve(ctx context.Context) error {
	var spec *model.ModelSpec
	if !role.Ready(ctx, s.catalog.Ready(), s.fleet.Ready(), s.lineage.Ready()) ||
		!role.Declared(ctx, s.catalog, s.cfg.Model, s.log, func(declared *model.ModelSpec) error { spec = declared; return nil }) {
		return nil
	}
	st, err := state.New(state.Config{
		Job: s.cfg.Job, Shard: s.cfg.Shard, Shards: s.cfg.Shards, Deterministic: s.cfg.Deterministic, ClockStep: s.cfg.ClockStep,
	}, spec)
	if err != nil {
		return err
	}
	s.specHash = modelspec.Hash(spec)
	if err := s.declaredAnew(); err != nil {
		return err
	}
	s.st = st
	s.pub = publish.New(publish.Config{
		BZID: s.env.BZID, Job: s.cfg.Job, Shard: s.cfg.Shard, Shards: s.cfg.Shards, Spec: spec, DenseRate: s.cfg.DenseRate,
	}, s.env.Bus.Deltas(), s.tracer, func(ctx context.Context) (uint64, error) {
		return s.newestEpoch(ctx, uint32(s.cfg.Shard))
	})
	ln, err := rowwire.Listen(ctx, s.cfg.Listen)
	if err != nil {
		return err
	}
	if s.addr = s.cfg.Advertise; s.addr == "" {
		s.addr = rowwire.Addr(ln.Addr())
	}
	near := s.listenNear(ctx)
	var gln net.Listener
	if s.cfg.GRPC != "" {
		if gln, err = rowwire.Listen(ctx, s.cfg.GRPC); err != nil {
			return errors.Join(err, ln.Close(), closed(near))
		}
		s.grpcAddr = rowwire.Addr(gln.Addr())
	}
	g, gctx := errgroup.WithContext(ctx)
	// Whoever waits for a turn or a cut is told to go before the connections drain.
	unhook := context.AfterFunc(gctx, func() {
		s.st.Suspend(rowwire.Errorf(rowwire.Unavailable, "shard %d of job %q is stopping; look its address up again", s.cfg.Shard, s.cfg.Job))
	})
	defer unhook()
	g.Go(func() error {
		return rowwire.Serve(gctx, ln, s.Rows(), rowwire.Options{Drain: s.cfg.Drain, TLS: s.env.Rows, Log: s.log, Local: s.env.Local, Addr: s.addr})
	})
	if near != nil {
		g.Go(func() error {
			return rowwire.Serve(gctx, near, s.Rows(), rowwire.Options{Drain: s.cfg.Drain, Log: s.log})
		})
	}
	if gln != nil {
		g.Go(func() error { return s.serveGRPC(gctx, gln, s.grpcKeys) })
	}
	g.Go(func() error { return s.lead(gctx) })
	err = g.Wait()
	s.shutDown(ctx, err)
	return err
}

// listenNear opens a socket for callers on this machine beside a port for all others, nil
// where there is none.
func (s *Server) listenNear(ctx context.Context) net.Listener {
	if network, _, err := rowwire.SplitAddr(s.cfg.Listen); err != nil || network != "tcp" {
		return nil
	}
	ln, err := rowwire.ListenNear(ctx)
	if err != nil {
		s.log.Warn("callers on this machine come over TCP, too", "err", err)
		return nil
	}
	s.near = []string{rowwire.Addr(ln.Addr())}
	return ln
}

func closed(ln net.Listener) error {
	if ln == nil {
		return nil
	}
	return ln.Close()
}

// declaredAnew complains when the job learns another declaration than this process has
// read: shards that learn by different rules would spoil the model. Its supervisor starts
// it again, with what is declared by then.
func (s *Server) declaredAnew() (err error) {
	s.lineage.Read(func(l lineage.State) {
		j := l.Jobs[s.cfg.Job]
		if hash := j.Started.V.GetSpecHash(); !j.Stopped && hash != "" && hash != s.specHash {
			err = fmt.Errorf("the job learns another declaration of model %q (hash %.12s) than this shard has read (%.12s): declare that one again, or stop the job before it learns the new one", s.cfg.Model, hash, s.specHash)
		}
	})
	return err
}

// lead takes the shard, and then alone publishes, rolls back and works on asks.
func (s *Server) lead(ctx context.Context) error {
	if err := s.takeOver(ctx, target{checkpoint: anyCheckpoint, why: "start"}); err != nil {
		return clean(ctx, err)
	}
	stop, err := s.env.Bus.Commands().Serve(ctx, s.service())
	if err != nil {
		return clean(ctx, fmt.Errorf("serve commands: %w", err))
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.heartbeats.Run(gctx); return nil })
	if s.cfg.Health.Every > 0 {
		g.Go(func() error { s.checks(gctx); return nil })
	}
	g.Go(func() error { return s.loop(gctx) })
	close(s.ready)
	<-gctx.Done()
	stop() // waits for handlers, whose ctx it ends
	return clean(ctx, g.Wait())
}

// clean drops the error that the end of ctx makes of everything.
func clean(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || bus.Retryable(err)) {
		return nil
	}
	return err
}

func (s *Server) loop(ctx context.Context) error {
	clock := s.cfg.Clock
	if clock == nil {
		tick := time.NewTicker(s.cfg.SyncInterval)
		defer tick.Stop()
		clock = tick.C
	}
	for {
		changed, facts := s.fleet.Changed(), s.lineage.Changed()
		next, err := s.watch()
		if err == nil {
			err = s.declaredAnew()
		}
		if err != nil {
			return err
		}
		if next == nil {
			next, s.forced = s.forced, nil
		}
		if back := s.returned(next.highest()); back != nil {
			next = back
		}
		if next != nil {
			if err := s.takeOver(ctx, *next); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-facts:
		case a := <-s.asks:
			err := a.do(ctx)
			a.done <- err
			if errors.Is(err, publish.ErrFenced) {
				return err
			}
		case now := <-clock:
			if err := s.tick(ctx, now); err != nil {
				return err
			}
		}
	}
}

// tick publishes what is touched and due. A bus that is away is no error: the same goes out
// again later.
func (s *Server) tick(ctx context.Context, now time.Time) error {
	s.m.expired.Add(float64(s.st.Sweep()))
	s.observe(now)
	if s.pub.Delayed() {
		return nil
	}
	dense := s.pub.Due(s.cfg.DenseEvery)
	err := s.flush(ctx, func() *publish.Dirty { return s.st.CollectDue(now, dense) })
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case errors.Is(err, state.ErrDiverged):
		return s.diverged(ctx, err)
	case errors.Is(err, publish.ErrFenced), errors.Is(err, events.ErrInvalid), errors.Is(err, bus.ErrTooLarge):
		return err
	}
	s.log.Warn("deltas could not be published; they are kept and sent again", "err", err, "in", s.pub.Delay())
	return nil
}

// publish publishes all that is touched, what waits for its interval included.
func (s *Server) publish(ctx context.Context, dense func(int) bool) error {
	return s.flush(ctx, func() *publish.Dirty { return s.st.CollectDirty(dense) })
}

func (s *Server) flush(ctx context.Context, collect func() *publish.Dirty) error {
	began := time.Now()
	wrote, err := s.pub.Publish(ctx, collect)
	if wrote || err != nil {
		s.m.flush(time.Since(began), err)
	}
	return err
}

func (s *Server) observe(now time.Time) {
	due := s.st.Due(now)
	s.m.backlog.Set(float64(due))
	s.m.waiting.Set(float64(max(0, s.st.Backlog()-due)))
	s.m.step.Set(float64(s.st.Step()))
	for name, n := range s.st.Rows() {
		s.m.rows.WithLabelValues(name).Set(float64(n))
	}
}

// watch compares the fleet with what this process believes: a newer epoch of this shard
// ends it; in deterministic mode another shard that has left the timeline takes this one
// along.
func (s *Server) watch() (next *target, err error) {
	s.fleet.Read(func(f fleet.State) {
		for i, x := range f.Shards[s.cfg.Job] {
			r := x.Ready.V
			switch {
			case r == nil:
			case i == uint32(s.cfg.Shard):
				if r.GetEpoch() > s.ready0.GetEpoch() {
					err = fmt.Errorf("%w: epoch %d at %s has followed %d", publish.ErrFenced, r.GetEpoch(), r.GetRowsAddress(), s.ready0.GetEpoch())
				}
			case !s.cfg.Deterministic:
			case r.GetRestored() < s.restored.Seq: // it has yet to return to where the job has
			case r.GetGeneration() > max(s.ready0.GetGeneration(), next.highest()):
				next = &target{checkpoint: r.GetCheckpoint(), generation: r.GetGeneration(), why: fmt.Sprintf("shard %d rolled back", i)}
			case r.GetGeneration() == s.ready0.GetGeneration() && r.GetCheckpoint() > s.ready0.GetCheckpoint() && next == nil:
				// Both rolled back at once, the other one to a newer cut: once more, together.
				next = &target{checkpoint: anyCheckpoint, generation: r.GetGeneration() + 1, why: fmt.Sprintf("shard %d rolled back to checkpoint %d", i, r.GetCheckpoint())}
			}
		}
	})
	return next, err
}

// returned is where the shard goes when its job has returned to a checkpoint, nil if it
// has followed already. It takes a generation of at least the one given.
func (s *Server) returned(generation uint64) *target {
	to := s.job().Restored
	if to.Seq <= s.restored.Seq {
		return nil
	}
	a := &target{checkpoint: anyCheckpoint, why: fmt.Sprintf("the job returned to checkpoint %d", to.Checkpoint)}
	if s.cfg.Deterministic {
		a.generation = max(to.Generation, generation, s.ready0.GetGeneration()+1)
	}
	return a
}

func (a *target) highest() uint64 {
	if a == nil {
		return 0
	}
	return a.generation
}

// do has the leading goroutine work.
func (s *Server) do(ctx context.Context, work func(context.Context) error) error {
	a := ask{do: func(lead context.Context) error {
		lead, cancel := context.WithCancel(lead)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return work(lead)
	}, done: make(chan error, 1)}
	select {
	case s.asks <- a:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heartbeat is what the replica-registry hears of this task.
func (s *Server) heartbeat() *replica.Heartbeat {
	return &replica.Heartbeat{Container: &container.Container{
		Id: shard.Aggregate(s.cfg.Job, uint32(s.cfg.Shard)), Kind: "training", Shard: -1,
		Job: s.cfg.Job, ServerType: "ps", Index: int32(s.cfg.Shard), RowsAddress: s.addr, GrpcAddress: s.grpcAddr,
	}}
}

// tell appends a fact about this process's epoch.
func (s *Server) tell(ctx context.Context, fact *shard.Event) error {
	draft := bus.Draft{
		Subject: shard.Subject(s.env.BZID, s.cfg.Job, uint32(s.cfg.Shard)),
		Event:   fact, Expect: s.lastSeq, Header: events.Header{Source: source},
	}
	seqs, err := s.env.Bus.Log().Append(ctx, draft)
	for try := 0; errors.Is(err, bus.ErrConflict) && s.look().epoch <= s.ready0.GetEpoch() && try < tellAttempts; try++ {
		// Something else lies on the subject. Should it be a successor after all, this
		// fact changes nothing: it names an epoch that is over.
		if draft.Expect, err = s.env.Bus.Log().LastOf(ctx, draft.Subject); err == nil {
			seqs, err = s.env.Bus.Log().Append(ctx, draft)
		}
	}
	if err == nil {
		s.lastSeq = seqs[0]
	}
	return err
}

// tellAttempts bounds how often a fact is tried against others' appends.
const tellAttempts = 5

// shutDown ends the epoch of a shard that has been ready: after a clean stop the last
// deltas and Stopped, after a failure its reason. A successor is left alone.
func (s *Server) shutDown(ctx context.Context, failure error) {
	if s.ready0 == nil || failure == nil && !s.live || errors.Is(failure, publish.ErrFenced) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	fact := &shard.Event{Body: &shard.Event_Stopped{Stopped: &shard.Stopped{Epoch: s.ready0.GetEpoch(), Reason: "stopped cleanly"}}}
	if failure == nil {
		if err := s.publish(ctx, func(int) bool { return true }); err != nil {
			s.log.Warn("the last deltas were not published; the next start publishes these rows when it learns them again", "err", err)
			if errors.Is(err, publish.ErrFenced) {
				return
			}
		}
	} else {
		fact = &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: failure.Error(), Epoch: s.ready0.GetEpoch()}}}
	}
	if err := s.tell(ctx, fact); err != nil {
		s.log.Warn("the end of this shard's epoch was not recorded", "err", err)
	}
	s.heartbeats.Leave(ctx)
}
