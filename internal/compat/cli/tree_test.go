package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// A data centre whose cluster has a number for a name looks like a task.
func TestReplicasOfANumberedCluster(t *testing.T) {
	found, ok, err := replicaNodes(fakeTree{
		"/b/service/m": "", "/b/service/m/lq:1": "", "/b/service/m/lq:1/ps:0": "", "/b/service/m/ps:1": "",
		"/b/service/m/lq:1/ps:0/7": `{"address": "10.0.0.1:4003", "stat": 30}`,
		"/b/service/m/ps:1/8":      `{"address": "10.0.0.2:4003", "stat": 30}`,
	}, "b", "m")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var paths []string
	for _, f := range found {
		paths = append(paths, f.path)
	}
	slices.Sort(paths)
	if want := []string{"/b/service/m/lq:1/ps:0/7", "/b/service/m/ps:1/8"}; !slices.Equal(paths, want) {
		t.Errorf("found %q, want %q", paths, want)
	}
}

// The commands' ZooKeeper client is held to Apache's server and to ours.
func TestTreeOfZooKeeper(t *testing.T) {
	t.Run("apache", func(t *testing.T) { fakeZooKeeper(t, oracle.ZooKeeper(t).Addr) })
	t.Run("ours", func(t *testing.T) { fakeZooKeeper(t, ourZooKeeper(t)) })
}

// ourZooKeeper is a replica-registry on a log in memory, by the address of its ZooKeeper port.
func ourZooKeeper(t *testing.T) string {
	t.Helper()
	s, err := replicaregistry.New(replicaregistry.Config{ZKListen: "127.0.0.1:0"}, services.Env{BZID: "b", Bus: mem.New(), Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer("b")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s.ZKAddr()
}

// fakeZooKeeper is what the original's tests ask of their fake client, asked of a server.
func fakeZooKeeper(t *testing.T, at string) {
	t.Helper()
	tr, err := dialZK(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	c, open := tr.c, zk.WorldACL(zk.PermAll)
	must := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("%s at %s: %v, want %v", what, at, err, want)
		}
	}
	const root, data = "/monolith_fake/zk", "/monolith_fake/zk/data"
	_, err = c.Create(data, nil, 0, open)
	must("create without a parent", err, zk.ErrNoNode)
	must("create with its parents", tr.put(data, []byte("data")), nil)
	_, err = c.Create(data, nil, 0, open)
	must("create again", err, zk.ErrNodeExists)
	got, stat, err := c.Get(data)
	must("get", err, nil)
	if string(got) != "data" || stat.DataLength != 4 || stat.NumChildren != 0 || stat.Version != 0 {
		t.Fatalf("%s holds %q, %+v", data, got, stat)
	}
	_, err = c.Set(data+"/no", nil, -1)
	must("set what is not there", err, zk.ErrNoNode)
	_, _, err = c.Get(data + "/no")
	must("get what is not there", err, zk.ErrNoNode)
	for i := range 2 {
		path, err := c.Create(data+"/s-", nil, zk.FlagSequence|zk.FlagEphemeral, open)
		must("create a sequence", err, nil)
		if want := fmt.Sprintf("%s/s-%010d", data, i); path != want {
			t.Fatalf("created %s, want %s", path, want)
		}
	}
	must("delete what has children", c.Delete(data, -1), zk.ErrNotEmpty)

	hears := func(what string, ch <-chan zk.Event, kind zk.EventType) {
		t.Helper()
		select {
		case e := <-ch:
			if e.Type != kind {
				t.Fatalf("%s: %v, want %v", what, e, kind)
			}
		case <-time.After(wait.Patience):
			t.Fatalf("%s: nothing is heard", what)
		}
	}
	_, _, ch, err := c.GetW(data)
	must("watch data", err, nil)
	stat, err = c.Set(data, []byte("more"), stat.Version)
	must("set", err, nil)
	hears("set", ch, zk.EventNodeDataChanged)
	if stat.Version != 1 || stat.DataLength != 4 {
		t.Fatalf("after a set %+v", stat)
	}
	_, _, ch, err = c.ChildrenW(root)
	must("watch children", err, nil)
	_, _, made, err := c.ExistsW(root + "/test")
	must("watch what is not there", err, nil)
	must("create", tr.put(root+"/test", nil), nil)
	hears("a child", ch, zk.EventNodeChildrenChanged)
	hears("a node", made, zk.EventNodeCreated)
	_, _, ch, err = c.GetW(data)
	must("watch data", err, nil)
	found, err := tr.remove("/monolith_fake", true)
	if must("delete all", err, nil); !found {
		t.Fatal("there was nothing to delete")
	}
	hears("delete", ch, zk.EventNodeDeleted)
	if found, err = tr.remove("/monolith_fake", true); found || err != nil {
		t.Fatalf("deleted again: %v %v", found, err)
	}
}
