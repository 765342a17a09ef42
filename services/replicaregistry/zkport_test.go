package replicaregistry

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/zktest"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// harness is a registry whose ZooKeeper port is open, on a log on disk.
type harness struct {
	*Server
	t    testing.TB
	nats *natsserver.Server
	bus  bus.Bus
	stop func()
}

func openHarness(t testing.TB, cfg Config) *harness {
	t.Helper()
	srv, err := natsserver.Start(natsserver.Config{Dir: memdir.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return harnessOn(t, cfg, srv)
}

func harnessOn(t testing.TB, cfg Config, srv *natsserver.Server) *harness {
	t.Helper()
	h := harnessAt(t, cfg, jetstream.Config{Server: srv})
	h.nats = srv
	return h
}

func harnessAt(t testing.TB, cfg Config, at jetstream.Config) *harness {
	t.Helper()
	at.BZID = controltest.BZID
	b, err := jetstream.Connect(context.WithoutCancel(t.Context()), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if cfg.ZKListen == "" {
		cfg.ZKListen = "127.0.0.1:0"
	}
	cfg.ZK.sweep = time.Hour // no sweep unless a test wants one
	env := controltest.Env(b)
	env.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := New(cfg, env)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{Server: s, t: t, bus: b}
	h.stop = controltest.Start(t, s)
	wait.For(h.t, "the writer's lease", s.writes.Writable)
	return h
}

// TestOracleDifferential has Apache ZooKeeper and a registry with its log on disk do the
// same random operations; MONOLITH_ZKDIFF_OPS says how many, MONOLITH_ZKDIFF_SEED which.
func TestOracleDifferential(t *testing.T) {
	t.Parallel()
	ops, seed := 2000, uint64(time.Now().UnixNano())
	if v := os.Getenv("MONOLITH_ZKDIFF_OPS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("MONOLITH_ZKDIFF_OPS=%s is no number of operations", v)
		}
		ops = n
	}
	if v := os.Getenv("MONOLITH_ZKDIFF_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("MONOLITH_ZKDIFF_SEED=%s is no seed", v)
		}
		seed = n
	}
	real := oracle.ZooKeeper(t, "-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=100000000")
	h := openHarness(t, Config{ZK: ZKPort{MinSessionTimeout: time.Second, MaxSessionTimeout: 10 * time.Second}})
	sum := zktest.Run(t, zktest.Config{Ours: h.ZKAddr(), Real: real.Addr, Seed: seed, Ops: ops, Packs: true})
	if sum.Shared < sum.Bursts/4 { // how many of a burst meet in a pack is the machine's matter
		t.Errorf("%+v: the writes of bursts were not packed", sum)
	}
}

// TestOracleRecipes runs kazoo's recipes against the registry.
func TestOracleRecipes(t *testing.T) {
	python := oracle.Python(t)
	h := openHarness(t, Config{})
	cmd := exec.CommandContext(t.Context(), python, "../../projections/zookeeper/server/testdata/kazoo_recipes.py", h.ZKAddr())
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`{"failed": ["RolledBackError", "BadVersionError"], "done": ["/app/t1", 1, true], "t1": "y"}`,
		`{"order": ["a", "b"], "contenders": ["a", "b"]}`, `{"leaders": ["c", "b"]}`, `{"count": "40"}`,
		`{"private": "p", "stranger": true}`, `{"gone": ["DELETED", "/app/nodes/n-0000000000"]}`,
	} {
		if !strings.Contains(string(out), want+"\n") {
			t.Errorf("%s is missing:\n%s", want, out)
		}
	}
}

// TestOracleZKCli writes with Apache's command line and reads it with go-zookeeper.
func TestOracleZKCli(t *testing.T) {
	h := openHarness(t, Config{})
	out := oracle.ZKCli(t, h.ZKAddr(), "create /cli one\nset /cli two\ncreate -s /cli/s- x\ncreate -e /cli/e y\nget /cli\nls /cli\ndelete /cli/e\nquit\n")
	for _, want := range []string{"Created /cli", "Created /cli/s-0000000000", "two", "[e, s-0000000000]"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	c := oracle.ZKClient(t, h.ZKAddr(), nil)
	data, st, err := c.Get("/cli")
	if err != nil || string(data) != "two" || st.Version != 1 || st.NumChildren != 1 {
		t.Errorf("%q %+v %v", data, st, err)
	}
	if _, err := c.Multi(&zk.CreateRequest{Path: "/m", Acl: zk.WorldACL(zk.PermAll)}, &zk.DeleteRequest{Path: "/none", Version: -1}); err != zk.ErrNoNode {
		t.Errorf("multi: %v", err)
	}
	if ok, _, err := c.Exists("/m"); ok || err != nil {
		t.Errorf("half of a multi: %v %v", ok, err)
	}
}
