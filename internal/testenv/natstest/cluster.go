package natstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// nodeEnv names the options of the server that this process is to be.
const nodeEnv = "MONOLITH_TEST_NATS_NODE"

// settleTimeout bounds what a cluster does by itself: elections, catching up.
const settleTimeout = wait.Patience

// Cluster is nats-servers on loopback that replicate streams among each other. Each is a
// process of its own, this test binary, so that a kill is a kill; TestMain calls [Node].
type Cluster struct {
	nodes []*node
	nc    *nats.Conn // to whichever is up
	js    jetstream.JetStream
}

// node is one server of a cluster, while it is up and while it is not.
type node struct {
	options nodeOptions
	cmd     *exec.Cmd
	stdin   io.Closer // the process ends with it
	done    chan struct{}
}

// nodeOptions is what a node's process is told.
type nodeOptions struct {
	Name, Dir   string
	Port, Route int
	Routes      []int
}

// Node is true when this process was a server of a cluster, which has ended.
func Node() bool {
	raw := os.Getenv(nodeEnv)
	if raw == "" {
		return false
	}
	if err := serveNode(raw); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func serveNode(raw string) error {
	var o nodeOptions
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: o.Name, Host: "127.0.0.1", Port: o.Port, NoSigs: true, JetStream: true, StoreDir: o.Dir, SyncAlways: true,
		JetStreamMaxStore: 32 << 30, JetStreamMaxMemory: 256 << 20, LogFile: filepath.Join(o.Dir, "log"),
		Cluster: server.ClusterOpts{Name: "monolith", Host: "127.0.0.1", Port: o.Route, NoAdvertise: true},
	}
	for _, port := range o.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: loopback(port)})
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	ns.ConfigureLogger()
	ns.Start()
	_, err = io.Copy(io.Discard, os.Stdin) // the test's end, whatever it is
	ns.Shutdown()
	ns.WaitForShutdown()
	return err
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// NewCluster starts n servers and waits until they keep streams. They end with the test.
func NewCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := StartNodes(t, n)
	c.await(t, "a leader of the cluster", func(ctx context.Context) error {
		_, err := c.js.AccountInfo(ctx)
		return err
	})
	return c
}

// StartNodes is NewCluster that waits for nothing but the first server's port.
func StartNodes(t testing.TB, n int) *Cluster {
	t.Helper()
	ports := freePorts(t, 2*n)
	c := &Cluster{}
	for i := range n {
		c.nodes = append(c.nodes, &node{options: nodeOptions{Name: fmt.Sprint("n", i), Dir: t.TempDir(), Port: ports[n+i], Route: ports[i], Routes: ports[:n]}})
	}
	t.Cleanup(func() { c.end(t) })
	for i := range n {
		c.Start(t, i)
	}
	c.await(t, "a server", func(context.Context) (err error) {
		c.nc, err = nats.Connect(c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.IgnoreAuthErrorAbort())
		return err
	})
	var err error
	if c.js, err = jetstream.New(c.nc); err != nil {
		t.Fatal(err)
	}
	return c
}

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for len(ports) < n {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ports, port) { // nobody listens on those found before
			ports = append(ports, port)
		}
	}
	return ports
}

// end stops everything, and shows the servers' last words of a test that failed.
func (c *Cluster) end(t testing.TB) {
	if c.nc != nil {
		c.nc.Close()
	}
	for i, n := range c.nodes {
		c.Kill(i)
		if log, err := os.ReadFile(filepath.Join(n.options.Dir, "log")); err == nil && t.Failed() {
			lines := slices.DeleteFunc(strings.Split(string(log), "\n"), func(line string) bool { return strings.Contains(line, " rid:") || strings.Contains(line, "to route") })
			t.Logf("log of %s:\n%s", n.options.Name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	}
}

// Len is the number of servers, up or not.
func (c *Cluster) Len() int { return len(c.nodes) }

// URL is what clients connect to: every server's.
func (c *Cluster) URL() string {
	var all []string
	for i := range c.nodes {
		all = append(all, c.NodeURL(i))
	}
	return strings.Join(all, ",")
}

// NodeURL is the URL of one server.
func (c *Cluster) NodeURL(i int) string { return "nats://" + loopback(c.nodes[i].options.Port) }

// Kill is kill -9 of one server, and returns once it is gone.
func (c *Cluster) Kill(i int) {
	n := c.nodes[i]
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // gone already is as good
	<-n.done
	_ = n.stdin.Close()
	n.cmd = nil
}

// Start starts one server, with what it had on disk.
func (c *Cluster) Start(t testing.TB, i int) {
	t.Helper()
	n := c.nodes[i]
	raw, err := json.Marshal(n.options)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+string(raw))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // killed, or at its end
	}()
	n.cmd, n.stdin, n.done = cmd, stdin, done
}

// ended says whether a server that was not killed is gone.
func (n *node) ended() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// Leader is the server that leads a stream.
func (c *Cluster) Leader(t testing.TB, stream string) int {
	t.Helper()
	at := -1
	c.await(t, "a leader of "+stream, func(ctx context.Context) error {
		info, err := c.info(ctx, stream)
		if err != nil {
			return err
		}
		for i, n := range c.nodes {
			if n.options.Name == info.Cluster.Leader && n.cmd != nil {
				at = i
				return nil
			}
		}
		return fmt.Errorf("%q leads it", info.Cluster.Leader)
	})
	return at
}

// StepDown has the leader of a stream give up, and returns once there is one again.
func (c *Cluster) StepDown(t testing.TB, stream string) {
	t.Helper()
	c.await(t, "a leader of "+stream+" to step down", func(ctx context.Context) error {
		reply, err := c.nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
		if err != nil {
			return err
		}
		var said struct{ Success bool }
		if err := json.Unmarshal(reply.Data, &said); err != nil || !said.Success {
			return fmt.Errorf("the answer is %s", reply.Data)
		}
		return nil
	})
	c.Leader(t, stream)
}

// Current waits until every server is up to date with all streams.
func (c *Cluster) Current(t testing.TB) {
	t.Helper()
	c.await(t, "replicas that are up to date", func(ctx context.Context) error {
		var behind []string
		names := c.js.StreamNames(ctx)
		for name := range names.Name() {
			info, err := c.info(ctx, name)
			if err != nil {
				return err
			}
			for _, r := range info.Cluster.Replicas {
				if !r.Current || r.Offline {
					behind = append(behind, name+" on "+r.Name)
				}
			}
		}
		if len(behind) > 0 {
			return errors.New(strings.Join(behind, ", "))
		}
		return names.Err()
	})
}

func (c *Cluster) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info := s.CachedInfo()
	if info.Cluster == nil {
		return nil, fmt.Errorf("stream %s is not replicated", stream)
	}
	return info, nil
}

// await repeats f until it succeeds, for a second at most and, where a busy machine needs more
// for all of its questions, for longer each time. A server that has ended by itself, for want of
// its port say, ends the test.
func (c *Cluster) await(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	pauses := retry.New(20*time.Millisecond, 200*time.Millisecond)
	for long := time.Second; ; long = min(2*long, settleTimeout/4) {
		attempt, end := context.WithTimeout(ctx, long)
		err := f(attempt)
		end()
		if err == nil {
			return
		}
		for _, n := range c.nodes {
			if n.ended() {
				t.Fatalf("server %s has ended, while %s was awaited", n.options.Name, what)
			}
		}
		if pauses.Wait(ctx) != nil {
			t.Fatalf("%v without %s: %v", settleTimeout, what, err)
		}
	}
}
