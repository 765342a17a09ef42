// Package discovery is how a training role tells the original's service discovery where it is, and finds
// NATS there: by Consul, ZooKeeper, Primus' TF_CONFIG or the MLP environment (facts I.4).
//
//	run configuration ──► Open ──► Guard ── Query("nats") ──► which log the role follows
//	                                 └───── Register(role, index, address) … Close: deregisters, whatever happened
//
// Roles of a job find one another in the log; what is registered here is for tools of the original.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/retry"
)

// Backend is one service discovery.
type Backend interface {
	// Kind is its name: tf_config, consul, zk or mlp.
	Kind() string
	// Register makes the address of a role's task known, in place of another one of the same task.
	Register(ctx context.Context, role string, index int, addr string) error
	// Deregister takes it away; what is not there is no error.
	Deregister(ctx context.Context, role string, index int, addr string) error
	// Query is the addresses of a role's tasks by index.
	Query(ctx context.Context, role string) (map[int]string, error)
	// Close ends its connections.
	Close() error
}

// keeper is a backend whose registrations end unless they are kept up.
type keeper interface {
	// Keep renews a registration, and makes it anew where it is lost.
	Keep(ctx context.Context, role string, index int, addr string) error
	// Every is the time between two calls.
	Every() time.Duration
}

// ErrLocal is what a guard without a backend answers: there is nobody to ask.
var ErrLocal = errors.New("the job is local and has no service discovery: name one with --set discovery_type=zk, consul, primus or mlp")

const (
	callTimeout  = 15 * time.Second // as the original waits for Consul
	closeTimeout = 5 * time.Second  // for taking all registrations away
)

// Open makes the backend that a run configuration names, in a guard. Without one, or with is_local, the
// guard is local. A task that the environment gives to this process is Task.
func Open(v runconfig.Values, getenv func(string) string) (*Guard, error) {
	kind := v.Get("discovery_type")
	switch {
	case v == nil || v.Is("is_local"):
		kind = ""
	case kind == "" && v.Given("tf_config"):
		kind = "primus"
	case kind == "" && v.Given("zk_server"):
		kind = "zk"
	}
	var b Backend
	var err error
	switch kind {
	case "", "local":
	case "primus", "tf_config":
		b, err = newCluster(v.Get("tf_config"))
	case "mlp":
		b, err = newMLP(getenv)
	case "consul":
		b, err = newConsul(getenv, psm(v))
	case "zk":
		b, err = newZooKeeper(v.Get("zk_server"), v.Get("deep_insight_name"))
	default:
		err = fmt.Errorf("discovery_type %s is none of local, primus, consul, zk and mlp", kind)
	}
	if err != nil {
		return nil, err
	}
	return &Guard{backend: b}, nil
}

// psm is the name under which all tasks of a job stand in Consul: the uuid as it is, as in the original,
// or else made of the job's name.
func psm(v runconfig.Values) string {
	if id := v.Get("uuid"); id != "" {
		return id
	}
	if name := v.Get("deep_insight_name"); name != "" {
		return "data.monolith." + strings.ReplaceAll(name, "/", "_")
	}
	return ""
}

// Task is a process of the job as the environment names it.
type Task struct {
	Role  string // ps or worker; a chief is worker 0
	Index int
	PS    int // how many there are; 0: the environment does not say
	Addr  string
}

// tasked is a backend that knows which task this process is.
type tasked interface{ Task() (Task, bool) }

// Guard registers tasks at a backend, keeps them up, and takes them away when it is closed.
type Guard struct {
	backend Backend // nil: local

	mu         sync.Mutex
	registered []registration
	closed     bool
	keeping    sync.WaitGroup
}

type registration struct {
	role  string
	index int
	addr  string
	stop  context.CancelFunc
}

// Kind is the backend's name, local without one.
func (g *Guard) Kind() string {
	if g.backend == nil {
		return "local"
	}
	return g.backend.Kind()
}

// Task is what the environment says that this process is.
func (g *Guard) Task() (Task, bool) {
	if t, ok := g.backend.(tasked); ok {
		return t.Task()
	}
	return Task{}, false
}

// Query is the addresses of a role's tasks by index.
func (g *Guard) Query(ctx context.Context, role string) (map[int]string, error) {
	if g.backend == nil {
		return nil, ErrLocal
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := g.backend.Query(ctx, role)
	if err != nil {
		return nil, fmt.Errorf("discovery by %s: look for %s: %w", g.Kind(), role, err)
	}
	return found, nil
}

// Register makes a task known until Close. Problem is told of each failure to keep it up, nil once it is
// well again; it may be called from another goroutine.
func (g *Guard) Register(ctx context.Context, role string, index int, addr string, problem func(error)) error {
	if g.backend == nil {
		return ErrLocal
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("discovery by %s: %s.%d listens on %s, which is no host:port that others can reach", g.Kind(), role, index, addr)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errors.New("the discovery is closed")
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	// Noted first: what an attempt that failed has left is taken away, too.
	g.registered = append(g.registered, registration{role, index, addr, stop})
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := g.backend.Register(call, role, index, addr); err != nil {
		return fmt.Errorf("discovery by %s: register %s.%d at %s: %w", g.Kind(), role, index, addr, err)
	}
	if k, ok := g.backend.(keeper); ok {
		g.keeping.Go(func() { keepUp(keep, k, role, index, addr, problem) })
	}
	return nil
}

// keepUp renews a registration until ctx ends.
func keepUp(ctx context.Context, k keeper, role string, index int, addr string, problem func(error)) {
	for pause := k.Every(); retry.Sleep(ctx, pause) == nil; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := k.Keep(call, role, index, addr)
		cancel()
		if ctx.Err() != nil {
			return
		}
		problem(err)
	}
}

// Close takes all registrations away, whatever became of them, and ends the backend. It may be called
// again.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.backend == nil || g.closed {
		return nil
	}
	g.closed = true
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, r := range g.registered {
		r.stop()
	}
	g.keeping.Wait() // nobody registers anew what is taken away
	for _, r := range g.registered {
		if err := g.backend.Deregister(ctx, r.role, r.index, r.addr); err != nil {
			errs = append(errs, fmt.Errorf("discovery by %s: deregister %s.%d: %w", g.Kind(), r.role, r.index, err))
		}
	}
	return errors.Join(append(errs, g.backend.Close())...)
}
