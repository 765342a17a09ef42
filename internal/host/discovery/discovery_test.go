package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// open makes the guard of keys in an environment, both as k=v.
func open(t *testing.T, sets []string, env ...string) (*Guard, error) {
	t.Helper()
	vars := map[string]string{}
	for _, x := range env {
		k, v, _ := strings.Cut(x, "=")
		vars[k] = v
	}
	getenv := func(k string) string { return vars[k] }
	v, err := (&runconfig.Options{Sets: sets}).Read(getenv)
	if err != nil {
		t.Fatal(err)
	}
	return Open(v, getenv)
}

const cluster = `TF_CONFIG={"cluster":{"chief":["c:1"],"worker":["w:1","w:2"],"ps":["p:1","p:2"],"nats":["n:4222"]},"task":{"type":"%s","index":%d}}`

// TestLaunched: Primus and MLP say by the environment which task this process is, and where the others are.
func TestLaunched(t *testing.T) {
	mlp := []string{"MLP_PS_NUM=2", `MLP_PS_0_HOST="p"`, "MLP_PS_0_PORT=1", "MLP_PS_1_PRIMARY_HOST=p", "MLP_PS_1_HOST=x", "MLP_PS_1_PORT='2'", "MLP_WORKER_NUM=1", "MLP_WORKER_0_HOST=w", "MLP_WORKER_0_PORT=7", "MLP_PORT=70"}
	for _, tc := range []struct {
		kind string
		env  []string
		want Task
	}{
		{"primus", []string{fmt.Sprintf(cluster, "ps", 1)}, Task{"ps", 1, 2, "p:2"}},
		{"primus", []string{fmt.Sprintf(cluster, "chief", 0)}, Task{"worker", 0, 2, "c:1"}},
		{"primus", []string{fmt.Sprintf(cluster, "worker", 1)}, Task{"worker", 2, 2, "w:2"}},
		{"mlp", append(mlp, "MLP_ROLE=PS", "MLP_ROLE_INDEX=1"), Task{"ps", 1, 2, "p:2"}},
		{"mlp", append(mlp, "MLP_ROLE=worker", "MLP_ROLE_INDEX=0"), Task{"worker", 0, 2, "w:7"}},
		{"mlp", append(mlp, "MLP_ROLE=worker", "MLP_ROLE_INDEX=0", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=3", "OMPI_COMM_WORLD_LOCAL_SIZE=4"), Task{"worker", 3, 2, "w:73"}},
	} {
		g, err := open(t, []string{"discovery_type=" + tc.kind}, tc.env...)
		if err != nil {
			t.Errorf("%v: %v", tc, err)
			continue
		}
		found, err := g.Query(t.Context(), "ps")
		if own, ok := g.Task(); !ok || own != tc.want || err != nil || !cmp.Equal(found, map[int]string{0: "p:1", 1: "p:2"}) {
			t.Errorf("%v: %+v, %v, %v", tc, own, found, err)
		}
		if err := errors.Join(g.Register(t.Context(), "ps", 0, "p:1", func(error) {}), g.Close(), g.Close()); err != nil {
			t.Error(err)
		}
	}
	if g, err := open(t, []string{"num_ps=1"}, fmt.Sprintf(cluster, "ps", 0)); err != nil || g.Kind() != "tf_config" {
		t.Errorf("TF_CONFIG alone is no discovery: %v", err)
	} else if workers, err := g.Query(t.Context(), "worker"); err != nil || !cmp.Equal(workers, map[int]string{0: "c:1", 1: "w:1", 2: "w:2"}) {
		t.Errorf("workers are %v, %v", workers, err)
	}
}

// TestLocal: without a backend nothing is registered or found, and that is said by name.
func TestLocal(t *testing.T) {
	for _, sets := range [][]string{nil, {"num_ps=1"}, {"discovery_type=zk", "is_local=1"}, {"discovery_type=local"}} {
		g, err := open(t, sets)
		if err != nil || g.Kind() != "local" {
			t.Fatalf("%v: %v", sets, err)
		}
		_, asked := g.Query(t.Context(), "ps")
		if told := g.Register(t.Context(), "ps", 0, "h:1", nil); !errors.Is(asked, ErrLocal) || !errors.Is(told, ErrLocal) || g.Close() != nil {
			t.Errorf("%v: %v, %v", sets, asked, told)
		}
	}
}

// TestRefused: what a backend lacks is named before anything is dialled.
func TestRefused(t *testing.T) {
	for want, sets := range map[string]string{
		"is none of local":                 "discovery_type=etcd",
		"reads the tasks from TF_CONFIG":   "discovery_type=ServiceDiscoveryType.PRIMUS",
		"TF_CONFIG is not as in":           "tf_config={",
		"which its cluster does not have":  `tf_config={"cluster":{"ps":["p:1"]},"task":{"type":"ps","index":1}}`,
		"MLP_ROLE is not set":              "discovery_type=mlp",
		"give uuid or deep_insight_name":   "discovery_type=consul",
		"give zk_server as host:port":      "discovery_type=zk",
		"give deep_insight_name, not \"\"": "zk_server=h:1",
	} {
		if _, err := open(t, []string{sets}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", sets, err, want)
		}
	}
}

// agent answers as the HTTP API of a Consul agent is documented to.
type agent struct {
	mu       sync.Mutex
	services map[string]map[string]any // id -> registration
	passing  map[string]bool
	refuse   bool // registrations
}

func newAgent(t *testing.T) (*agent, []string) {
	t.Helper()
	a := &agent{services: map[string]map[string]any{}, passing: map[string]bool{}}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return a, []string{"CONSUL_HTTP_HOST=" + u.Hostname(), "CONSUL_HTTP_PORT=" + u.Port()}
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what, name := r.Method+" "+r.URL.Path[:strings.LastIndex(r.URL.Path, "/")], r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch what {
	case "PUT /v1/agent/service":
		var x map[string]any
		if a.refuse || json.NewDecoder(r.Body).Decode(&x) != nil {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		a.services[x["id"].(string)] = x
	case "PUT /v1/agent/service/deregister":
		if a.services[name] == nil {
			http.Error(w, "Unknown service ID", http.StatusNotFound)
			return
		}
		delete(a.services, name)
	case "PUT /v1/agent/check/pass":
		id := strings.TrimPrefix(name, "service:")
		if a.services[id] == nil {
			http.Error(w, "Unknown check ID", http.StatusNotFound)
			return
		}
		a.passing[id] = true
	case "GET /v1/health/service":
		all := []any{}
		for id, x := range a.services {
			status := "critical"
			if a.passing[id] {
				status = "passing"
			}
			if x["name"] == name {
				all = append(all, map[string]any{"Node": map[string]any{"Address": "node"}, "Checks": []any{map[string]any{"Status": status}},
					"Service": map[string]any{"ID": id, "Address": x["address"], "Port": x["port"], "Tags": x["tags"]}})
			}
		}
		_ = json.NewEncoder(w).Encode(all)
	default:
		http.NotFound(w, r)
	}
}

// TestConsul: a task is an instance of the job's service with the original's tags, takes the place of an
// earlier one, comes back to an agent that has forgotten it, and goes on every path.
func TestConsul(t *testing.T) {
	a, env := newAgent(t)
	sets := []string{"discovery_type=consul", "uuid=job-7"}
	before, err := open(t, sets, env...)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Register(t.Context(), "ps", 1, "10.0.0.1:7001", nil); err != nil {
		t.Fatal(err)
	}
	g, err := open(t, sets, env...)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Register(t.Context(), "ps", 1, "10.0.0.2:7002", nil), g.Register(t.Context(), "worker", 1, "10.0.0.2:8002", nil)); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	got := fmt.Sprint(len(a.services), a.services["job-7-7002"])
	a.mu.Unlock()
	if want := "2 map[address:10.0.0.2 check:map[ttl:1m0s] id:job-7-7002 name:job-7 port:7002 tags:[index:1 name:ps ip:10.0.0.2]]"; got != want {
		t.Errorf("registered is %s, want %s", got, want)
	}
	if found, err := before.Query(t.Context(), "ps"); err != nil || !cmp.Equal(found, map[int]string{1: "10.0.0.2:7002"}) {
		t.Errorf("found are %v, %v", found, err)
	}
	a.mu.Lock()
	clear(a.services)
	clear(a.passing)
	a.mu.Unlock()
	if err := g.backend.(keeper).Keep(t.Context(), "ps", 1, "10.0.0.2:7002"); err != nil {
		t.Fatal(err)
	}
	if found, err := g.Query(t.Context(), "ps"); err != nil || len(found) != 1 {
		t.Errorf("kept are %v, %v", found, err)
	}
	if err := errors.Join(g.Close(), before.Close()); err != nil || len(a.services) != 0 {
		t.Errorf("left are %v, %v", a.services, err)
	}
	if err := g.Register(t.Context(), "ps", 0, "h:1", nil); err == nil {
		t.Error("a closed guard registers")
	}
	a.refuse = true
	denied, err := open(t, sets, env...)
	if err != nil {
		t.Fatal(err)
	}
	if err := denied.Register(t.Context(), "ps", 0, "10.0.0.1:1", nil); err == nil || !strings.Contains(err.Error(), "answers 403: Permission denied") || denied.Close() != nil {
		t.Errorf("refused by %v", err)
	}
}

// TestGuardOnAPanic: what unwinds the goroutine takes the registration away.
func TestGuardOnAPanic(t *testing.T) {
	a, env := newAgent(t)
	func() {
		defer func() { _ = recover() }()
		g, err := open(t, []string{"discovery_type=consul", "deep_insight_name=movies"}, env...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.Close() }()
		if err := g.Register(t.Context(), "ps", 0, "10.0.0.1:1", nil); err != nil || a.services["data.monolith.movies-1"] == nil {
			t.Errorf("registered %v, %v", a.services, err)
		}
		panic("in the middle")
	}()
	if len(a.services) != 0 {
		t.Errorf("left are %v", a.services)
	}
}

// TestOracleZooKeeper: tasks stand where the original's do, in Apache ZooKeeper.
func TestOracleZooKeeper(t *testing.T) {
	server := oracle.ZooKeeper(t)
	sets := []string{"zk_server=" + server.Addr, "deep_insight_name=movies"}
	g, err := open(t, sets)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := g.Query(t.Context(), "ps"); err != nil || len(found) != 0 {
		t.Fatalf("%v, %v", found, err)
	}
	problems := make(chan error, 100)
	for i, addr := range []string{"10.0.0.1:7001", "10.0.0.1:7002"} {
		if err := g.Register(t.Context(), "ps", i, addr, func(err error) { problems <- err }); err != nil {
			t.Fatal(err)
		}
	}
	conn, _, err := zk.Connect([]string{server.Addr}, time.Minute, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data, stat, err := conn.Get("/monolith/movies/ps.1")
	if err != nil || string(data) != "10.0.0.1:7002" || stat.EphemeralOwner == 0 {
		t.Errorf("the node holds %q of session %d, %v", data, stat.EphemeralOwner, err)
	}
	other, err := open(t, sets)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Register(t.Context(), "ps", 1, "10.0.0.9:7002", func(error) {}); err != nil {
		t.Fatal(err)
	}
	if found, err := g.Query(t.Context(), "ps"); err != nil || !cmp.Equal(found, map[int]string{0: "10.0.0.1:7001", 1: "10.0.0.9:7002"}) {
		t.Errorf("found are %v, %v", found, err)
	}
	// A node that went, as with a session, is made anew while its task is kept up.
	if err := conn.Delete("/monolith/movies/ps.0", -1); err != nil {
		t.Fatal(err)
	}
	if err := g.backend.(keeper).Keep(t.Context(), "ps", 0, "10.0.0.1:7001"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the nodes are gone", func() bool {
		left, _, err := conn.Children("/monolith/movies")
		return err == nil && len(left) == 0
	})
}

// TestZooKeeperThatIsGone: nobody waits for ever for an ensemble that does not answer.
func TestZooKeeperThatIsGone(t *testing.T) {
	g, err := open(t, []string{"zk_server=127.0.0.1:1", "deep_insight_name=movies"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Query(ctx, "ps"); err == nil || !strings.Contains(err.Error(), "discovery by zk: look for ps: ") {
		t.Errorf("found by %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzCluster(f *testing.F) {
	f.Add(strings.TrimPrefix(fmt.Sprintf(cluster, "worker", 1), "TF_CONFIG="))
	f.Add(`{"cluster":{"ps":[]},"task":{"type":"ps","index":-1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := newCluster(text)
		if err != nil {
			return
		}
		if own, ok := s.Task(); ok && (own.Addr == "" || own.Addr != s.tasks[own.Role][own.Index]) {
			t.Errorf("%+v is none of %v", own, s.tasks)
		}
	})
}
