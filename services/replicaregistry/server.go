// Package replicaregistry decides who is alive: it turns heartbeats into facts about
// containers and replicas, and hosts the agent service and the ZooKeeper port.
package replicaregistry

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	serverevents "github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/server"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/writer"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/agentservice"
	"github.com/monolith-go/monolith/services/internal/role"
)

const source = "replica-registry"

// Server is the role.
type Server struct {
	cfg      Config
	env      services.Env
	ready    chan struct{}
	fleet    *follow.Follower[fleet.State]
	znode    *follow.Follower[view.State] // nil: no ZooKeeper port
	zk       *server.Server               // nil: no ZooKeeper port
	writes   *writer.Writer               // nil: no ZooKeeper port
	mirror   *ensemble.Mirror             // nil: none
	versions *follow.Follower[versions]
	store    role.Store
	leases   *leases
	addr     string // of the agent service; written before ready is closed

	agentKeys *tls.Config // of the agent service; nil: plain text

	heartbeats *prometheus.CounterVec
	expiries   prometheus.Counter
	contests   prometheus.Counter
}

// New checks cfg and starts nothing.
func New(cfg Config, env services.Env) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("replica-registry: %w", err)
	}
	cfg = cfg.withDefaults()
	agentKeys, err := cfg.agentPort(env.TLS).Config()
	if err != nil {
		return nil, err
	}
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	s := &Server{
		cfg: cfg, env: env, ready: make(chan struct{}), agentKeys: agentKeys,
		fleet:    follow.New(env.Bus.Log(), registry.Fleet.Only(env.BZID), o),
		versions: follow.New(env.Bus.Log(), versionsView.Only(env.BZID), o),
		leases:   newLeases(cfg.Lease),
		heartbeats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_registry_heartbeats_total",
			Help: "Heartbeats answered, by outcome: unchanged, changed or refused.",
		}, []string{"outcome"}),
		expiries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_registry_expiries_total",
			Help: "Containers declared lost because their lease ran out.",
		}),
		contests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_registry_contests_total",
			Help: "Replicas reported by a container while another live one held them.",
		}),
	}
	s.store = role.Store{Log: env.Bus.Log(), Source: source, Wait: s.fleet.Wait}
	if cfg.ZKListen != "" {
		s.znode = follow.New(env.Bus.Log(), registry.Znode.Only(env.BZID), o)
		s.writes = writer.New(writer.Config{
			BZID: env.BZID, Source: source, Bus: env.Bus, Log: env.Log, Health: env.Health, Now: cfg.Now,
			Answer: role.Deadline + 2*time.Second, Lease: cfg.ZK.lease, Sweep: cfg.ZK.sweep,
		}, s.znode)
		port, err := cfg.ZK.server(cfg.ZKListen, env.TLS)
		if err != nil {
			return nil, fmt.Errorf("replica-registry: %w", err)
		}
		port.Proposer, port.Metrics = s.writes, env.Metrics
		s.zk = server.New(port, env.Bus.Log(), s.znode, env.Log)
		foreign := newForeigners(env, s.znode, s.fleet, s.store)
		s.writes.While(foreign.run)
		if s.mirror, err = newMirror(cfg.Mirror, env, s.znode, s.writes); err != nil {
			return nil, fmt.Errorf("replica-registry: %w", err)
		}
		if s.mirror != nil { // it runs where the writes are
			s.writes.While(s.mirror.Run)
		}
		s.znode.OnEvent(foreign.folded)
		s.znode.OnEvent(s.writes.Folded) // behind the server's hook: watches fire before answers
	}
	for _, c := range []prometheus.Collector{s.heartbeats, s.expiries, s.contests, servingModel{cfg.MetricPrefix, cfg.Now, s.fleet, s.versions}} {
		if err := env.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("replica-registry: register metrics: %w", err)
		}
	}
	return s, nil
}

// Ready is closed once heartbeats are answered and both ports listen.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where the agent service listens, "" when it is off; known once Ready.
func (s *Server) Addr() string {
	select {
	case <-s.ready:
		return s.addr
	default:
		return ""
	}
}

// ZKAddr is where the ZooKeeper port listens, "" when it is off; known once Ready.
func (s *Server) ZKAddr() string {
	if s.zk == nil {
		return ""
	}
	return s.zk.Addr()
}

// Run serves until ctx ends; a clean stop returns nil. Leases die with it: the next
// registry grants new ones.
func (s *Server) Run(ctx context.Context) error {
	parts := []func(context.Context) error{s.fleet.Run, s.versions.Run, s.react, s.serve}
	if s.zk != nil {
		parts = append(parts, s.znode.Run, s.zk.Run, s.writes.Run)
	}
	return role.Run(ctx, "replica-registry", parts...)
}

// react parks what others put on the registry's subjects, and on those of the tasks it
// watches over: supervisors and shards write facts and read none of their own. It may
// read the whole log, so whoever waits for an answer comes first.
func (s *Server) react(ctx context.Context) error {
	if !role.Ready(ctx, s.ready) {
		return nil
	}
	return role.ParkForeign(ctx, s.env, source,
		"containers, replicas, servers and shards take no requests on the log: publish a loadRequested for a model, or call pulse.registry.heartbeat",
		container.Context, replica.Context, serverevents.Context, shard.Context, znode.Context)
}

// serve answers once the views have caught up.
func (s *Server) serve(ctx context.Context) error {
	if !role.Ready(ctx, s.fleet.Ready()) || !role.Ready(ctx, s.versions.Ready()) || (s.zk != nil && !role.Ready(ctx, s.zk.Ready())) {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	if s.cfg.Listen != "" {
		ln, err := net.Listen("tcp", s.cfg.Listen)
		if err != nil {
			return fmt.Errorf("agent service: %w", err)
		}
		s.addr = ln.Addr().String()
		c := s.cfg
		answers := &agentservice.Service{Fleet: s.fleet, Addr: func() string { return s.addr }, Answers: agentservice.Answers{
			Version: c.AgentVersion, Model: c.AgentModel, Archon: c.AgentArchon, DCAware: c.DCAware, IDC: c.IDC, Cluster: c.Cluster, Family: c.family()}}
		g.Go(func() error { return answers.Serve(ctx, ln, s.agentKeys) })
	}
	stopListening, err := s.env.Bus.Signals().Listen(ctx, s.renewal("*"), s.heardElsewhere)
	if err != nil {
		return fmt.Errorf("listen for renewals: %w", err)
	}
	defer stopListening()
	s.fleet.Read(func(f fleet.State) { s.leases.sweep(members(f), s.cfg.Now()) }) // everybody's first lease
	stopServing, err := s.env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.env.BZID, Name: "registry", Version: "1.0.0",
		Description: "who is alive: replicas and their leases",
		Endpoints: map[string]bus.Handler{
			"replicas": role.Handler(s.handleReplicas),
			"started":  role.Handler(s.handleStarted),
			"targets":  role.Handler(s.handleTargets),
			"mirror":   role.Handler(s.handleMirror),
			"state":    role.State(s.liveViews()),
		},
	})
	if err != nil {
		return fmt.Errorf("serve commands: %w", err)
	}
	defer stopServing()
	stopHeartbeats, err := s.env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.env.BZID, Name: bus.Pulse + "registry", Version: "1.0.0",
		Description: "heartbeats of containers",
		Endpoints:   map[string]bus.Handler{"heartbeat": role.Handler(s.handleHeartbeat)},
	})
	if err != nil {
		return fmt.Errorf("serve heartbeats: %w", err)
	}
	defer stopHeartbeats()
	g.Go(func() error { return s.expire(ctx) })
	close(s.ready)
	return g.Wait()
}

func (s *Server) liveViews() map[string]role.View {
	v := map[string]role.View{fleet.Name: s.fleet}
	if s.znode != nil {
		v[view.Name] = s.znode
	}
	return v
}

// renewal is the signal by which registries tell each other of a heartbeat: a command
// reaches only one of them.
func (s *Server) renewal(who string) string {
	return bus.PulseSubject(s.env.BZID, "lease", who)
}
