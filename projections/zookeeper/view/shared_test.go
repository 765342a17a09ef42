package view_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// folding is a tree and the log that it folds.
type folding struct {
	s view.State
}

func (f *folding) fold(context, aggregate string, e proto.Message) {
	f.s = view.Fold(f.s, events.Recorded{Seq: f.s.Seq + 1, Subject: events.Join("b", context, aggregate), Event: e})
}

func (f *folding) report(c *container.Container) {
	f.fold("container", c.GetId(), &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}})
}

func (f *folding) resource(id string, memory int64) {
	f.fold("container", id, &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: memory}}})
}

// Containers without a shard and replica of their own share a resource node. When the one
// that it shows goes, it shows another one that lives, and goes with the last.
func TestASharedResourceNodeGoesWithTheLast(t *testing.T) {
	f := &folding{view.New()}
	for i, id := range []string{"x", "y", "z"} {
		f.report(&container.Container{Id: id, Kind: "serving", Shard: -1, AgentAddress: id + ":1"})
		f.resource(id, int64(i+1))
	}
	shows := func(want string) {
		t.Helper()
		data, st, ok := f.s.Get("/b/resource/-1:0")
		switch {
		case want == "" && ok:
			t.Errorf("the node shows %s of nobody that lives", data)
		case want != "" && (!ok || !strings.Contains(string(data), want) || st.EphemeralOwner != view.Owner("b", want[:1])):
			t.Errorf("the node shows %q of %x, want %s", data, st.EphemeralOwner, want)
		}
	}
	lose := func(id string) {
		f.fold("container", id, &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "r"}}})
	}
	shows("z:1")
	lose("z")
	shows("x:1")
	f.report(&container.Container{Id: "x", Kind: "serving", Shard: 4, AgentAddress: "x:1"}) // it gets a place of its own
	shows("y:1")
	lose("y")
	shows("")
}

// A foreign agent does what its publish node says: it holds what the plan gives that agent
// and nothing of another container of the same shard and replica, under the agent's own
// numbers, which are larger than ours.
func TestAForeignAgentsPublishNodeIsItsOwn(t *testing.T) {
	f := &folding{view.New()}
	const large = "0:1099511627775" // 40 bits
	assign := func(container, sub string) *publish.Assignment {
		return &publish.Assignment{Container: container, SubModels: map[string]string{sub: "/d/" + sub + "/1"}}
	}
	f.fold("publish", "m", &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{ModelName: "m", ModelDir: "/d", Version: 1, NumPs: 2, Assignments: []*publish.Assignment{
		assign("ours", "entry"), assign(view.ForeignContainer("0:0"), "ps_0"), assign(view.ForeignContainer(large), "ps_1")}}}})
	for path, want := range map[string]string{
		"/b/publish/0:0:m":           `{"shard_id": 0, "replica_id": 0, "model_name": "m", "num_ps": 2, "total_publish_num": 2, "sub_models": {"ps_0": "/d/ps_0/1"}, "ptype": 1, "is_spec": false}`,
		"/b/publish/" + large + ":m": `{"shard_id": 0, "replica_id": 1099511627775, "model_name": "m", "num_ps": 2, "total_publish_num": 2, "sub_models": {"ps_1": "/d/ps_1/1"}, "ptype": 1, "is_spec": false}`,
	} {
		if data, _, _ := f.s.Get(path); string(data) != want {
			t.Errorf("%s holds\n%s, want\n%s", path, data, want)
		}
	}
	f.fold("publish", "m", &publish.Event{Body: &publish.Event_Withdrawn{Withdrawn: &publish.Withdrawn{ModelName: "m"}}})
	if left := f.s.Children("/b/publish"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A report in which only what the nodes do not show has changed, such as a container's
// problem, writes no node and fires no watch.
func TestAReportThatShowsNothingNewChangesNothing(t *testing.T) {
	f := &folding{view.New()}
	c := &container.Container{Id: "x", Kind: "serving", GrpcAddress: "h:1", AgentAddress: "h:2", StartedUs: 1}
	f.report(c)
	f.resource("x", 7)
	stats := func() (all []wire.Stat) {
		for _, path := range []string{"/b/resource/0:0", "/b/container_service/unknown;None;None:x", "/b/resource", "/b/container_service"} {
			st, ok := f.s.Stat(path)
			if !ok {
				t.Fatalf("there is no %s", path)
			}
			all = append(all, st)
		}
		return all
	}
	before := stats()
	again := proto.CloneOf(c)
	again.Problem, again.StartedUs = "the disk is full", 2
	f.report(again)
	if changes := f.s.Effects().Changes; len(changes) != 0 {
		t.Errorf("changes: %+v", changes)
	}
	for i, st := range stats() {
		if st != before[i] {
			t.Errorf("a node's stat was %+v and is %+v", before[i], st)
		}
	}
}
