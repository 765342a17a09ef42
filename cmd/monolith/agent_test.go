package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// monolith agent serves an agent.conf with this program's own model server where no other is named:
// shards first, then the entry. When one of them is killed all end.
func TestAgentStartsTheBuiltInServer(t *testing.T) {
	d := newDropIn(t)
	d.trained(10)
	users, movies, scores := d.expected()
	srv, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	startChild(t, "replica-registry", "--nats", srv.URL(), "--zk-listen", "", "--listen", "")
	rest, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	d.at.HTTP = net.JoinHostPort("127.0.0.1", strconv.Itoa(rest))
	conf := filepath.Join(t.TempDir(), "agent.conf")
	text := fmt.Sprintf("bzid demo\ndeploy_type mixed\nbase_name movies\nbase_path %s\nnum_ps 2\ntfs_entry_http_port %d\n", d.exports, rest)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"SHARD_ID": "0", "REPLICA_ID": "0", "MONOLITH_TFS_BINARY": "", "TENSORFLOW_MODEL_SERVER": ""} {
		t.Setenv(key, value)
	}
	a := startChild(t, "agent", "--nats", srv.URL(), "--conf", conf, "--dir", t.TempDir(), "--log-level", "info")
	wait.For(t, "the entry answers", func() bool {
		select {
		case <-a.done:
			t.Fatalf("the agent ended: %v\n%s", a.state, tail(a.err.String()))
		default:
		}
		c, err := net.DialTimeout("tcp", d.at.HTTP, time.Second)
		return err == nil && c.Close() == nil
	})
	d.until("entry", d.newest(), "AVAILABLE")
	d.answers("entry", users, movies, scores)

	pid := regexp.MustCompile(`"model server started".* container=\S*-ps pid=(\d+)`).FindStringSubmatch(a.err.String())
	if pid == nil {
		t.Fatalf("the agent does not say which process serves the shards:\n%s", tail(a.err.String()))
	}
	n, err := strconv.Atoi(pid[1])
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t, wait.Patience); err == nil {
		t.Error("the agent ended well though one of its servers was killed")
	}
	if c, err := net.DialTimeout("tcp", d.at.HTTP, time.Second); err == nil {
		c.Close()
		t.Error("the entry outlives its agent")
	}
}
