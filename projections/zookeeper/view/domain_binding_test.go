package view_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// What unified agents write of themselves follows from containers and replicas.
func TestBindings(t *testing.T) {
	s := view.New()
	seq := uint64(0)
	fold := func(context, aggregate string, e proto.Message) {
		t.Helper()
		seq++
		s = view.Fold(s, events.Recorded{Seq: seq, Subject: events.Join("gip", context, aggregate), Event: e})
		raw, err := json.Marshal(s) // a snapshot anywhere changes nothing
		if err != nil {
			t.Fatal(err)
		}
		back := view.New()
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		s = back
	}
	reported := func(id, idc string) {
		t.Helper()
		fold("container", id, &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: &container.Container{
			Id: id, Kind: "serving", Idc: idc, Cluster: "default", GrpcAddress: id + ":1"}}}})
	}
	register := func(id, kind string, task, number int32, stat replica.State) {
		t.Helper()
		r := &replica.Replica{ModelName: "ffm", ServerType: kind, Task: task, Replica: number, Container: id, Stat: stat}
		fold("replica", r.Key(), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}})
	}
	lose := func(context, aggregate string) {
		t.Helper()
		if context == "container" {
			fold(context, aggregate, &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "r"}}})
			return
		}
		fold(context, aggregate, &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "r"}}})
	}
	expect := func(step string, services, bindings string) {
		t.Helper()
		got := strings.Join(s.Children("/gip/container_service"), " ")
		if got != services {
			t.Errorf("%s: services %q, want %q", step, got, services)
		}
		if got := strings.Join(s.Children("/gip/binding/ffm"), " "); got != bindings {
			t.Errorf("%s: bindings %q, want %q", step, got, bindings)
		}
	}
	register("b", "ps", 1, 0, replica.State_AVAILABLE)
	expect("a replica before its container", "", "")
	reported("b", "hl")
	expect("its container", "unknown;hl;default:b", "ps_1:unknown;hl;default:b")
	reported("a", "lf")
	register("a", "entry", 0, 0, replica.State_LOADING)
	expect("one that loads", "unknown;hl;default:b unknown;lf;default:a", "ps_1:unknown;hl;default:b")
	fold("replica", "ffm/entry:0/0", state(replica.State_AVAILABLE))
	expect("and has loaded", "unknown;hl;default:b unknown;lf;default:a", "entry:unknown;lf;default:a ps_1:unknown;hl;default:b")
	data, stat, ok := s.Get("/gip/binding/ffm/entry:unknown;lf;default:a")
	if !ok || len(data) != 0 || stat.EphemeralOwner != view.Owner("gip", "a") {
		t.Errorf("a binding is empty and goes with its container: %q, %+v", data, stat)
	}
	data, _, _ = s.Get("/gip/container_service/unknown;lf;default:a")
	if want := `{"grpc": "a:1", "http": null, "archon": null, "agent": null, "idc": "lf", "debug_info": null}`; string(data) != want {
		t.Errorf("service info %s, want %s", data, want)
	}
	register("a", "entry", 0, 1, replica.State_AVAILABLE)
	lose("replica", "ffm/entry:0/0")
	expect("another replica of the same there", "unknown;hl;default:b unknown;lf;default:a", "entry:unknown;lf;default:a ps_1:unknown;hl;default:b")
	reported("a", "lq")
	expect("the container's name changes", "unknown;hl;default:b unknown;lq;default:a", "entry:unknown;lq;default:a ps_1:unknown;hl;default:b")
	register("a", "ps", 1, 0, replica.State_AVAILABLE)
	expect("a replica moves", "unknown;hl;default:b unknown;lq;default:a", "entry:unknown;lq;default:a ps_1:unknown;lq;default:a")
	fold("replica", "ffm/ps:1/0", state(replica.State_UNLOADING))
	expect("one unloads", "unknown;hl;default:b unknown;lq;default:a", "entry:unknown;lq;default:a")
	lose("container", "a")
	expect("a container is lost before its replicas", "unknown;hl;default:b", "")
	lose("replica", "ffm/entry:0/1")
	lose("container", "b")
	expect("everything is lost", "", "")
	if n := s.Ephemerals(view.Owner("gip", "a")); len(n) != 1 || n[0] != "/gip/service/ffm/ps:1/0" {
		t.Errorf("left of a: %v", n)
	}
}

func TestDataCentrePath(t *testing.T) {
	r := &replica.Replica{ModelName: "ffm", ServerType: "ps", Task: 3, Container: "a", DataCenter: "lf:default",
		GrpcAddress: "10.0.0.1:3", GrpcAddressIpv6: "[fd00::1]:3", ArchonAddressIpv6: "[fd00::1]:1"}
	s := view.Fold(view.New(), events.Recorded{Seq: 1, Subject: events.Join("b", "replica", r.Key()), Event: registered(r)})
	got, _, _ := s.Get("/b/service/ffm/lf:default/ps:3/0")
	want := `{"address": "10.0.0.1:3", "address_ipv6": "[fd00::1]:3", "stat": 0, "model_name": "ffm", "server_type": "ps", "task": 3, "replica": 0, "archon_address": null, "archon_address_ipv6": "[fd00::1]:1"}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestLayoutNodes(t *testing.T) {
	s := view.New()
	for i, e := range []*layout.Event{
		{Body: &layout.Event_SavedModelsDeclared{SavedModelsDeclared: &layout.SavedModelsDeclared{SavedModels: []*layout.SavedModel{
			{SubGraph: "ps_0", Config: &layout.DeployConfig{ModelBasePath: "/d/ps_0", VersionPolicy: "latest_once"}}, {SubGraph: "entry", Config: &layout.DeployConfig{}}}}}},
		{Body: &layout.Event_SavedModelsRemoved{SavedModelsRemoved: &layout.SavedModelsRemoved{SubGraphs: []string{"entry"}}}},
		{Body: &layout.Event_EntriesAdded{EntriesAdded: &layout.EntriesAdded{Entries: []string{"m:ps_0", "m:entry"}}}},
		{Body: &layout.Event_EntriesRemoved{EntriesRemoved: &layout.EntriesRemoved{Entries: []string{"m:entry"}}}},
	} {
		aggregate := layout.ModelAggregate("m")
		if i > 1 {
			aggregate = layout.LayoutAggregate("test/mixed")
		}
		s = view.Fold(s, events.Recorded{Seq: uint64(i + 1), Subject: events.Join("b", "layout", aggregate), Event: e})
	}
	got := fmt.Sprint(s.Children("/b/saved_models/m"), s.Children("/b/layouts/test/mixed"))
	if diff := cmp.Diff("[ps_0] [m:ps_0]", got); diff != "" {
		t.Error(diff)
	}
	data, stat, _ := s.Get("/b/saved_models/m/ps_0")
	if want := `{"model_base_path": "/d/ps_0", "version_policy": "latest_once"}`; string(data) != want || stat.EphemeralOwner != 0 {
		t.Errorf("%s, %+v", data, stat)
	}
	if data, _, ok := s.Get("/b/layouts/test/mixed/m:ps_0"); !ok || len(data) != 0 {
		t.Errorf("an entry is empty: %q, %v", data, ok)
	}
}
