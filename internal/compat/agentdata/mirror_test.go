package agentdata_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/znodedata"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/compat/agentdata"
)

// tree is a ZooKeeper of one session: it applies writes and calls watches back.
type tree struct {
	t     *testing.T
	m     *agentdata.Mirror
	nodes map[string][]byte
	queue []agentdata.Event
}

func (z *tree) apply(writes ...agentdata.Write) {
	for _, w := range writes {
		old, there := z.nodes[w.Path]
		c := agentdata.Change{Path: w.Path, Data: w.Data, Kind: agentdata.Created}
		switch {
		case w.Delete && !there:
			z.t.Fatalf("%s is deleted and is not there", w.Path)
		case w.Delete:
			c.Kind, c.Data = agentdata.Deleted, nil
			delete(z.nodes, w.Path)
		default:
			if there {
				c.Kind = agentdata.Changed
				if string(old) == string(w.Data) {
					z.t.Fatalf("%s is written and holds that already", w.Path)
				}
			}
			z.nodes[w.Path] = w.Data
		}
		z.queue = append(z.queue, z.m.Apply(c)...)
	}
}

var self = agentdata.Self{BZID: "bzid", Shard: 2, Replica: 2, Host: "10.1.2.3"}

func world(t *testing.T) *tree {
	return &tree{t: t, m: agentdata.New(self), nodes: map[string][]byte{}}
}

// The original's test of its mirror, step by step, with its own scheduler's rule of
// thumb: sub-model k goes to the shard that is k modulo the number of shards, and the
// entry to all.
func TestZKMirror(t *testing.T) {
	z := world(t)
	mm := z.ask(name, "/tmp/model/exported_models", 5)
	z.publish(mm)
	z.serve(z.m.ExpectedLoading()[name])
	z.report()
	z.retire()
	z.m.Reset()
	if len(z.m.Children("/bzid")) != 0 {
		t.Error("it remembers after a reset")
	}
}

// name is the model of TestZKMirror.
const name = "test_model"

// ask has the portal ask for a model, and returns what the scheduler is told.
func (z *tree) ask(name, dir string, numShard int32) znodedata.ModelMeta {
	z.t.Helper()
	asked := znodedata.ModelMeta{ModelName: name, ModelDir: dir, NumShard: numShard, Action: "NONE"}
	z.apply(agentdata.Write{Path: "/bzid/portal/" + name, Data: asked.Bytes()})
	if len(z.queue) != 1 || z.queue[0].Type != agentdata.PortalEvent || z.queue[0].Path != "/bzid/portal/"+name {
		z.t.Fatalf("queue %+v", z.queue)
	}
	mm, err := agentdata.DecodeModelMeta(z.queue[0].Data)
	if err != nil {
		z.t.Fatal(err)
	}
	asked.Action, asked.SpecReplicas = "CREATED", []string{}
	if diff := cmp.Diff(asked, mm); diff != "" {
		z.t.Fatalf("the scheduler is told (-want +got):\n%s", diff)
	}
	z.queue = nil
	return mm
}

// publish loads ten sub-models and the entry onto the model's shards, three replicas each.
func (z *tree) publish(mm znodedata.ModelMeta) {
	z.t.Helper()
	const numPS, replicas = 10, 3
	path := func(sub string) string { return fmt.Sprintf("%s/%s/123456", mm.ModelDir, sub) }
	others := []int64{0, 1, 3, 4, 5, 6, 7, 8, 9}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	var metas []znodedata.PublishMeta
	for i := range int64(mm.NumShard) {
		subs := map[string]string{"entry": path("entry")}
		for k := range int64(numPS) {
			if k%int64(mm.NumShard) == i {
				sub := fmt.Sprintf("ps_%d", k)
				subs[sub] = path(sub)
			}
		}
		shard := self.Shard
		if i > 0 {
			shard, others = others[0], others[1:]
		}
		for r := range int64(replicas) {
			metas = append(metas, znodedata.PublishMeta{ShardID: shard, ReplicaID: r, ModelName: name, NumPS: numPS,
				TotalPublishNum: int(mm.NumShard) * replicas, SubModels: subs, PType: 1})
		}
	}
	writes := z.m.PublishLoading(metas...)
	z.apply(writes[:len(writes)-1]...)
	if got := z.m.ExpectedLoading(); len(got) != 0 || len(z.queue) != 0 {
		z.t.Fatalf("before all is published: %v, %v", got, z.queue)
	}
	z.apply(writes[len(writes)-1])
	if len(z.queue) != 1 || z.queue[0].Type != agentdata.PublishEvent {
		z.t.Fatalf("queue %+v", z.queue)
	}
	if again := z.m.PublishLoading(metas...); len(again) != 0 {
		z.t.Errorf("published again: %v", again)
	}
	expected := z.m.ExpectedLoading()
	pm := expected[name]
	if len(expected) != 1 || pm.ShardID != self.Shard || pm.ReplicaID != self.Replica ||
		!slices.Equal(slices.Sorted(maps.Keys(pm.SubModels)), []string{"entry", "ps_0", "ps_5"}) {
		z.t.Fatalf("expected %+v", expected)
	}
}

// serve says that what is expected is served, and then less of it.
func (z *tree) serve(pm znodedata.PublishMeta) {
	z.t.Helper()
	var serves []znodedata.ReplicaMeta
	for _, sub := range slices.Sorted(maps.Keys(pm.SubModels)) {
		kind, digits, _ := strings.Cut(sub, "_")
		var task int32
		_, _ = fmt.Sscan(digits, &task) // the entry has none
		serves = append(serves, znodedata.ReplicaMeta{Address: "10.1.2.3:8080", ModelName: name, ServerType: kind, Task: task, Replica: 2, Stat: 30})
	}
	z.apply(z.m.UpdateService(serves)...)
	entry, ps0, ps5 := serves[0], serves[1], serves[2]
	for _, tc := range []struct {
		what      string
		want, got any
	}{
		{"all ps", map[string][]znodedata.ReplicaMeta{name + ":ps:0": {ps0}, name + ":ps:5": {ps5}}, z.m.AllReplicas("ps")},
		{"the model's entry", map[string][]znodedata.ReplicaMeta{name + ":0": {entry}}, z.m.ModelReplicas(name, "entry")},
		{"of ps 0", []znodedata.ReplicaMeta{ps0}, z.m.TaskReplicas(name, "ps", 0)},
		{"local", []string{"/bzid/service/test_model/entry:0/2", "/bzid/service/test_model/ps:0/2", "/bzid/service/test_model/ps:5/2"}, z.m.LocalReplicaPaths()},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			z.t.Errorf("%s (-want +got):\n%s", tc.what, diff)
		}
	}
	if r, ok := z.m.Replica(name, "ps", 5, 2); !ok || r != ps5 {
		z.t.Errorf("ps 5 replica 2: %v %v", r, ok)
	}
	if r, ok := z.m.Replica(name, "ps", 5, 1); ok {
		z.t.Errorf("ps 5 replica 1: %v", r)
	}

	// What is served no longer goes first; what is as it was is not written again; what
	// does not answer is not offered.
	ps5.Stat = 20
	update := z.m.UpdateService([]znodedata.ReplicaMeta{entry, ps5})
	if diff := cmp.Diff([]agentdata.Write{
		{Path: "/bzid/service/test_model/ps:0/2", Delete: true},
		{Path: "/bzid/service/test_model/ps:5/2", Data: ps5.Bytes(), Ephemeral: true},
	}, update); diff != "" {
		z.t.Errorf("update (-want +got):\n%s", diff)
	}
	z.apply(update...)
	if got := z.m.AllReplicas("ps"); len(got) != 0 {
		z.t.Errorf("answering: %v", got)
	}
}

// report says what this replica has.
func (z *tree) report() {
	z.t.Helper()
	resource := znodedata.ResourceSpec{Address: "10.1.2.3:1234", ShardID: 2, ReplicaID: 2, Memory: 12345, CPU: 5.6, Network: 3.2, WorkLoad: 0.7}
	w := z.m.ReportResource(resource)
	if w.Path != "/bzid/resource/2:2" || !w.Ephemeral {
		z.t.Errorf("write %+v", w)
	}
	z.apply(w)
	if got := z.m.Resources(); len(got) != 1 || got[0] != resource {
		z.t.Errorf("resources %v", got)
	}
}

// retire takes the model away.
func (z *tree) retire() {
	z.t.Helper()
	// The model goes: its meta is told once more, then the publish nodes leave one by one.
	z.queue = nil
	z.apply(agentdata.Write{Path: "/bzid/portal/" + name, Delete: true})
	if len(z.queue) != 1 || !strings.Contains(string(z.queue[0].Data), `"action": "DELETED"`) {
		z.t.Errorf("queue %+v", z.queue)
	}
	z.queue = nil
	for _, p := range z.m.Published(name) {
		z.apply(agentdata.Write{Path: p, Delete: true})
	}
	if len(z.queue) != 1 || z.queue[0].Type != agentdata.PublishEvent || len(z.m.ExpectedLoading()) != 0 {
		z.t.Errorf("queue %+v, expected %v", z.queue, z.m.ExpectedLoading())
	}
}

func TestExpectedLoading(t *testing.T) {
	pub := func(shard, replica int64, total int, spec bool, subs ...string) znodedata.PublishMeta {
		m := map[string]string{}
		for _, s := range subs {
			m[s] = "/d/" + s + "/1"
		}
		return znodedata.PublishMeta{ShardID: shard, ReplicaID: replica, ModelName: "m", NumPS: 4, TotalPublishNum: total, SubModels: m, PType: 1, IsSpec: spec}
	}
	unload := pub(2, 2, 1, false, "entry")
	unload.PType = 2
	for _, tc := range []struct {
		name  string
		nodes []znodedata.PublishMeta
		want  string // sub-models, "" for nothing
	}{
		{"its own", []znodedata.PublishMeta{pub(2, 2, 2, false, "entry", "ps_0"), pub(1, 0, 2, false, "entry")}, "entry ps_0"},
		{"its own, for it in particular", []znodedata.PublishMeta{pub(2, 2, 1, true, "entry", "ps_0")}, "entry ps_0"},
		{"not all are there", []znodedata.PublishMeta{pub(2, 2, 2, false, "entry", "ps_0")}, ""},
		{"too many are there", []znodedata.PublishMeta{pub(2, 2, 1, false, "entry"), pub(2, 1, 1, false, "entry")}, ""},
		{"a shard that grows", []znodedata.PublishMeta{pub(2, 0, 1, false, "entry", "ps_0")}, "entry ps_0"},
		{"a shard that may not", []znodedata.PublishMeta{pub(2, 0, 1, true, "entry", "ps_0")}, "entry"},
		{"another shard", []znodedata.PublishMeta{pub(1, 2, 1, false, "entry", "ps_0")}, "entry"},
		{"another shard without an entry", []znodedata.PublishMeta{pub(1, 2, 1, false, "ps_0")}, "-"},
		{"all that begins like an entry", []znodedata.PublishMeta{pub(1, 2, 1, false, "entry", "entry_x", "ps_0")}, "entry entry_x"},
		{"the one with fewest", []znodedata.PublishMeta{pub(0, 0, 2, false, "entry", "ps_0", "ps_1"), pub(1, 0, 2, false, "entry", "ps_2")}, "entry"},
		{"of equals its own shard's", []znodedata.PublishMeta{pub(0, 0, 2, false, "entry", "ps_0"), pub(2, 0, 2, false, "entry", "ps_1")}, "entry ps_1"},
		{"to be unloaded", []znodedata.PublishMeta{unload}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := world(t)
			z.apply(z.m.PublishLoading(tc.nodes...)...)
			got, ok := z.m.ExpectedLoading()["m"]
			subs := strings.Join(slices.Sorted(maps.Keys(got.SubModels)), " ")
			if tc.want == "-" {
				tc.want = ""
			} else if ok != (tc.want != "") {
				t.Fatalf("expected %v, %v", got, ok)
			}
			if subs != tc.want || ok && (got.ShardID != 2 || got.ReplicaID != 2) {
				t.Errorf("expected %+v, want %s", got, tc.want)
			}
			for path, data := range z.nodes { // nothing of it reaches the cache
				if cached, _ := z.m.Get(path); string(cached) != string(data) {
					t.Errorf("%s is now %s", path, cached)
				}
			}
		})
	}
}

func TestWatches(t *testing.T) {
	m := agentdata.New(self)
	meta := znodedata.ModelMeta{ModelName: "a", ModelDir: "/d", NumShard: -1, Action: "NONE"}.Bytes()
	told := func(c agentdata.Change) string {
		var out []string
		for _, e := range m.Apply(c) {
			meta, err := agentdata.DecodeModelMeta(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(e.Type, e.Path, meta.Action))
		}
		return strings.Join(out, ",")
	}
	for i, step := range []struct {
		c    agentdata.Change
		want string
	}{
		{agentdata.Change{Kind: agentdata.Seen, Path: "/bzid/portal/a", Data: meta}, "1/bzid/portal/aNONE"},
		{agentdata.Change{Kind: agentdata.Changed, Path: "/bzid/portal/a", Data: []byte("{}")}, ""}, // passed over
		{agentdata.Change{Kind: agentdata.Deleted, Path: "/bzid/portal/a"}, "1/bzid/portal/aDELETED"},
		{agentdata.Change{Kind: agentdata.Deleted, Path: "/bzid/portal/a"}, ""},
		{agentdata.Change{Kind: agentdata.Created, Path: "/bzid/portal/a", Data: meta}, "1/bzid/portal/aCREATED"},
		{agentdata.Change{Kind: agentdata.Created, Path: "/bzid/portal/b", Data: []byte("junk")}, ""},
		{agentdata.Change{Kind: agentdata.Created, Path: "/bzid/publish/junk", Data: []byte(`{}`)}, ""},
		{agentdata.Change{Kind: agentdata.Created, Path: "/bzid/publish/0:0:a", Data: []byte(`junk`)}, ""},
		{agentdata.Change{Kind: agentdata.Created, Path: "/other/portal/a", Data: meta}, ""},
		{agentdata.Change{Kind: agentdata.Created, Path: "/bzid/portal/a/b", Data: meta}, ""},
		{agentdata.Change{Kind: agentdata.Created, Path: "/bzid/service/a/lq:default/ps:0/00000000007", Data: []byte(`{"stat": 30}`)}, ""},
	} {
		if got := told(step.c); got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
	}
	// Replica numbers may be padded, a data centre may stand between, and the first
	// agents leave out what the path says.
	if r, ok := m.Replica("a", "ps", 0, 7); !ok || r.Stat != 30 || r.Task != -1 {
		t.Errorf("replica %+v %v", r, ok)
	}
	// No model's nodes count as another's whose name ends alike.
	for _, name := range []string{"0:0:m", "0:0:other_m"} {
		p := znodedata.PublishMeta{ModelName: name[4:], TotalPublishNum: 1, PType: 1}
		if got := m.Apply(agentdata.Change{Kind: agentdata.Created, Path: "/bzid/publish/" + name, Data: p.Bytes()}); len(got) != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if diff := cmp.Diff([]string{"0:0:a", "0:0:m", "0:0:other_m", "junk"}, m.Children("/bzid/publish")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]agentdata.Write{{Path: "/bzid/publish/0:0:gone", Delete: true}, {Path: "/bzid/publish/1:0:gone", Delete: true}},
		m.CleanUp([]string{"a", "m"}, []string{"0:0:a", "0:0:gone", "1:0:gone", "0:0:m", "junk"})); diff != "" {
		t.Error(diff)
	}
}

func TestLeader(t *testing.T) {
	for want, contenders := range map[string][]string{
		"":                     {"junk", "x__lock__y"},
		"b__lock__0000000003":  {"a__lock__0000000012", "b__lock__0000000003", "c__rlock__0000000004"},
		"a__rlock__0000000001": {"a__rlock__0000000001", "b__lock__0000000002"},
	} {
		if got := agentdata.Leader(contenders); got != want {
			t.Errorf("of %v leads %q, want %q", contenders, got, want)
		}
	}
	if agentdata.Elects("entry") || !agentdata.Elects("ps") || !agentdata.Elects("mixed") {
		t.Error("entries do not stand for election, all others do")
	}
}

func TestAddress(t *testing.T) {
	r := znodedata.ReplicaMeta{Address: "10.0.0.1:1", AddressIPv6: "[fd::1]:1", ArchonAddress: "0.0.0.0:2", ArchonAddressIPv6: "[fd::1]:2"}
	none := znodedata.ReplicaMeta{Address: "0.0.0.0:1", AddressIPv6: "[::]:1"}
	for _, tc := range []struct {
		r            znodedata.ReplicaMeta
		archon, ipv6 bool
		want         string
	}{
		{r, false, false, "10.0.0.1:1"}, {r, false, true, "[fd::1]:1"}, {r, true, false, "[fd::1]:2"}, {r, true, true, "[fd::1]:2"},
		{none, false, false, ""}, {none, true, true, ""},
	} {
		if got := agentdata.Address(tc.r, tc.archon, tc.ipv6); got != tc.want {
			t.Errorf("%+v, archon %v, IPv6 %v: %q, want %q", tc.r, tc.archon, tc.ipv6, got, tc.want)
		}
	}
}

// What is written is read back, and defaults are the original's.
func TestDecode(t *testing.T) {
	model := znodedata.ModelMeta{ModelName: "monolith", NumShard: 3, ModelDir: "/tmp/opt", Ckpt: "model.ckpt-1234", Action: "NONE", SpecReplicas: []string{"0:1"}}
	if got, err := agentdata.DecodeModelMeta(model.Bytes()); err != nil || !cmp.Equal(got, model) {
		t.Errorf("%+v %v", got, err)
	}
	resource := znodedata.ResourceSpec{Address: "localhost:123", ShardID: 10, ReplicaID: 2, Memory: 12345, CPU: 3.5, Network: -1, WorkLoad: -1}
	if got, err := agentdata.DecodeResourceSpec(resource.Append(nil)); err != nil || got != resource {
		t.Errorf("%+v %v", got, err)
	}
	replica := znodedata.ReplicaMeta{Address: "localhost:123", ModelName: "monolith", ServerType: "ps"}
	if got, err := agentdata.DecodeReplicaMeta(replica.Bytes()); err != nil || got != replica {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := agentdata.DecodeModelMeta([]byte(`{"model_name": null, "num_shard": null, "new": 1}`)); err != nil || got.NumShard != -1 || got.Action != "NONE" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := agentdata.DecodePublishMeta([]byte(`{}`)); err != nil || got.ReplicaID != -1 || got.TotalPublishNum != 1 || got.PType != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := agentdata.DecodeResourceSpec([]byte(`{}`)); err != nil || got.CPU != -1 || got.WorkLoad != -1 {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{``, `[]`, `{"ptype": 3}`, `{"shard_id": "1"}`} {
		if got, err := agentdata.DecodePublishMeta([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
}

// Whatever stands in the tree, the mirror neither fails nor keeps what is gone.
func FuzzApply(f *testing.F) {
	f.Add("/bzid/publish/0:0:m", []byte(`{"total_publish_num": 1}`))
	f.Add("/bzid/portal/m", []byte(`{"model_name": "m", "spec_replicas": null}`))
	f.Add("/bzid/service/m/ps:0/1", []byte(`{"address": ":", "stat": 30, "replica": 2}`))
	f.Add("/bzid/resource/0:0", []byte(`{"memory": 1e3}`))
	f.Fuzz(func(t *testing.T, path string, data []byte) {
		m := agentdata.New(self)
		m.Apply(agentdata.Change{Kind: agentdata.Created, Path: path, Data: data})
		m.Apply(agentdata.Change{Kind: agentdata.Changed, Path: path, Data: data})
		m.ExpectedLoading()
		m.AllReplicas("ps")
		m.UpdateService(nil)
		m.Resources()
		m.Apply(agentdata.Change{Kind: agentdata.Deleted, Path: path})
		if _, ok := m.Get(path); ok {
			t.Errorf("%q is gone and still known", path)
		}
	})
}

// Agents without a number of their own count replicas by 40 bits of a hash.
func TestDecodeNumbersOfFortyBits(t *testing.T) {
	const big = 1099511627775
	r, err := agentdata.DecodeReplicaMeta([]byte(`{"address": "h:1", "stat": 30, "replica": 1099511627775}`))
	if err != nil || r.Replica != big {
		t.Errorf("%+v, %v", r, err)
	}
	s, err := agentdata.DecodeResourceSpec([]byte(`{"address": "h:1", "shard_id": 0, "replica_id": 1099511627775, "memory": 1}`))
	if err != nil || s.ReplicaID != big {
		t.Errorf("%+v, %v", s, err)
	}
	if back, err := agentdata.DecodeReplicaMeta(r.Bytes()); err != nil || back != r {
		t.Errorf("%+v comes back as %+v, %v", r, back, err)
	}
}
