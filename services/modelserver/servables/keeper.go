package servables

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// Options are what a Manager stands on; all of it is the caller's to run and to close.
type Options struct {
	BZID string
	// Container is the id under which plans and replicas name this server.
	Container string
	// Model is that of which names without a model, entry and ps_<n>, are sub-models; "": they are
	// models by themselves.
	Model string
	// Frozen follows no deltas.
	Frozen bool
	// Linger is how long rows answer after the last entry asked for them.
	Linger time.Duration
	// Poll is how often an entry asks for its rows everywhere.
	Poll time.Duration
	// LoadBytes bounds the export files read at once.
	LoadBytes int64
	// LoadRate bounds the bytes of export files read in a second; 0: nothing does.
	LoadRate int64
	// Turn is how long a replica of a shard that answers waits for one before it to have a planned
	// version; 0: it does not wait.
	Turn time.Duration

	Bus     bus.Bus
	Plan    *follow.Follower[plan.State]
	Fleet   *follow.Follower[fleet.State]
	Lineage *follow.Follower[lineage.State]
	// Beside reads with an entry the shards that lie beside it, so that it needs no other server.
	Beside bool
	// LookOnce looks at a base path when it is configured, and not again.
	LookOnce bool
	// Loads is how many versions are loaded at once; 0: as many as LoadBytes lets.
	Loads int
	// Retries is how often a version that could not be loaded is tried again by itself, RetryEvery
	// the time between two tries.
	Retries    int
	RetryEvery time.Duration

	// Ready is closed once these views have caught up.
	Ready <-chan struct{}

	// WarmUp replays recorded requests before an entry is AVAILABLE; nil: none are.
	WarmUp WarmUp
	// WarmUpWait is how long that waits for rows which no shard has yet.
	WarmUpWait time.Duration

	Rows     *rows.Client
	Fresh    *rows.Freshness
	Metrics  *rows.Metrics
	Registry prometheus.Registerer
	Health   *health.State
	Log      *slog.Logger
	Tracer   trace.Tracer
}

// keeper leads versions through their lives.
type keeper struct {
	Options
	manager *Manager
	reads   *reads
	shared  shared                 // of a server by itself
	turns   *semaphore.Weighted    // of loads; nil: any number
	loads   *prometheus.CounterVec // outcome
}

func newKeeper(o Options) *keeper {
	k := &keeper{Options: o, reads: newReads(o.LoadBytes, o.LoadRate), shared: shared{read: map[exportLocation]*reading{}},
		loads: prom.Register(o.Registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_load_total", Help: "Loads of a version by outcome."}, []string{"outcome"}))}
	if o.Loads > 0 {
		k.turns = semaphore.NewWeighted(int64(o.Loads))
	}
	return k
}

// New is a manager of nothing yet; Run and Configure make it serve.
func New(o Options) *Manager {
	k := newKeeper(o)
	m := newManager(k.serve, o.Linger, o.Health)
	k.manager, m.expects, m.avoids, m.canary = m, k.expects, k.avoids, k.canaryOf
	m.of, m.beside, m.lookOnce, m.retries, m.retryEvery, m.log = o.Model, o.Beside, o.LookOnce, o.Retries, o.RetryEvery, o.Log
	m.reindex()
	return m
}
