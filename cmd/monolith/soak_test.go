package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host/connect"
)

// disturbances are what happens to an installation while ratings and predictions flow.
// Each function returns once the disturbance is over and was answered as promised.
var disturbances = []struct {
	name    string
	disturb func(*soak)
}{
	{"trim in the middle", trimInTheMiddle},
	{"partitions added", partitionsAdded},
	{"transactional producer", transactionalProducer},
	{"records from 2102", recordsFrom2102},
	{"full letters", fullLetters},
	{"hung model server", hungModelServer},
	{"authentication blip", authenticationBlip},
}

// soak is a stack under traffic that is disturbed. Its folder and its NATS server outlive
// the rounds.
type soak struct {
	*opsWorld
	server  *gatedNATS
	ledger  *soakLedger
	traffic *soakTraffic
	archive string
	apart   *apartTask
}

// TestSoakDisturbances disturbs everything that runs, in each way once. At the end every
// acked rating was learnt once or is parked, the replicas agree and verify finds no fault.
// MONOLITH_SOAK=n goes n rounds on one folder, each in an order of its own.
func TestSoakDisturbances(t *testing.T) {
	t.Setenv(binaryEnv, "1") // the children of this process are monolith
	t.Setenv(connect.EnvSynced, connect.SyncedAlways)
	rounds, _ := strconv.Atoi(os.Getenv("MONOLITH_SOAK")) // not set: one short one
	seed := soakSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	nats, ledger := startGatedNATS(t, filepath.Join(dir, "nats")), newSoakLedger()
	partitions := 2
	for round := range max(rounds, 1) {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			cfg := opsConfig(filepath.Join(dir, "data"))
			cfg.Logs.NATS, cfg.Partitions, cfg.Spans = nats.url, partitions, false
			if rounds > 0 {
				cfg.Checkpoints = 3 * time.Second // beside those that are asked for
			} else {
				cfg.Shards = 1
			}
			cfg.Linger, cfg.Sync = 20*time.Millisecond, 200*time.Millisecond // each delta carries the dense variables
			s := &soak{server: nats, ledger: ledger, archive: filepath.Join(dir, "archive")}
			s.opsWorld = opsServe(t, cfg, s.prepare)
			s.round(rng.Perm(len(disturbances)), rounds > 0)
			partitions = s.Config.Partitions
		})
		if t.Failed() {
			return
		}
	}
}

func soakSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("MONOLITH_SOAK_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (MONOLITH_SOAK_SEED repeats it)", seed)
	return seed
}

// round disturbs in the given order; thorough also verifies after each disturbance.
func (s *soak) round(order []int, thorough bool) {
	s.t.Helper()
	s.traffic = s.flow()
	s.flows("before the first disturbance")
	for _, i := range order {
		began := time.Now()
		disturbances[i].disturb(s)
		s.flows("after: " + disturbances[i].name)
		if thorough {
			if code, out, stderr := opsTool("verify", "--dir", s.Config.Dir); code != exitOK {
				s.t.Errorf("verify: exit %d %s%s", code, out, stderr)
			}
		}
		s.t.Logf("%s: %v", disturbances[i].name, time.Since(began).Round(time.Millisecond))
		if s.t.Failed() {
			s.t.FailNow()
		}
	}
	s.settled()
	s.apart.stop()
	s.halt()
}

// prepare makes rows expire after a day, so that a clock that is moved too far is seen, and
// one replica a process of its own, which can hang.
func (s *soak) prepare(w *opsWorld) {
	for _, table := range w.spec.GetTables() {
		if table.GetName() == "movie" {
			table.Expire = &model.Expire{Days: 1}
		}
	}
	s.apart = w.apart(hungTask, "--hang-timeout", "3s")
}

// apartTask is a task of the stack that runs as a process of its own.
type apartTask struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// apart takes a task out of those that run in this process, with more flags.
func (w *opsWorld) apart(name string, more ...string) *apartTask {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := &apartTask{cancel: cancel, done: make(chan struct{})}
	for i, task := range w.Tasks {
		if task.Name != name {
			continue
		}
		w.Tasks = append(w.Tasks[:i:i], w.Tasks[i+1:]...)
		task.Args = append(task.Args[:len(task.Args):len(task.Args)], more...)
		go func() {
			defer close(a.done)
			if err := w.RunChild(ctx, task, func() {}); ctx.Err() == nil {
				w.t.Errorf("%s ended by itself: %v", name, err)
			}
		}()
		w.t.Cleanup(a.stop)
		return a
	}
	cancel()
	w.t.Fatalf("the stack has no task %s", name)
	return nil
}

// stop drains it. A nil one never started.
func (a *apartTask) stop() {
	a.cancel()
	<-a.done
}

// gatedNATS is a NATS server with a password, which can be another one for a while.
type gatedNATS struct {
	ns       *server.Server
	password atomic.Value
	url      string
}

func startGatedNATS(t testing.TB, dir string) *gatedNATS {
	t.Helper()
	g := new(gatedNATS)
	g.password.Store("right")
	var err error
	if g.ns, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, CustomClientAuthentication: g, JetStream: true, StoreDir: dir,
		JetStreamMaxStore: 32 << 30, JetStreamMaxMemory: 256 << 20, SyncAlways: true, NoSigs: true, NoLog: true}); err != nil {
		t.Fatal(err)
	}
	g.ns.Start()
	t.Cleanup(func() { g.ns.Shutdown(); g.ns.WaitForShutdown() })
	if !g.ns.ReadyForConnections(opsWithin) {
		t.Fatal("the NATS server does not start")
	}
	g.url = "nats://soak:right@" + g.ns.Addr().String()
	return g
}

// Check implements server.Authentication.
func (g *gatedNATS) Check(c server.ClientAuthentication) bool {
	return c.GetOpts().Password == g.password.Load()
}

// rotate changes the password, and ends the connections that have the old one.
func (g *gatedNATS) rotate(password string) error {
	g.password.Store(password)
	conns, err := g.ns.Connz(nil)
	if err != nil {
		return err
	}
	for _, c := range conns.Conns {
		_ = g.ns.DisconnectClientByID(c.Cid) // fails for one that has gone by itself
	}
	return nil
}
