package tfssupervisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// export makes a version's folder below base.
func export(t *testing.T, base, sub string, version int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(base, sub, strconv.FormatInt(version, 10)), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) declared(base string, policies ...string) { // sub=policy
	e := &layout.SavedModelsDeclared{}
	for _, p := range policies {
		sub, policy, _ := strings.Cut(p, "=")
		e.SavedModels = append(e.SavedModels, &layout.SavedModel{SubGraph: sub,
			Config: &layout.DeployConfig{ModelBasePath: filepath.Join(base, sub), VersionPolicy: policy}})
	}
	h.append("layout", layout.ModelAggregate("m"), &layout.Event{Body: &layout.Event_SavedModelsDeclared{SavedModelsDeclared: e}})
}

func (h *harness) offered(entries ...string) {
	h.append("layout", layout.LayoutAggregate("l1"), &layout.Event{Body: &layout.Event_EntriesAdded{EntriesAdded: &layout.EntriesAdded{Entries: entries}}})
}

func TestServesItsLayout(t *testing.T) {
	base := t.TempDir()
	h := newHarness(t, func(h *harness) {
		h.change = func(c *tfssupervisor.Config) {
			c.Layout, c.ShardNum = "l1", 2
			c.LayoutFilters = []string{"entry$; True", "ps_{i}; i % ${shard_num} == ${shard_id}"}
		}
	})
	f := h.born()
	for _, sub := range []string{"entry", "ps_0", "ps_1"} {
		export(t, base, sub, 3)
	}
	h.plan(9, map[string][]string{"c.0": {"entry"}}) // is not followed
	h.copied("entry", 9, "host")
	h.offered("m:entry", "m:ps_0", "m:ps_1", "m:ps_3", "m:undeclared", "m:other")
	h.declared(base, "entry=latest", "ps_0=latest_once", "ps_1=latest_once", "ps_3=latest", "other=latest")
	entry, ps := "m:entry@"+base+"/entry/", "m:ps_1@"+base+"/ps_1/"
	h.wantConfig(f, entry+"[3]", ps+"[3]")
	f.set("m:ps_1", 3, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 START v3", "m/ps:1/2 AVAILABLE v3")

	// A newer version: the entry follows it, and with it the rows that it asks for, which
	// are pinned otherwise; and a folder gets its first one.
	for _, sub := range []string{"entry", "ps_1", "ps_3"} {
		export(t, base, sub, 12)
	}
	third := "m:ps_3@" + base + "/ps_3/"
	h.wantConfig(f, entry+"[12]", ps+"[12]", third+"[12]")

	// Its files vanish: what is served stays. Taken out of the layout, it goes.
	if err := os.RemoveAll(filepath.Join(base, "ps_3")); err != nil {
		t.Fatal(err)
	}
	h.append("layout", layout.LayoutAggregate("l1"), &layout.Event{Body: &layout.Event_EntriesRemoved{EntriesRemoved: &layout.EntriesRemoved{Entries: []string{"m:entry"}}}})
	h.wantConfig(f, ps+"[12]", third+"[12]")
	// Declared elsewhere, it is another one.
	moved := t.TempDir()
	export(t, moved, "ps_1", 2)
	h.declared(moved, "ps_1=latest_once")
	h.wantConfig(f, "m:ps_1@"+moved+"/ps_1/[2]", third+"[12]")
}

// A layout may be any node of the tree: clients of ZooKeeper put its entries there.
func TestLayoutElsewhereInTheTree(t *testing.T) {
	base := t.TempDir()
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.Layout = "/gip/layout" } })
	f := h.born()
	export(t, base, "entry", 3)
	export(t, base, "ps_0", 3)
	h.declared(base, "entry=latest", "ps_0=latest")
	h.offered("m:ps_0") // in the namespace's own l1
	propose := func(ops ...*znode.Op) {
		t.Helper()
		h.append("znode", "tree", &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: ops, Multi: true}}})
	}
	create := func(path string) *znode.Op {
		return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
	}
	propose(create("/gip"), create("/gip/layout"), create("/gip/layout/m:entry"))
	h.wantConfig(f, "m:entry@"+base+"/entry/[3]")
	propose(create("/gip/layout/m:ps_0"), &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: "/gip/layout/m:entry", Version: -1}}})
	h.wantConfig(f, "m:ps_0@"+base+"/ps_0/[3]")
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := h.beats[len(h.beats)-1].GetContainer().GetLayoutPath(); got != "/gip/layout" {
		t.Errorf("it is told that %q is followed", got)
	}
}

// Without an entry that moves on, latest_once means what it says.
func TestPinnedVersionsStay(t *testing.T) {
	base := t.TempDir()
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.Layout = "l1" } })
	f := h.born()
	for _, sub := range []string{"entry", "ps_0", "ps_1"} {
		export(t, base, sub, 3)
	}
	h.offered("m:entry", "m:ps_0", "m:ps_1")
	h.declared(base, "entry=latest_once", "ps_0=latest_once", "ps_1=latest")
	at := func(sub string, v int) string { return fmt.Sprintf("m:%s@%s/%s/[%d]", sub, base, sub, v) }
	h.wantConfig(f, at("entry", 3), at("ps_0", 3), at("ps_1", 3))
	for _, sub := range []string{"entry", "ps_0", "ps_1"} {
		export(t, base, sub, 4)
	}
	h.wantConfig(f, at("entry", 3), at("ps_0", 3), at("ps_1", 4))
}

// Sub-graphs of any name are served and told of, as replicas of their own kind.
func TestSubGraphsOfAnyName(t *testing.T) {
	base := t.TempDir()
	h := newHarness(t, func(h *harness) {
		h.change = func(c *tfssupervisor.Config) {
			c.Layout, c.LayoutFilters = "l1", []string{"entry; True", "user_tower; True", "ps_item; True"}
		}
	})
	f := h.born()
	subs := []string{"entry", "ps_item_embedding_0", "user_tower", "other_tower"}
	for _, sub := range subs {
		export(t, base, sub, 3)
	}
	h.declared(base, "entry=latest", "ps_item_embedding_0=latest_once", "user_tower=latest", "other_tower=latest")
	h.offered("m:entry", "m:ps_item_embedding_0", "m:user_tower", "m:other_tower")
	at := func(sub string, v int) string { return fmt.Sprintf("m:%s@%s/%s/[%d]", sub, base, sub, v) }
	h.wantConfig(f, at("entry", 3), at("ps_item_embedding_0", 3), at("user_tower", 3))
	f.set("m:user_tower", 3, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 START v3", "m/ps_item_embedding_0:0/2 START v3", "m/user_tower:0/2 AVAILABLE v3")
	export(t, base, "user_tower", 4)
	h.wantConfig(f, at("entry", 3), at("ps_item_embedding_0", 3), at("user_tower", 4))
}

// What cannot be served is refused aloud, and alone: a name that no replica can have, a
// policy that nobody knows.
func TestRefusedSubGraphs(t *testing.T) {
	base := t.TempDir()
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.Layout = "l1" } })
	f := h.born()
	for _, sub := range []string{"entry", "a:b", "user_tower"} {
		export(t, base, sub, 3)
	}
	h.declared(base, "entry=latest", "a:b=latest", "user_tower=newest")
	h.offered("m:entry", "m:a:b", "m:user_tower")
	h.wantConfig(f, "m:entry@"+base+"/entry/[3]")
	h.wantProblem(`layout: it cannot be served as a whole: m:a:b: no replica can have its name: export it under one without colons that is not just ps, ` +
		`or leave it out with --layout-filter; m:user_tower: version_policy "newest" is not allowed`)
	failed := 0
	for _, fact := range h.facts() {
		if strings.HasPrefix(fact, "failed (no replica can") || strings.HasPrefix(fact, "failed (version_policy") {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d refusals told, want one for each of two: %q", failed, h.facts())
	}
	h.declared(base, "user_tower=latest")
	h.append("layout", layout.LayoutAggregate("l1"), &layout.Event{Body: &layout.Event_EntriesRemoved{EntriesRemoved: &layout.EntriesRemoved{Entries: []string{"m:a:b"}}}})
	h.wantConfig(f, "m:entry@"+base+"/entry/[3]", "m:user_tower@"+base+"/user_tower/[3]")
	h.wantProblem("")
}

// Policies name one version, or leave the choice to the server; what is served stays until
// there is what a new one asks for.
func TestVersionPolicies(t *testing.T) {
	base := t.TempDir()
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.Layout = "l1" } })
	f := h.born()
	for _, version := range []int64{2, 3} {
		export(t, base, "entry", version)
		export(t, base, "ps_0", version)
	}
	h.declared(base, "entry=all", "ps_0=specific:2")
	h.offered("m:entry", "m:ps_0")
	at := func(sub, versions string) string { return fmt.Sprintf("m:%s@%s/%s/%s", sub, base, sub, versions) }
	h.wantConfig(f, at("entry", "all"), at("ps_0", "[2]"))
	f.set("m:entry", 2, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:entry", 3, apis.ModelVersionStatus_LOADING, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v2", "m/ps:0/2 START v2")
	f.set("m:entry", 3, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v3", "m/ps:0/2 START v2")

	h.declared(base, "entry=latest", "ps_0=specific") // version 1, which is not there yet
	h.wantConfig(f, at("entry", "[3]"), at("ps_0", "[2]"))
	export(t, base, "ps_0", 1)
	h.wantConfig(f, at("entry", "[3]"), at("ps_0", "[1]"))
	h.declared(base, "ps_0=latest_once", "entry=specific:3") // the entry moves no more
	h.wantConfig(f, at("entry", "[3]"), at("ps_0", "[3]"))
	export(t, base, "ps_0", 4)
	export(t, base, "entry", 4)
	h.declared(base, "entry=latest")
	h.wantConfig(f, at("entry", "[4]"), at("ps_0", "[4]"))
	if facts := h.facts(); slices.Contains(facts, "unloading m:entry/0") || !slices.Contains(facts, "unloading m:ps_0/2") {
		t.Errorf("told %q", facts)
	}
}

// Pods are told who they are by their environment.
func TestEnvironment(t *testing.T) {
	env := map[string]string{}
	parse := func(args ...string) *tfssupervisor.Config {
		t.Helper()
		c := &tfssupervisor.Config{Getenv: func(name string) string { return env[name] }}
		fs := pflag.NewFlagSet("tfs-supervisor", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := parse("--container", "c"); c.Shard != -1 || c.Replica != -1 || c.Cluster != "" || c.StartTimeout != time.Hour {
		t.Errorf("an empty environment: %+v", c)
	}
	env = map[string]string{"TCE_CLUSTER": "Default", "TCE_PHYSICAL_CLUSTER": "phys", "TCE_INTERNAL_IDC": "LQ", "SHARD_ID": "3", "REPLICA_ID": "5",
		"MONOLITH_HOST_SHARD_N": "7", "byterec_host_shard_n": "9", "MY_POD_NAME": "pod-0"}
	if c := parse(); c.Container != "pod-0" || c.Cluster != "default" || c.IDC != "lq" || c.Shard != 3 || c.Replica != 5 || c.ShardNum != 7 {
		t.Errorf("a pod: %+v", c)
	}
	env["TCE_LOGICAL_CLUSTER"], env["REPLICA_ID"], env["SHARD_ID"] = "Logical", "-1", "x"
	if c := parse("--container", "other", "--shard", "1"); c.Container != "other" || c.Cluster != "logical" || c.Shard != 1 || c.Replica != -1 {
		t.Errorf("flags and the first name win, what is no number says nothing: %+v", c)
	}
	env = map[string]string{"MLP_SHARD_ID": "2", "MLP_SHARD_NUM": "3", "MLP_POD_NAME": "movies-ps-2-x", "MLP_HOST_IP": "10.0.0.1", "MLP_IDC": "Here"}
	if c := parse(); c.Container != "movies-ps-2-x" || c.Shard != 1 || c.ShardNum != 3 || c.HostIP != "10.0.0.1" || c.IDC != "here" {
		t.Errorf("a pod of an MLService: %+v", c)
	}
}

// What the registry can take is told as the original's agents meant it.
func TestTellsWhoItIs(t *testing.T) {
	env := map[string]string{
		"TCE_PSM": "data.serving", "TCE_INTERNAL_IDC": "LQ", "TCE_PHYSICAL_CLUSTER": "default", "MY_POD_IP": "10.0.0.1", "MY_HOST_IPV6": "fd00::1",
		"byterec_host_shard_n": "4",
	}
	h := newHarness(t, func(h *harness) {
		h.change = func(c *tfssupervisor.Config) {
			c.Cluster, c.IDC, c.DCAware, c.Replica = "", "", true, -1
			c.ArchonAddress, c.AgentAddress = ":4001", "10.9.9.9:4002"
			c.Layout, c.LayoutFilters = "/test/layouts/a/b", []string{`ps_{i}; i % ${shard_num} == ${shard_id}`}
			c.Getenv = func(name string) string { return env[name] }
		}
		h.listen = ":0"
	})
	f := h.born()
	_, port, _ := strings.Cut(strings.TrimPrefix(f.ln.Addr().String(), "[::]"), ":")
	want := &container.Container{
		Id: "c.0", Kind: "serving", Shard: 1, Replica: 639888007, Cluster: "default", Idc: "lq", DcAware: true, Psm: "data.serving",
		GrpcAddress: "10.0.0.1:" + port, GrpcAddressIpv6: "[fd00::1]:" + port, HttpAddress: "127.0.0.1:8501", RowsAddress: "127.0.0.1:7000",
		ArchonAddress: "10.0.0.1:4001", ArchonAddressIpv6: "[fd00::1]:4001", AgentAddress: "10.9.9.9:4002",
		LayoutPath: "/test/layouts/a/b", LayoutFilters: []string{`ps_(?P<i>\d+); i % 4 == 1`}, Host: "host",
	}
	base := t.TempDir()
	export(t, base, "ps_1", 1)
	h.declared(base, "ps_1=latest")
	h.append("layout", layout.LayoutAggregate("a/b"), &layout.Event{Body: &layout.Event_EntriesAdded{EntriesAdded: &layout.EntriesAdded{Entries: []string{"m:ps_1"}}}})
	wait.Until(h.t, "a heartbeat with a replica", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.beats) == 0 || len(h.beats[len(h.beats)-1].GetReplicas()) != 1 {
			return errors.New("none yet")
		}
		hb := h.beats[len(h.beats)-1]
		if diff := cmp.Diff(want, hb.GetContainer(), protocmp.Transform(), protocmp.IgnoreFields(&container.Container{}, "started_us")); diff != "" || hb.GetContainer().GetStartedUs() == 0 {
			t.Fatalf("container (-want +got):\n%s", diff)
		}
		r := hb.GetReplicas()[0]
		got := []string{fmt.Sprint(r.GetReplica()), r.GetGrpcAddress(), r.GetGrpcAddressIpv6(), r.GetArchonAddress(), r.GetArchonAddressIpv6()}
		if w := []string{"639888007", want.GrpcAddress, want.GrpcAddressIpv6, want.ArchonAddress, want.ArchonAddressIpv6}; !slices.Equal(got, w) {
			t.Fatalf("replica %q, want %q", got, w)
		}
		return nil
	})
}

func TestRefusesWhatCannotBe(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for says, change := range map[string]func(*tfssupervisor.Config){
		"give both, without colons":     func(c *tfssupervisor.Config) { c.DCAware, c.IDC = true, "a" },
		"without colons and slashes":    func(c *tfssupervisor.Config) { c.DCAware, c.IDC, c.Cluster = true, "a:b", "c" },
		"name it with --layout":         func(c *tfssupervisor.Config) { c.LayoutFilters = []string{"entry; True"} },
		"there is no semicolon":         func(c *tfssupervisor.Config) { c.Layout, c.LayoutFilters = "l", []string{"entry"} },
		"is no path of a node":          func(c *tfssupervisor.Config) { c.Layout = "/other//l" },
		"such as /test/layouts/l1":      func(c *tfssupervisor.Config) { c.Layout = "/test/layouts/" },
		"--archon-address":              func(c *tfssupervisor.Config) { c.ArchonAddress = "4001" },
		"--agent-address":               func(c *tfssupervisor.Config) { c.AgentAddress = "a:b:c" },
		"--host-ip is":                  func(c *tfssupervisor.Config) { c.HostIP = "fd00::1" },
		"--host-ipv6 is":                func(c *tfssupervisor.Config) { c.HostIPv6 = "[fd00::1]" },
		"--server-type is":              func(c *tfssupervisor.Config) { c.ServerType = "worker" },
		"--hang-timeout":                func(c *tfssupervisor.Config) { c.HangTimeout = -1 },
		"--replica is -2":               func(c *tfssupervisor.Config) { c.Replica = -2 },
		"--shard-num is -1":             func(c *tfssupervisor.Config) { c.ShardNum = -1 },
		"no launcher; give one for the": func(*tfssupervisor.Config) {},
	} {
		cfg := tfssupervisor.Config{Container: "c"}
		change(&cfg)
		if _, err := tfssupervisor.New(cfg, services.Env{BZID: "test", Bus: b}, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want a complaint that says %q, got %v", says, err)
		}
	}
}
