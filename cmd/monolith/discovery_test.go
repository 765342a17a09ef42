package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// TestRolesBesideADiscovery: the process of a trainer stands in Apache ZooKeeper where the original's worker does, a
// clean stop takes it away at once, after kill -9 its successor has the node, and what is not registered ends.
func TestRolesBesideADiscovery(t *testing.T) {
	server := oracle.ZooKeeper(t)
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	logs := fmt.Sprintf("127.0.0.1:%d", port)
	startChild(t, "nats", "--dir", t.TempDir(), "--listen", logs)
	conn, _, err := zk.Connect([]string{server.Addr}, time.Minute, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dir := t.TempDir()
	trainer := func(ensemble string) *child {
		return startChild(t, "trainer", "--nats", "nats://"+logs, "--job", "movies", "--model", "movies", "--index", "2", "--name", "trainer-2",
			"--kafka", "127.0.0.1:1", "--dir", dir, "--set", "discovery_type=zk", "--set", "zk_server="+ensemble, "--set", "deep_insight_name=movies")
	}
	const path = "/monolith/movies/worker.2"
	stands := func(c *child) (owner int64) {
		t.Helper()
		wait.Seen(t, "the trainer is registered", func() (string, bool) {
			addr, stat, err := conn.Get(path)
			if err != nil {
				return fmt.Sprint(err, tail(c.err.String())), false
			}
			owner = stat.EphemeralOwner
			return string(addr), owner != 0 && strings.HasPrefix(string(addr), "127.0.0.1:")
		})
		return owner
	}
	gone := func() bool {
		there, _, err := conn.Exists(path)
		return err == nil && !there
	}
	a := trainer(server.Addr)
	first := stands(a)
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t, wait.Patience); err != nil {
		t.Errorf("a clean stop: %v\n%s", err, tail(a.err.String()))
	}
	if !gone() {
		t.Error("a clean stop has left its registration")
	}
	b := trainer(server.Addr)
	second := stands(b)
	b.kill()
	c := trainer(server.Addr)
	var third int64
	wait.For(t, "the successor has the node", func() bool { third = stands(c); return third != second })
	if second == first || third == first {
		t.Errorf("sessions %d, %d and %d", first, second, third)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.wait(t, wait.Patience); err != nil {
		t.Errorf("a clean stop: %v\n%s", err, tail(c.err.String()))
	}
	wait.For(t, "nothing is left", gone)
	d := trainer("127.0.0.1:1")
	if err := d.wait(t, wait.Patience); err == nil || !strings.Contains(d.err.String(), "not registered") && !strings.Contains(d.err.String(), "127.0.0.1:1") {
		t.Errorf("a trainer whose ensemble is away: %v\n%s", err, tail(d.err.String()))
	}
}
