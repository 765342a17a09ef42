package server

import (
	"errors"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// step is one event in our log and, in a real ZooKeeper, the one transaction that does
// the same.
type step struct {
	name string
	ours func(h *harness)
	real func(w *writer)
}

// writer makes transactions in a real ZooKeeper, of a session per container.
type writer struct {
	t     *testing.T
	addr  string
	conns map[string]*zk.Conn
}

func (w *writer) conn(container string) *zk.Conn {
	w.t.Helper()
	if w.conns[container] == nil {
		w.conns[container] = oracle.ZKClient(w.t, w.addr, nil)
	}
	return w.conns[container]
}

func (w *writer) multi(container string, ops ...any) {
	w.t.Helper()
	if _, err := w.conn(container).Multi(ops...); err != nil {
		w.t.Fatal(err)
	}
}

func create(path, data string, flags int32) any {
	return &zk.CreateRequest{Path: path, Data: []byte(data), Acl: zk.WorldACL(zk.PermAll), Flags: flags}
}

func set(path, data string) any {
	return &zk.SetDataRequest{Path: path, Data: []byte(data), Version: -1}
}

func remove(path string) any { return &zk.DeleteRequest{Path: path, Version: -1} }

const (
	portalBytes   = `{"model_name": "movie", "model_dir": "/d", "ckpt": null, "num_shard": 1, "action": "NONE", "spec_replicas": []}`
	publishBytes  = `{"shard_id": 0, "replica_id": 0, "model_name": "movie", "num_ps": 1, "total_publish_num": 1, "sub_models": {"ps_0": "/d/ps_0/1"}, "ptype": 1, "is_spec": false}`
	resourceBytes = `{"address": "127.0.0.1:9", "shard_id": 0, "replica_id": 1, "memory": 1024, "cpu": 0.5, "network": 0.0, "work_load": 0.0}`
	otherBytes    = `{"address": "127.0.0.1:4004", "address_ipv6": null, "stat": 30, "model_name": "movie", "server_type": "ps", "task": 0, "replica": 1, "archon_address": null, "archon_address_ipv6": null}`
	otherPath     = "/demo/service/movie/ps:0/1"
	portalPath    = "/demo/portal/movie"
	publishPath   = "/demo/publish/0:0:movie"
	resourcePath  = "/demo/resource/0:1"
)

var agent = &container.Container{Id: "c", Kind: "serving", AgentAddress: "127.0.0.1:9", Replica: 1}

// steps use every kind of node, shared parents, replacement by another owner, and
// removal.
var steps = []step{
	{"load", func(h *harness) { h.load("movie") }, func(w *writer) {
		w.multi("portal", create("/demo", "", 0), create("/demo/portal", "", 0), create(portalPath, portalBytes, 0))
	}},
	{"register", func(h *harness) { h.register() }, func(w *writer) {
		w.multi("a", create("/demo/service", "", 0), create("/demo/service/movie", "", 0), create("/demo/service/movie/ps:0", "", 0),
			create(replicaPath, loadingBytes, zk.FlagEphemeral))
	}},
	{"second replica", func(h *harness) {
		h.add("replica", "movie/ps:0/1", &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
			ModelName: "movie", ServerType: "ps", Replica: 1, Container: "b", GrpcAddress: "127.0.0.1:4004", Stat: replica.State_AVAILABLE}}}})
	}, func(w *writer) { w.multi("b", create(otherPath, otherBytes, zk.FlagEphemeral)) }},
	{"available", func(h *harness) { h.state(replica.State_AVAILABLE) }, func(w *writer) { w.multi("a", set(replicaPath, availableBytes)) }},
	{"plan", func(h *harness) {
		h.add("publish", "movie", &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{ModelName: "movie", ModelDir: "/d", Version: 1, NumPs: 1, Cause: 1,
			Assignments: []*publish.Assignment{{Container: "a", SubModels: map[string]string{"ps_0": "/d/ps_0/1"}}}}}})
	}, func(w *writer) {
		w.multi("portal", create("/demo/publish", "", 0), create(publishPath, publishBytes, 0))
	}},
	{"a container", func(h *harness) {
		h.add("container", "c", &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: agent}}})
	}, func(w *writer) {
		w.multi("c", create("/demo/container_service", "", 0),
			create("/demo/container_service/"+view.ContainerNode(agent), string(view.ServiceInfoOf(agent).Bytes()), zk.FlagEphemeral))
	}},
	{"resource", func(h *harness) {
		h.add("container", "c", &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: 1024, Cpu: 0.5}}})
	}, func(w *writer) {
		w.multi("c", create("/demo/resource", "", 0), create(resourcePath, resourceBytes, zk.FlagEphemeral))
	}},
	{"lost", func(h *harness) { h.lost() }, func(w *writer) { w.multi("a", remove(replicaPath)) }},
	{"registered again", func(h *harness) { h.register() }, func(w *writer) { w.multi("a", create(replicaPath, loadingBytes, zk.FlagEphemeral)) }},
	{"taken over by another container", func(h *harness) {
		h.add("replica", "movie/ps:0/0", &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
			ModelName: "movie", ServerType: "ps", Container: "b", GrpcAddress: "127.0.0.1:4003", Stat: replica.State_AVAILABLE}}}})
	}, func(w *writer) {
		w.multi("b", remove(replicaPath), create(replicaPath, availableBytes, zk.FlagEphemeral))
	}},
	{"unload", func(h *harness) {
		h.add("model", "movie", &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "over"}}})
	}, func(w *writer) { w.multi("portal", remove(portalPath)) }},
	{"withdraw", func(h *harness) {
		h.add("publish", "movie", &publish.Event{Body: &publish.Event_Withdrawn{Withdrawn: &publish.Withdrawn{ModelName: "movie"}}})
	}, func(w *writer) { w.multi("portal", remove(publishPath)) }},
}

// asked are the paths that are asked for and watched at each step, there or not.
var asked = []string{
	"/", "/demo", "/demo/portal", portalPath, "/demo/publish", publishPath, "/demo/service", "/demo/service/movie", "/demo/service/movie/ps:0",
	replicaPath, otherPath, "/demo/resource", resourcePath, "/none", "/demo/none/deeper", replicaPath + "/below", "/zookeeper/quota",
}

// answer is all that a server says about a path. Its zxids and owners are numbered by
// the order in which a server first used them, which is what can be compared.
type answer struct {
	Data, Err, ChildrenErr, ACLErr string
	Exists                         bool
	Children                       []string
	ACL                            []zk.ACL
	Stat                           zk.Stat
}

// TestOracleAnswers grows the same tree in a real ZooKeeper and in ours, and after each
// step compares all that the stock client can read, and what its watches heard.
func TestOracleAnswers(t *testing.T) {
	real := oracle.ZooKeeper(t)
	w := &writer{t: t, addr: real.Addr, conns: map[string]*zk.Conn{}}
	h := open(t, Config{})
	theirs := &reader{t: t, c: oracle.ZKClient(t, real.Addr, nil)}
	ours := &reader{t: t, c: h.stock(nil)}
	for _, s := range steps {
		theirs.arm()
		ours.arm()
		s.real(w)
		s.ours(h)
		if diff := cmp.Diff(theirs.fired(), ours.fired()); diff != "" {
			t.Errorf("%s: watches (-ZooKeeper +ours):\n%s", s.name, diff)
		}
		if diff := cmp.Diff(theirs.answers(), ours.answers()); diff != "" {
			t.Fatalf("%s (-ZooKeeper +ours):\n%s", s.name, diff)
		}
	}
}

// reader asks one server, and keeps watches on every path.
type reader struct {
	t       *testing.T
	c       *zk.Conn
	watches map[string]<-chan zk.Event // by kind and path
}

// arm sets the watches that are not set.
func (r *reader) arm() {
	r.t.Helper()
	if r.watches == nil {
		r.watches = map[string]<-chan zk.Event{}
	}
	for _, p := range asked {
		if r.watches["data "+p] == nil {
			_, _, ch, err := r.c.ExistsW(p)
			if err != nil {
				r.t.Fatal(err)
			}
			r.watches["data "+p] = ch
		}
		if r.watches["children "+p] == nil {
			_, _, ch, err := r.c.ChildrenW(p)
			if err == nil {
				r.watches["children "+p] = ch
			} else if !errors.Is(err, zk.ErrNoNode) {
				r.t.Fatal(err)
			}
		}
	}
}

// fired is what the watches have heard: events come before the answer to a sync.
func (r *reader) fired() map[string]string {
	r.t.Helper()
	if _, err := r.c.Sync("/"); err != nil {
		r.t.Fatal(err)
	}
	heard := map[string]string{}
	for _, key := range slices.Collect(maps.Keys(r.watches)) {
		select {
		case e := <-r.watches[key]:
			heard[key] = e.Type.String() + " " + e.Path
			delete(r.watches, key)
		default:
		}
	}
	return heard
}

// answers are those to all paths that are asked for, and to all that there are.
func (r *reader) answers() map[string]answer {
	r.t.Helper()
	all := map[string]answer{}
	var visit func(p string)
	visit = func(p string) {
		if _, done := all[p]; done || p == "/zookeeper/config" { // a real one describes its ensemble there
			return
		}
		all[p] = r.ask(p)
		for _, child := range all[p].Children {
			visit(path.Join(p, child))
		}
	}
	for _, p := range asked {
		visit(p)
	}
	number(all, func(s *zk.Stat) []*int64 { return []*int64{&s.Czxid, &s.Mzxid, &s.Pzxid} }, true)
	number(all, func(s *zk.Stat) []*int64 { return []*int64{&s.EphemeralOwner} }, false)
	return all
}

func (r *reader) ask(p string) answer {
	r.t.Helper()
	data, st, err := r.c.Get(p)
	a := answer{Data: string(data), Err: text(err)}
	var st2, st3, st4 *zk.Stat
	if a.Exists, st2, err = r.c.Exists(p); err != nil {
		r.t.Fatal(err)
	}
	a.Children, st3, err = r.c.Children(p)
	a.ChildrenErr = text(err)
	slices.Sort(a.Children)
	a.ACL, st4, err = r.c.GetACL(p)
	a.ACLErr = text(err)
	if !a.Exists {
		return a
	}
	a.Stat = *st
	for _, other := range []*zk.Stat{st2, st3, st4} {
		if *other != a.Stat {
			r.t.Errorf("%s: two stats: %+v, %+v", p, *other, a.Stat)
		}
	}
	if fresh := time.Minute; a.Stat.Czxid != 0 && (time.Since(time.UnixMilli(a.Stat.Ctime)) > fresh || a.Stat.Mtime < a.Stat.Ctime) {
		r.t.Errorf("%s: times %d and %d", p, a.Stat.Ctime, a.Stat.Mtime)
	}
	if a.Stat.Czxid != 0 {
		a.Stat.Ctime, a.Stat.Mtime = 1, 1
	}
	return a
}

// number replaces what fields hold by its rank: of all values, or, for owners, which are
// not ordered, of their first appearance in the order of paths. 0 stays.
func number(all map[string]answer, fields func(*zk.Stat) []*int64, ordered bool) {
	var values []int64
	paths := slices.Sorted(maps.Keys(all))
	for _, p := range paths {
		a := all[p]
		for _, f := range fields(&a.Stat) {
			if *f != 0 && !slices.Contains(values, *f) {
				values = append(values, *f)
			}
		}
	}
	if ordered {
		slices.Sort(values)
	}
	for _, p := range paths {
		a := all[p]
		for _, f := range fields(&a.Stat) {
			*f = int64(slices.Index(values, *f) + 1)
		}
		all[p] = a
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestOracleKazoo has kazoo follow a replica from loading to lost.
func TestOracleKazoo(t *testing.T) {
	python := oracle.Python(t)
	h := open(t, Config{})
	seq := h.register()
	cmd := exec.CommandContext(t.Context(), python, "testdata/kazoo_follow.py", h.Addr(), replicaPath)
	lines := oracle.Run(t, cmd)

	type line = map[string]any
	for _, want := range []line{
		{"data": loadingBytes, "children": []any{"0"}, "with_stat": 1.0, "version": 0.0, "czxid": float64(seq), "length": float64(len(loadingBytes)),
			"exists": true, "nothing": true, "no_node": true, "acl": []any{"ALL"}},
		{"data": loadingBytes, "version": 0.0, "event": nil},
		{"children": []any{"0"}},
	} {
		lines.Want(t, want)
	}
	h.state(replica.State_AVAILABLE)
	lines.Want(t, line{"data": availableBytes, "version": 1.0, "event": "CHANGED"})
	h.lost()
	gone := []line{{"data": nil, "version": nil, "event": "DELETED"}, {"children": []any{}}}
	first := lines.Next(t)
	if cmp.Diff(first, gone[0]) != "" { // either may come first
		slices.Reverse(gone)
	}
	if diff := cmp.Diff(gone[0], first); diff != "" {
		t.Fatal(diff)
	}
	lines.Want(t, gone[1])
	lines.Want(t, line{"done": true})
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestOracleZKCli reads and watches with Apache's command line.
func TestOracleZKCli(t *testing.T) {
	h := open(t, Config{})
	h.load("movie")
	h.register()
	cmd := oracle.ZKCliCommand(t, h.Addr())
	cli := oracle.Run(t, cmd)
	cli.Say(t, "ls -R /demo")
	want := []string{"/demo", "/demo/portal", portalPath, "/demo/service", "/demo/service/movie", "/demo/service/movie/ps:0", replicaPath}
	listed := cli.Until(t, replicaPath)
	for _, p := range want {
		if !strings.Contains(listed, p+"\n") {
			t.Errorf("%s is not listed:\n%s", p, listed)
		}
	}
	cli.Say(t, "get "+portalPath)
	cli.Until(t, portalBytes)
	cli.Say(t, "stat "+replicaPath)
	if got := cli.Until(t, "numChildren"); !strings.Contains(got, "ephemeralOwner = 0x4d") {
		t.Errorf("stat: %s", got)
	}
	cli.Say(t, "get -w "+replicaPath)
	cli.Until(t, loadingBytes)
	h.state(replica.State_AVAILABLE)
	cli.Until(t, "type:NodeDataChanged path:"+replicaPath)
	cli.Say(t, "get "+replicaPath)
	cli.Until(t, availableBytes)
	cli.Say(t, "ls -w /demo/service/movie/ps:0")
	cli.Until(t, "[0]")
	for _, conn := range h.connections() { // Apache's client comes back, and asks what it has missed
		conn.out.Kill(nil)
	}
	h.lost()
	cli.Until(t, "type:NodeChildrenChanged path:/demo/service/movie/ps:0")
	cli.Say(t, "quit")
	for cli.Scan() { // to the end, so that it is not cut off
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
