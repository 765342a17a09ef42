// Package modelsync moves the bytes of models: it brings planned sub-models to its host, by a copy
// or from other hosts, hands out what lies there, and records what serving replicas have applied; it alone writes the sync context.
package modelsync

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/peer"
	"github.com/monolith-go/monolith/services/internal/role"
)

const source = "model-sync"

// Server is the role.
type Server struct {
	cfg     Config
	env     services.Env
	ready   chan struct{}
	plan    *follow.Follower[plan.State]
	lineage *follow.Follower[lineage.State]
	fleet   *follow.Follower[fleet.State]
	store   role.Store
	heard   *applied

	copies  *prometheus.CounterVec
	bytes   prometheus.Counter
	removed prometheus.Counter
	rounds  prometheus.Counter
	facts   prometheus.Counter
	dropped prometheus.Counter
	sent    prometheus.Counter
	left    prometheus.Counter
	took    prometheus.Histogram
	delay   prometheus.Histogram

	keys   *tls.Config  // of the port of transfers; nil: plain text
	client *peer.Client // nil: nothing is fetched from other hosts

}

// New checks cfg and starts nothing.
func New(cfg Config, env services.Env) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("model-sync: %w", err)
	}
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	log := env.Bus.Log()
	counter := func(name, help string) prometheus.Counter {
		return prom.Register(env.Metrics, prometheus.NewCounter(prometheus.CounterOpts{Name: "monolith_modelsync_" + name, Help: help}))
	}
	s := &Server{
		cfg: cfg, env: env, ready: make(chan struct{}),
		plan:    follow.New(log, registry.Plan.Only(env.BZID), o),
		lineage: follow.New(log, registry.Lineage.Only(env.BZID), o),
		fleet:   follow.New(log, registry.Fleet.Only(env.BZID), o),
		heard:   newApplied(),
		copies: prom.Register(env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelsync_copies_total",
			Help: "Attempts to bring a sub-model to this host, by outcome: copied, fetched (from other hosts), found (it lay there already) or failed.",
		}, []string{"outcome"})),
		bytes:   counter("copied_bytes_total", "Bytes copied or fetched to this host."),
		removed: counter("removed_total", "Copies removed because no plan wants them on this host any more."),
		rounds:  counter("rounds_total", "Looks at the plans for what has to be copied."),
		facts:   counter("applied_facts_total", "Facts about applied deltas appended."),
		dropped: counter("applied_dropped_total", "Observations of applied deltas lost to bounds or because they did not decode."),
		sent:    counter("sent_bytes_total", "Bytes of models sent to other hosts."),
		left:    counter("left_deleted_total", "Checkpoints and exports that a job had deleted where it runs, and that were deleted here, too."),
		took: prom.Register(env.Metrics, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "monolith_modelsync_copy_seconds",
			Help: "How long it took to bring a sub-model here, of those that were copied or fetched.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)})),
		delay: prom.Register(env.Metrics, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "monolith_modelsync_delay_seconds",
			Help: "From the plan that wants a sub-model to its being here, of those that were copied or fetched.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)})),
	}
	if err := s.transfers(); err != nil {
		return nil, err
	}
	s.store = role.Store{Log: log, Source: source, Wait: s.lineage.Wait}
	return s, nil
}

// Ready is closed once the views have caught up and copying has begun.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run copies and records until ctx ends; a clean stop returns nil. What is wanted
// follows from the plan, what is there from the disk, so a restart resumes.
func (s *Server) Run(ctx context.Context) error {
	if s.client != nil {
		defer s.client.Close()
	}
	return role.Run(ctx, "model-sync", s.plan.Run, s.lineage.Run, s.fleet.Run, s.react, s.observe, s.flush, s.offer, s.sweepLeft, s.serve)
}

// react parks what others put on model-sync's subjects.
func (s *Server) react(ctx context.Context) error {
	return role.ParkForeign(ctx, s.env, source,
		"model-sync takes no requests: it copies what plans name",
		transfer.Context)
}

func (s *Server) serve(ctx context.Context) error {
	if !role.Ready(ctx, s.plan.Ready(), s.lineage.Ready(), s.fleet.Ready()) {
		return nil
	}
	dir, err := openDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("folder of copies: %w", err)
	}
	defer dir.Close()
	if err := modelcopy.Sweep(dir, versionDepth); err != nil {
		return fmt.Errorf("clear unfinished copies: %w", err)
	}
	stop, err := s.env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.env.BZID, Name: source, Version: "1.0.0", Description: "bytes of models",
		Endpoints: map[string]bus.Handler{
			"state": role.State(map[string]role.View{plan.Name: s.plan, lineage.Name: s.lineage, fleet.Name: s.fleet}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve commands: %w", err)
	}
	defer stop()
	close(s.ready)
	k := &keeper{s: s, dir: dir, done: make(chan outcome, workers), busy: map[target]bool{}, here: map[target]bool{},
		whole: map[string]copied{}, failed: map[target]*failure{}, unnamed: map[string]time.Time{}}
	return k.run(ctx)
}
