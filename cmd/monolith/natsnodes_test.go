package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// natsNodes are three monolith nats on loopback.
type natsNodes struct {
	t      *testing.T
	dir    string
	ports  []int // for clients, then for each other
	nodes  [3]*child
	bus    bus.Bus
	stored map[string]uint64 // what was acked: sequence by id
}

func newNATSNodes(t *testing.T) *natsNodes {
	t.Helper()
	n := &natsNodes{t: t, dir: t.TempDir(), stored: map[string]uint64{}}
	for len(n.ports) < 6 {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(n.ports, port) {
			n.ports = append(n.ports, port)
		}
	}
	for i := range n.nodes {
		n.start(i)
	}
	for i := range n.nodes {
		n.ready(i)
	}
	return n
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (n *natsNodes) statusFile(i int) string { return filepath.Join(n.dir, fmt.Sprint("status-", i)) }

func (n *natsNodes) start(i int) {
	n.t.Helper()
	if err := os.Remove(n.statusFile(i)); err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	routes := strings.Join([]string{local(n.ports[3]), local(n.ports[4]), local(n.ports[5])}, ",")
	n.nodes[i] = startChild(n.t, "nats", "--dir", filepath.Join(n.dir, fmt.Sprint("n", i)), "--name", fmt.Sprint("n", i), "--listen", local(n.ports[i]),
		"--cluster-name", "logs", "--cluster-listen", local(n.ports[3+i]), "--routes", routes, "--drain", "1s", "--status-file", n.statusFile(i))
}

func (n *natsNodes) url() string {
	return "nats://" + local(n.ports[0]) + ",nats://" + local(n.ports[1]) + ",nats://" + local(n.ports[2])
}

// ready waits until the node says that it is, and returns where it says that.
func (n *natsNodes) ready(i int) (status string) {
	n.t.Helper()
	wait.Until(n.t, fmt.Sprintf("server %d to be ready", i), func() error {
		raw, err := os.ReadFile(n.statusFile(i))
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, tail(n.nodes[i].err.String()))
		}
		var s host.ProcessStatus
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		status = "http://" + s.Status
		code, text := n.get(status + "/readyz")
		if code != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", code, text)
		}
		return nil
	})
	return status
}

func (n *natsNodes) get(url string) (code int, text string) {
	n.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(raw)
}

// append stores events until so many are acked.
func (n *natsNodes) append(ctx context.Context, name string, count int) {
	n.t.Helper()
	const at = 50
	for from := 0; from < count; from += at {
		var drafts []bus.Draft
		for i := range at {
			id := fmt.Sprint(name, "-", from+i)
			drafts = append(drafts, bus.Draft{Subject: model.Subject("demo", fmt.Sprint("m", i)), Expect: bus.Any, Header: events.Header{ID: id},
				Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: strings.Repeat("x", 1000)}}}})
		}
		for {
			seqs, err := n.bus.Log().Append(ctx, drafts...)
			if err == nil {
				for i, d := range drafts {
					n.stored[d.Header.ID] = seqs[i]
				}
				break
			}
			if !bus.Retryable(err) || ctx.Err() != nil {
				n.t.Fatalf("Append: %v", err)
			}
		}
	}
}

// whole checks that the log holds what was acked, once and where that was said.
func (n *natsNodes) whole(ctx context.Context) {
	n.t.Helper()
	last, err := n.bus.Log().Last(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	seen := map[string]uint64{}
	if err := n.bus.Log().Follow(ctx, 1, last, func(r events.Recorded) error {
		if _, twice := seen[r.Header.ID]; twice {
			n.t.Errorf("%s is stored twice", r.Header.ID)
		}
		seen[r.Header.ID] = r.Seq
		return nil
	}); err != nil {
		n.t.Fatal(err)
	}
	for id, seq := range n.stored {
		if seen[id] != seq {
			n.t.Errorf("%s was acked at %d and stands at %d", id, seq, seen[id])
		}
	}
}

// cluster is what the leader says of each stream.
func (n *natsNodes) cluster(ctx context.Context, js natsjs.JetStream) (infos []*natsjs.StreamInfo) {
	n.t.Helper()
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		infos = append(infos, info)
	}
	if list.Err() != nil {
		n.t.Fatal(list.Err())
	}
	return infos
}

// TestNATSNodes runs monolith nats three times: a role moves the streams to all of them, one is
// killed and comes back, ready no earlier than its replicas are current, and from then on counts
// among those that have acked what is stored. One that is asked to end hands over what it leads.
func TestNATSNodes(t *testing.T) {
	n := newNATSNodes(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*wait.Patience)
	defer cancel()
	var err error
	if n.bus, err = jetstream.Connect(ctx, jetstream.Config{URL: n.url(), BZID: "demo"}); err != nil { // one copy of each
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.bus.Close() })
	n.append(ctx, "first", 100)

	portal := startChild(t, "portal", "--nats", n.url(), "--log-replicas", "3", "--status-file", filepath.Join(n.dir, "portal"))
	wait.Until(t, "the portal", func() error { _, err := os.Stat(filepath.Join(n.dir, "portal")); return err })
	_ = portal.cmd.Process.Signal(syscall.SIGTERM)
	if err := portal.wait(t, wait.Patience); err != nil {
		t.Errorf("the portal: %v\n%s", err, tail(portal.err.String()))
	}
	nc, err := nats.Connect(n.url(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	infos := n.cluster(ctx, js)
	for _, info := range infos {
		if info.Config.Replicas != 3 {
			t.Errorf("%s has %d replicas", info.Config.Name, info.Config.Replicas)
		}
	}
	if len(infos) != 5 {
		t.Fatalf("%d streams", len(infos))
	}
	wait.Until(t, "the copies", func() error { return behind(n.cluster(ctx, js)) })

	n.nodes[1].kill()
	n.append(ctx, "without", 2000)
	n.start(1)
	status := n.ready(1)
	if err := behind(n.cluster(ctx, js)); err != nil {
		t.Errorf("ready before the replicas are current: %v", err)
	}
	if _, text := n.get(status + "/metrics"); !strings.Contains(text, "monolith_nats_routes ") || !strings.Contains(text, `monolith_nats_groups{state="behind"} 0`) {
		t.Errorf("metrics: %s", text)
	}
	n.nodes[2].kill() // from here on nothing is acked but by the one that was killed before
	n.append(ctx, "again", 100)
	n.whole(ctx)
	n.start(2)
	n.ready(2)

	_ = n.nodes[0].cmd.Process.Signal(syscall.SIGTERM)
	if err := n.nodes[0].wait(t, wait.Patience); err != nil {
		t.Errorf("the server that was asked to end: %v\n%s", err, tail(n.nodes[0].err.String()))
	}
	n.append(ctx, "after", 100)
	n.whole(ctx)
}

// behind names a replica that is not current.
func behind(infos []*natsjs.StreamInfo) error {
	for _, info := range infos {
		if info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
			return fmt.Errorf("%s has no two followers", info.Config.Name)
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline || r.Lag > 0 {
				return fmt.Errorf("%s on %s is behind by %d", info.Config.Name, r.Name, r.Lag)
			}
		}
	}
	return nil
}

// What keeps servers from each other, or leaves a port open, is refused before anything starts.
func TestNATSNodeRefusals(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--routes 127.0.0.1:1", "routes without the cluster's name"},
		{"--cluster-name c --routes nowhere", `route "nowhere"`},
		{"--cluster-name c --cluster-listen 0.0.0.0:6222", "--insecure-cluster"},
		{"--listen 0.0.0.0:4222", "--insecure-nats"},
		{"--listen here", "--listen"},
		{"--users /nonexistent", "read the users"},
	} {
		var out, errs strings.Builder
		code := run(append([]string{"nats", "--dir", t.TempDir()}, strings.Fields(tc.args)...), &out, &errs)
		if code == exitOK || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("%s: %d %s", tc.args, code, errs.String())
		}
	}
}
