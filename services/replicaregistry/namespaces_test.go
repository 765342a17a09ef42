package replicaregistry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// tenant is one namespace's registry and a client of its ZooKeeper port.
type tenant struct {
	*Server
	bzid string
	bus  bus.Bus
	zk   *zk.Conn
	went chan struct{} // closed when the client has lost its connection
	stop func()
}

func newTenant(t *testing.T, srv *natsserver.Server, bzid, snapshots string) *tenant {
	t.Helper()
	b, err := jetstream.Connect(context.WithoutCancel(t.Context()), jetstream.Config{Server: srv, BZID: bzid})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	env := controltest.Env(b)
	env.BZID = bzid
	s, err := New(Config{ZKListen: "127.0.0.1:0", SnapshotDir: snapshots}, env)
	if err != nil {
		t.Fatal(err)
	}
	x := &tenant{Server: s, bzid: bzid, bus: b, went: make(chan struct{})}
	x.stop = controltest.Start(t, s)
	wait.For(t, bzid+" to write", s.writes.Writable)
	c, states, err := zk.Connect([]string{s.ZKAddr()}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	x.zk = c
	connected := make(chan struct{})
	go func() {
		for e := range states {
			switch e.State {
			case zk.StateHasSession:
				close(connected)
			case zk.StateDisconnected:
				close(x.went)
				return
			}
		}
	}()
	<-connected
	t.Cleanup(c.Close)
	return x
}

// put appends a fact of the namespace and waits until the registry's tree has it.
func (x *tenant) put(t *testing.T, d bus.Draft) uint64 {
	t.Helper()
	d.Expect = bus.Any
	seqs, err := x.bus.Log().Append(t.Context(), d)
	if err == nil {
		err = x.znode.Wait(t.Context(), seqs[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return seqs[0]
}

func (x *tenant) load(t *testing.T, name string) uint64 {
	return x.put(t, bus.Draft{Subject: events.Join(x.bzid, "model", name), Event: &model.Event{Body: &model.Event_LoadAccepted{
		LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: "/d", Version: 1, NumShard: 1}}}}})
}

// Two namespaces on one NATS write at the same time, each through its own registry: a
// fence in front of one's writes deposes nobody else.
func TestAnotherNamespacesFenceDeposesNobody(t *testing.T) {
	srv, err := natsserver.Start(natsserver.Config{Dir: memdir.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	tenants := []*tenant{newTenant(t, srv, "aa", ""), newTenant(t, srv, "bb", "")}
	for i := range 20 {
		for _, x := range tenants {
			if _, err := x.zk.Create(fmt.Sprintf("/n-%d", i), nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatalf("%s, write %d: %v", x.bzid, i, err)
			}
		}
	}
	fences := map[string]int{}
	for _, r := range controltest.All(t, tenants[0].bus) {
		if e, ok := r.Event.(*znode.Event); ok && e.GetProposed().GetMulti() && len(e.GetProposed().GetOps()) == 0 {
			fences[string(r.Subject)]++
		}
	}
	if len(fences) != 2 || fences[string(events.Join("aa", "znode", znode.Aggregate))] != 1 || fences[string(events.Join("bb", "znode", znode.Aggregate))] != 1 {
		t.Errorf("fences: %v, want one for each namespace", fences)
	}
	for _, x := range tenants {
		select {
		case <-x.went:
			t.Errorf("the client of %s lost its connection", x.bzid)
		default:
		}
	}
}

// A client of one namespace neither sees nor changes what another one's services and
// clients keep: not now, not in the past, not after a restart from snapshots, and no
// event of the other one fires its watches.
func TestEachNamespaceIsATreeOfItsOwn(t *testing.T) {
	srv, err := natsserver.Start(natsserver.Config{Dir: memdir.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	snapshots := t.TempDir()
	aa, bb := newTenant(t, srv, "aa", snapshots), newTenant(t, srv, "bb", snapshots)
	open := zk.WorldACL(zk.PermAll)
	_, _, watch, err := aa.zk.ChildrenW("/")
	if err != nil {
		t.Fatal(err)
	}
	loaded := bb.load(t, "m")
	bb.put(t, bus.Draft{Subject: events.Join("bb", "container", "t"), Event: &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{
		Container: &container.Container{Id: "t", Kind: "training", Job: "j", ServerType: "ps", GrpcAddress: "h:1"}}}}})
	if _, err := bb.zk.Create("/lock", []byte("bb"), zk.FlagEphemeral, open); err != nil {
		t.Fatal(err)
	}

	if err := aa.znode.Wait(t.Context(), bb.znode.Seq()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/bb", "/monolith", "/lock", fmt.Sprintf("/@%d/bb", loaded)} {
		if there, _, err := aa.zk.Exists(path); there || err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("a client of aa sees %s of bb: %v", path, err)
		}
	}
	if err := aa.zk.Delete("/bb/portal/m", -1); !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("a client of aa deletes what bb asks for: %v", err)
	}
	select {
	case e := <-watch:
		t.Errorf("bb's events fired aa's watch: %+v", e)
	default:
	}
	if _, err := aa.zk.Create("/lock", []byte("aa"), zk.FlagEphemeral, open); err != nil {
		t.Errorf("bb's lock is in aa's way: %v", err)
	}
	for _, path := range []string{"/bb", "/bb/portal", "/bb/portal/m"} { // a name like another
		if _, err := aa.zk.Create(path, []byte("of aa"), 0, open); err != nil {
			t.Fatal(err)
		}
	}
	data, _, err := bb.zk.Get("/bb/portal/m")
	if err != nil || !strings.Contains(string(data), `"model_name": "m"`) {
		t.Errorf("bb's own node: %s, %v", data, err)
	}
	if ids := sessions(aa); len(ids) != 1 || slices.Contains(sessions(bb), ids[0]) {
		t.Errorf("sessions of aa %v, of bb %v", ids, sessions(bb))
	}

	// What a replay makes of the namespace is what the registry shows, before and after a
	// restart from its snapshot.
	for _, x := range []*tenant{aa, bb} {
		x.zk.Close()
		x.stop()
		x = newTenant(t, srv, x.bzid, snapshots)
		for _, other := range []string{"aa", "bb"} {
			path := "/" + other + "/portal/m"
			want := map[string]string{"aa": "of aa", "bb": `"model_name": "m"`}[x.bzid]
			data, _, err := x.zk.Get(path)
			switch {
			case other == "bb" && (err != nil || !strings.Contains(string(data), want)):
				t.Errorf("%s after its restart: %s is %s, %v", x.bzid, path, data, err)
			case other == "aa" && !errors.Is(err, zk.ErrNoNode):
				t.Errorf("%s after its restart: %s is %s, %v", x.bzid, path, data, err)
			}
		}
		seq, hash := x.znode.Hash()
		if _, replayed, err := registry.Replay(t.Context(), x.bus.Log(), view.Name, x.bzid, seq); err != nil || replayed != hash {
			t.Errorf("%s at %d: the registry's hash is %s, a replay's %s, %v", x.bzid, seq, hash, replayed, err)
		}
		past := "/@" + strconv.FormatUint(loaded, 10) + "/bb/portal/m"
		if there, _, err := x.zk.Exists(past); err != nil && !errors.Is(err, zk.ErrNoNode) || there != (x.bzid == "bb") {
			t.Errorf("%s sees %s: %v, %v", x.bzid, past, there, err)
		}
	}
}

func sessions(x *tenant) (ids []int64) {
	x.znode.Read(func(t view.State) { ids = t.Sessions() })
	return ids
}

// quiet is a client's log that nobody reads.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
