package oracle

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/zookeeper"
)

func needZooKeeper(t testing.TB) {
	t.Helper()
	if !zookeeper.Installed() {
		Missing(t, "Apache ZooKeeper", fix)
	}
}

// ZooKeeperServer is a server of Apache's that a test has started; Addr is its client
// address. It ends with the test.
type ZooKeeperServer struct {
	Addr string
	*zookeeper.Server
}

const (
	zkTick = 500 * time.Millisecond // short, so that elections are
	// zkMaxSession lets a test's clients outlive whatever time a busy machine stands still.
	zkMaxSession = 10 * time.Minute
)

// ZooKeeper starts one Apache ZooKeeper server. flags are for its virtual machine,
// "-Dzookeeper.extendedTypesEnabled=true" for example.
func ZooKeeper(t testing.TB, flags ...string) *ZooKeeperServer {
	t.Helper()
	return startZooKeeper(t, zookeeper.Config{Java: flags})
}

// ZooKeeperTLS is ZooKeeper with a second port, its SecureAddr, for clients that show a
// certificate of the same authorities as files.
func ZooKeeperTLS(t testing.TB, files mtls.Files) *ZooKeeperServer {
	t.Helper()
	return startZooKeeper(t, zookeeper.Config{TLS: files})
}

func startZooKeeper(t testing.TB, cfg zookeeper.Config) *ZooKeeperServer {
	t.Helper()
	needZooKeeper(t)
	cfg.Dir, cfg.Tick, cfg.MaxSession, cfg.Java = t.TempDir(), zkTick, zkMaxSession, append([]string{"-Xmx512m"}, cfg.Java...)
	s, err := zookeeper.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return &ZooKeeperServer{s.Addr(), s}
}

// ZooKeeperEnsemble starts n servers that are one ensemble.
func ZooKeeperEnsemble(t testing.TB, n int) []*ZooKeeperServer {
	t.Helper()
	needZooKeeper(t)
	dir := t.TempDir()
	var cfgs []zookeeper.Config
	for i := range n {
		cfgs = append(cfgs, zookeeper.Config{Dir: filepath.Join(dir, strconv.Itoa(i)), Tick: zkTick, MaxSession: zkMaxSession, Java: []string{"-Xmx256m"}})
	}
	started, err := zookeeper.StartEnsemble(context.Background(), cfgs...)
	if err != nil {
		t.Fatal(err)
	}
	var all []*ZooKeeperServer
	for _, s := range started {
		t.Cleanup(s.Kill)
		all = append(all, &ZooKeeperServer{s.Addr(), s})
	}
	return all
}

// Restart starts the server again, on the same address and the same data, after it has
// been killed or while it runs, and waits until it answers.
func (z *ZooKeeperServer) Restart(t testing.TB) {
	t.Helper()
	z.Kill()
	if _, err := z.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Wipe removes the data of a killed server: restarted, it knows nothing.
func (z *ZooKeeperServer) Wipe(t testing.TB) {
	t.Helper()
	if err := z.Server.Wipe(); err != nil {
		t.Fatal(err)
	}
}

// FourLetters asks a ZooKeeper server one of its words; "" when it does not answer.
func FourLetters(t testing.TB, addr, word string) string {
	t.Helper()
	return zookeeper.FourLetters(addr, word)
}
