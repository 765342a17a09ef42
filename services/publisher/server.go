// Package publisher decides who serves what: it packs the sub-models of loaded models onto
// live containers and alone writes the facts of the publish context.
package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/servers"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

const (
	source = "publisher"
	// giveUp bounds one append; the next round tries again.
	giveUp = 10 * time.Second
	// lookEvery is the least time between two looks at what the views have become.
	lookEvery = 20 * time.Millisecond
	// unplannedFor is how many times Config.Recheck a loaded model may be without a plan
	// until that is a problem, of the name planProblem.
	unplannedFor = 3
	planProblem  = "plans"
)

// Server is the role.
type Server struct {
	cfg     Config
	env     services.Env
	ready   chan struct{}
	catalog *follow.Follower[models.State]
	fleet   *follow.Follower[fleet.State]
	plan    *follow.Follower[plan.State]
	lineage *follow.Follower[lineage.State]
	servers *follow.Follower[servers.State]
	store   role.Store
	facts   *prometheus.CounterVec
	leads   prometheus.Gauge
	looks   prometheus.Counter
	holder  string // of the lease

	source canary.Source
	due    chan struct{}              // there may be a canary to decide
	term   atomic.Pointer[leadership] // nil: another publisher leads

	readyOnce func()
	scale     scale                // of the leading goroutine alone, as is
	unplanned map[string]time.Time // since when which loaded models have no plan
}

// New checks cfg and starts nothing.
func New(cfg Config, env services.Env) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	cfg = cfg.withDefaults()
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	log := env.Bus.Log()
	s := &Server{
		cfg: cfg, env: env, ready: make(chan struct{}), due: make(chan struct{}, 1),
		catalog: follow.New(log, registry.Catalog.Only(env.BZID), o),
		fleet:   follow.New(log, registry.Fleet.Only(env.BZID), o),
		plan:    follow.New(log, registry.Plan.Only(env.BZID), o),
		lineage: follow.New(log, registry.Lineage.Only(env.BZID), o),
		servers: follow.New(log, registry.Servers.Only(env.BZID), o),
		facts: prom.Register(env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_publisher_facts_total",
			Help: "Plans and canaries decided, by outcome: planned, failed or withdrawn; canary, promoted, rolled_back or expired.",
		}, []string{"outcome"})),
		leads: prom.Register(env.Metrics, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "monolith_publisher_leader",
			Help: "1 while this publisher decides, 0 while it stands by.",
		})),
		looks: prom.Register(env.Metrics, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_publisher_looks_total",
			Help: "Looks at the views for what plans depend on.",
		})),
		holder: holderName(), unplanned: map[string]time.Time{},
	}
	s.scale = newScale(cfg.Recheck, func(dir string) (in map[int64]*training.ModelExported) {
		s.lineage.Read(func(l lineage.State) { in = l.ExportsIn(dir) })
		return in
	})
	if err := s.measureAt(); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	s.readyOnce = sync.OnceFunc(func() { close(s.ready) })
	s.store = role.Store{Log: log, Source: source, Wait: role.Waits(s.catalog.Wait, s.fleet.Wait, s.plan.Wait, s.lineage.Wait, s.servers.Wait)}
	return s, nil
}

// Ready is closed once every loaded model was looked at after the views had caught up, or
// another publisher leads and this one stands by.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run plans until ctx ends; a clean stop returns nil. Plans are a function of the views,
// so a restart looks again and appends nothing that is in force.
func (s *Server) Run(ctx context.Context) error {
	return role.Run(ctx, "publisher", s.catalog.Run, s.fleet.Run, s.plan.Run, s.lineage.Run, s.servers.Run, s.react, s.serve)
}

// react parks what others put on the publisher's subjects.
func (s *Server) react(ctx context.Context) error {
	return role.ParkForeign(ctx, s.env, source,
		"plans follow from loads: publish a loadRequested on the model's subject instead",
		publish.Context)
}

func (s *Server) serve(ctx context.Context) error {
	if !role.Ready(ctx, s.catalog.Ready(), s.fleet.Ready(), s.plan.Ready(), s.lineage.Ready(), s.servers.Ready()) {
		return nil
	}
	stop, err := s.env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.env.BZID, Name: source, Version: "1.0.0", Description: "who serves what",
		Endpoints: map[string]bus.Handler{
			"canaryStart": role.Handler(s.handleCanaryStart),
			"canaryStop":  role.Handler(s.handleCanaryStop),
			"canary":      role.Handler(s.handleCanary),
			"state":       role.State(map[string]role.View{models.Name: s.catalog, fleet.Name: s.fleet, plan.Name: s.plan}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve commands: %w", err)
	}
	defer stop()
	return s.lead(ctx)
}

// loop plans under led whenever the views have changed: at once when models changed or a
// planned container is gone, and once the fleet has kept still when it has only grown. It
// ends with ctx, or when somebody else has led.
func (s *Server) loop(ctx context.Context, led *publish.Led) error {
	again := time.NewTicker(s.cfg.Recheck)
	defer again.Stop()
	for {
		models, members, seen := s.catalog.Changed(), s.fleet.Changed(), s.newest()
		if err := s.plans(ctx, led); err != nil {
			return err
		}
		s.term.Load().follow(ctx, s)
		s.tell()
		s.readyOnce()
		looked := time.Now()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-again.C:
				waiting = false
			case <-s.due:
				waiting = false
			case <-models:
			case <-members:
			}
			if retry.Sleep(ctx, time.Until(looked.Add(lookEvery))) != nil {
				return nil
			}
			looked = time.Now()
			models, members = s.catalog.Changed(), s.fleet.Changed()
			if now := s.newest(); waiting && now != seen {
				waiting = false
				if now.models == seen.models {
					s.settle(ctx, now)
				}
			}
		}
	}
}

// settle waits until the fleet has kept still for Config.Debounce, ten times that at
// most, or until a planned container is gone or the models have changed.
func (s *Server) settle(ctx context.Context, seen newest) {
	end := time.NewTimer(10 * s.cfg.Debounce)
	defer end.Stop()
	still := time.NewTimer(s.cfg.Debounce)
	defer still.Stop()
	for {
		models, members, now := s.catalog.Changed(), s.fleet.Changed(), s.newest()
		if s.missing() || now.models != seen.models {
			return
		}
		if now.members != seen.members {
			seen = now
			still.Reset(s.cfg.Debounce)
		}
		select {
		case <-models:
			_ = retry.Sleep(ctx, lookEvery)
			continue
		case <-members:
			_ = retry.Sleep(ctx, lookEvery)
			continue
		case <-ctx.Done():
		case <-still.C:
		case <-end.C:
		}
		return
	}
}

// tell reports loaded models that have had no plan for long.
func (s *Server) tell() {
	reasons := map[string]string{}
	s.catalog.Read(func(c models.State) {
		s.plan.Read(func(p plan.State) {
			for name, m := range c.Models {
				if x := p.Plans[name]; m.Load.V != nil && x.Planned.V == nil {
					reasons[name] = cmp.Or(x.Failed, "its plan could not be stored")
				}
			}
		})
	})
	now := time.Now()
	maps.DeleteFunc(s.unplanned, func(name string, _ time.Time) bool { return reasons[name] == "" })
	var long []string
	for name := range reasons {
		if _, known := s.unplanned[name]; !known {
			s.unplanned[name] = now
		}
		if now.Sub(s.unplanned[name]) >= unplannedFor*s.cfg.Recheck {
			long = append(long, name)
		}
	}
	slices.Sort(long)
	switch len(long) {
	case 0:
		s.env.Health.OK(planProblem)
	case 1:
		s.env.Health.Fail(planProblem, fmt.Errorf("model %s has none: %s", long[0], reasons[long[0]]))
	default:
		s.env.Health.Fail(planProblem, fmt.Errorf("model %s has none: %s (and %d more models)", long[0], reasons[long[0]], len(long)-1))
	}
}

// plans looks at every model once. A failure to append is logged and met again in the
// next round, at the latest after Config.Recheck; errFenced is none of those.
func (s *Server) plans(ctx context.Context, led *publish.Led) error {
	names := map[string]bool{}
	s.catalog.Read(func(c models.State) {
		for name := range c.Models {
			names[name] = true
		}
	})
	for _, name := range slices.Sorted(maps.Keys(names)) {
		err := s.planModel(ctx, led, name)
		if errors.Is(err, bus.ErrFenced) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.env.Log.Warn("plan not stored yet", "model", name, "err", err)
		}
	}
	return nil
}

func (s *Server) planModel(ctx context.Context, led *publish.Led, name string) error {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	drafts, seqs, err := s.store.Append(ctx, func() ([]bus.Draft, error) { return s.decide(ctx, led, name) })
	s.noted(name, drafts, seqs)
	return err
}

// noted counts and logs what was appended.
func (s *Server) noted(name string, drafts []bus.Draft, seqs []uint64) {
	for i := range seqs {
		outcome, detail := describe(drafts[i])
		if outcome == "led" {
			continue
		}
		s.facts.WithLabelValues(outcome).Inc()
		s.env.Log.Info("plan decided", "model", name, "outcome", outcome, "detail", detail, "seq", seqs[i])
	}
}

// decide reads the three views and drafts, behind the fence of led; the fact that led to
// it is named as cause.
func (s *Server) decide(ctx context.Context, led *publish.Led, name string) ([]bus.Draft, error) {
	var m models.Model
	var now plan.Plan
	var leader plan.Leader
	var offers []offer
	s.catalog.Read(func(c models.State) { m = c.Models[name] })
	s.plan.Read(func(p plan.State) {
		now, leader = p.Plans[name], p.Leader
		s.fleet.Read(func(f fleet.State) { offers = offersFor(name, f, p) })
	})
	var sizes map[string]uint64
	var unsized string
	verdict := s.verdict(m, now)
	if verdict != nil {
		now.Canary.Decided.V = verdict
	}
	m.Load.V = promoted(m, now)
	m.Load.V, sizes, unsized = s.scale.weigh(m.Load.V, floor(m, now))
	drafts := decide(s.env.BZID, name, m, now, offers, sizes, unsized)
	if verdict != nil {
		drafts = append([]bus.Draft{fact(s.env.BZID, name, now.Seq, &publish.Event{Body: &publish.Event_CanaryDecided{CanaryDecided: verdict}})}, drafts...)
	}
	if len(drafts) == 0 {
		return nil, nil
	}
	drafts, err := s.fence(led, leader, drafts)
	if err != nil || m.LoadSeq == 0 {
		return drafts, err
	}
	cause, err := s.env.Bus.Log().Get(ctx, m.LoadSeq)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return nil, fmt.Errorf("read the load at %d: %w", m.LoadSeq, err)
	}
	for i := range drafts {
		h := &drafts[i].Header
		h.Causation, h.Correlation, h.Traceparent = cause.Header.ID, cause.Header.Correlation, cause.Header.Traceparent
		if h.Correlation == "" {
			h.Correlation = cause.Header.ID
		}
	}
	return drafts, nil
}

// floor is the version below which a load that follows its export does not go: what is
// planned for it already. Versions that an earlier load, or one of another folder, has
// come to say nothing about it.
func floor(m models.Model, now plan.Plan) int64 {
	if p := now.Planned.V; p.GetModelDir() == m.Load.V.GetModelDir() && p.GetCause() >= m.LoadSeq {
		return p.GetVersion()
	}
	return 0
}

// missing is true when a plan in force names a container that is not alive.
func (s *Server) missing() (missing bool) {
	s.plan.Read(func(p plan.State) {
		s.fleet.Read(func(f fleet.State) {
			for _, x := range p.Plans {
				for _, a := range x.Planned.V.GetAssignments() {
					missing = missing || !f.Containers[a.GetContainer()].Alive
				}
			}
		})
	})
	return missing
}

// newest is the last fact that planning depends on, by view. The followers' own
// sequences will not do: they move with every event of every context.
type newest struct{ models, members uint64 }

func (s *Server) newest() (n newest) {
	s.looks.Inc()
	s.catalog.Read(func(c models.State) {
		for _, m := range c.Models {
			n.models = max(n.models, m.Seq)
		}
	})
	s.fleet.Read(func(f fleet.State) {
		for _, c := range f.Containers {
			n.members = max(n.members, c.Seq)
		}
		for _, r := range f.Replicas {
			n.members = max(n.members, r.Seq)
		}
	})
	return n
}
