package replicaregistry

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// cluster is a log on disk with the registries in front of it, which can be killed.
type cluster struct {
	t     *testing.T
	dir   string
	addrs []string // of the registries' ports, as clients see them

	listen   []string           // the same, as the registries do
	uplink   func(i int) string // where registry i finds the log
	spawn    func(i int) func() // nil, or runs registry i as a process and returns what kills it
	lease    time.Duration      // of the writer
	patience time.Duration      // with one request: a cut or a killed server shows sooner
	synced   bool               // every read is behind a sync

	known atomic.Int64 // outcomes of what is being played

	mu     sync.Mutex
	nats   *natsserver.Server
	kill   map[int]func()
	runs   map[int]*Server
	deaths map[int][]time.Time // of each registry
}

// late is how long after a registry's end something of it may still reach the log.
const late = time.Second

func newCluster(t *testing.T, registries int) *cluster {
	t.Helper()
	r := emptyCluster(t)
	for i := range registries {
		r.addrs = append(r.addrs, r.port())
		r.start(i)
	}
	return r
}

// emptyCluster is a log without a registry.
func emptyCluster(t *testing.T) *cluster {
	t.Helper()
	r := &cluster{t: t, dir: memdir.New(t), lease: 2 * time.Second, patience: 5 * time.Second, kill: map[int]func(){}, runs: map[int]*Server{}, deaths: map[int][]time.Time{}}
	r.uplink = func(int) string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.nats.URL()
	}
	r.startNATS()
	t.Cleanup(func() {
		for i := range r.addrs {
			r.stop(i)
		}
		r.stopNATS()
	})
	return r
}

// port is where one more registry listens.
func (r *cluster) port() string {
	r.t.Helper()
	port, err := freeport.Find()
	if err != nil {
		r.t.Fatal(err)
	}
	r.listen = append(r.listen, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return r.listen[len(r.listen)-1]
}

func (r *cluster) startNATS() {
	r.t.Helper()
	srv, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(r.dir, "nats"), Port: r.natsPort()})
	if err != nil {
		r.t.Error(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nats = srv
}

// natsPort is the same in every life of the server, so that everybody finds it again.
func (r *cluster) natsPort() int {
	file := filepath.Join(r.dir, "port")
	if b, err := os.ReadFile(file); err == nil {
		port, err := strconv.Atoi(string(b))
		if err != nil {
			r.t.Error(err)
		}
		return port
	}
	port, err := freeport.Find()
	if err == nil {
		err = os.WriteFile(file, []byte(strconv.Itoa(port)), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return port
}

func (r *cluster) stopNATS() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.nats.Close(); err != nil {
		r.t.Error(err)
	}
}

// start runs registry i with a bus of its own, until stop.
func (r *cluster) start(i int) {
	r.t.Helper()
	if r.spawn != nil {
		kill := r.spawn(i)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kill[i] = kill
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	connecting, connected := context.WithTimeout(ctx, wait.Patience)
	defer connected()
	b, err := jetstream.Connect(connecting, jetstream.Config{URL: r.uplink(i), BZID: controltest.BZID})
	if err != nil {
		cancel()
		r.t.Errorf("registry %d: %v", i, err)
		return
	}
	s, err := New(Config{ZKListen: r.listen[i], SnapshotDir: filepath.Join(r.dir, strconv.Itoa(i)), ZK: ZKPort{MinSessionTimeout: 500 * time.Millisecond, lease: r.lease}}, controltest.Env(b))
	if err != nil {
		cancel()
		r.t.Errorf("registry %d: %v", i, err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[i] = s
	r.kill[i] = func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("registry %d ended with %v", i, err)
		}
		_ = b.Close() // perhaps its server has gone already
	}
}

// stop ends registry i with whatever it has under way.
func (r *cluster) stop(i int) {
	r.mu.Lock()
	kill := r.kill[i]
	delete(r.kill, i)
	r.mu.Unlock()
	if kill != nil {
		kill()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deaths[i] = append(r.deaths[i], time.Now())
	}
}

// over is when nothing that was asked of registry i at a time can happen any more.
func (r *cluster) over(i int, at time.Time) (end time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, death := range r.deaths[i] {
		if death.After(at) {
			return death.Add(late), true
		}
	}
	return time.Time{}, false
}

// serves waits until somebody takes sessions, or the end of time, and says who.
func (r *cluster) serves(until time.Time) int {
	k := &session{r: r, q: wire.ConnectRequest{TimeoutMS: 1000, Password: make([]byte, 16)}}
	if k.connect(until) {
		k.ask(wire.OpCloseSession, nil)
	}
	k.cut()
	return k.at
}
