package fleet_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/projections/fleet"
)

func TestAddress(t *testing.T) {
	both := &replica.Replica{GrpcAddress: "10.0.0.1:3", GrpcAddressIpv6: "[fd00::1]:3", ArchonAddress: "10.0.0.1:1", ArchonAddressIpv6: "[fd00::1]:1"}
	only6 := &replica.Replica{GrpcAddress: "0.0.0.0:3", GrpcAddressIpv6: "[fd00::1]:3"}
	only4 := &replica.Replica{GrpcAddress: "10.0.0.1:3", GrpcAddressIpv6: "[::]:3", ArchonAddressIpv6: "[::]:1"}
	for _, tc := range []struct {
		name   string
		r      *replica.Replica
		archon bool
		prefer fleet.Family
		want   string
	}{
		{"both, v4", both, false, fleet.IPv4, "10.0.0.1:3"},
		{"both, v6", both, false, fleet.IPv6, "[fd00::1]:3"},
		{"archon, v4", both, true, fleet.IPv4, "10.0.0.1:1"},
		{"archon, v6", both, true, fleet.IPv6, "[fd00::1]:1"},
		{"0.0.0.0 is no address", only6, false, fleet.IPv4, "[fd00::1]:3"},
		{"[::] is no address", only4, false, fleet.IPv6, "10.0.0.1:3"},
		{"none at all", only4, true, fleet.IPv6, ""},
		{"nobody", nil, false, fleet.IPv4, ""},
	} {
		if got := fleet.Address(tc.r, tc.archon, tc.prefer); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// ParseShard takes apart what Aggregate joined, and nothing else.
func TestParseShard(t *testing.T) {
	for aggregate, want := range map[string]bool{
		"j/ps:0": true, "/ps:3": true, "a/ps:1/ps:2": true, "j/ps:4294967295": true,
		"j": false, "j/ps:": false, "j/ps:01": false, "j/ps:-1": false, "j/ps:4294967296": false, "j/ps:1/entry:0": false,
	} {
		job, index, ok := fleet.ParseShard(aggregate)
		if ok != want || ok && shard.Aggregate(job, index) != aggregate {
			t.Errorf("%s: job %q, index %d, %v", aggregate, job, index, ok)
		}
	}
}

// many is the fleet of the original's replica-manager test: 20 shards of a model in two
// replicas, one of each number in every data centre.
func many() fleet.State {
	s := fleet.New()
	for number, idc := range []string{"LF", "hl"} {
		id := fmt.Sprintf("pod-%d", number)
		s.Containers[id] = fleet.Container{Alive: true, Container: events.JSON[*container.Container]{V: &container.Container{Id: id, Idc: idc, Cluster: "Default"}}}
		for task := range int32(20) {
			r := &replica.Replica{ModelName: "m", ServerType: "ps", Task: task, Replica: int32(number), Container: id,
				GrpcAddress: fmt.Sprintf("192.168.1.%d:%d", number, 4000+task), Stat: replica.State_AVAILABLE}
			s.Replicas[r.Key()] = fleet.Replica{Alive: true, Replica: events.JSON[*replica.Replica]{V: r}}
		}
	}
	return s
}

func TestStarted(t *testing.T) {
	s := many()
	set := func(key string, alive bool, stat replica.State) {
		r := s.Replicas[key]
		r.Alive, r.Replica.V.Stat = alive, stat
		s.Replicas[key] = r
	}
	check := func(step string, model string, n int, idc string, want bool) {
		t.Helper()
		if got := s.Started(model, "ps", n, idc, "default"); got != want {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
	}
	check("all serve", "m", 20, "", true)
	check("here too, whatever the case", "m", 20, "lf", true)
	check("fewer than there are", "m", 19, "", true)
	check("one more than there are", "m", 21, "", false)
	check("another model", "n", 20, "", false)
	check("nothing to wait for", "n", 0, "", true)
	check("another data centre", "m", 20, "xx", false)
	set("m/ps:7/0", true, replica.State_LOADING)
	check("one loads here", "m", 20, "lf", false)
	check("but not elsewhere", "m", 20, "hl", true)
	set("m/ps:7/1", false, replica.State_AVAILABLE)
	check("and is lost elsewhere", "m", 20, "", false)
	entry := &replica.Replica{ModelName: "m", ServerType: "entry", Task: 7, Container: "pod-0", Stat: replica.State_AVAILABLE}
	s.Replicas[entry.Key()] = fleet.Replica{Alive: true, Replica: events.JSON[*replica.Replica]{V: entry}}
	check("and a task of another type stands in for none", "m", 20, "", false)
}

func TestTargets(t *testing.T) {
	want := map[string]fleet.Target{"192.168.1.0:4003": {IDC: "LF", Cluster: "Default"}, "192.168.1.1:4003": {IDC: "hl", Cluster: "Default", Replica: 1}}
	if diff := cmp.Diff(want, many().Targets("m", "ps", 3, fleet.IPv4)); diff != "" {
		t.Error(diff)
	}
	if got := many().Targets("m", "ps", 20, fleet.IPv4); len(got) != 0 {
		t.Errorf("of a task that is not there: %v", got)
	}
}

// A replica that says itself where it is is found there, also where nothing is known of its
// container; one that does not is where its container is.
func TestNear(t *testing.T) {
	s := fleet.New()
	s.Containers["c"] = fleet.Container{Container: events.JSON[*container.Container]{V: &container.Container{Id: "c", Idc: "LF", Cluster: "Default"}}}
	own, foreign := &replica.Replica{Container: "c"}, &replica.Replica{Container: "znode-session-1", DataCenter: "hl:spot"}
	for _, tc := range []struct {
		r            *replica.Replica
		idc, cluster string
		want         bool
	}{
		{own, "lf", "default", true}, {own, "", "", true}, {own, "hl", "default", false}, {own, "lf", "spot", false},
		{foreign, "HL", "Spot", true}, {foreign, "", "", true}, {foreign, "hl", "default", false}, {foreign, "lf", "", false},
	} {
		if got := s.Near(tc.r, tc.idc, tc.cluster); got != tc.want {
			t.Errorf("Near(%v, %q, %q) = %v", tc.r, tc.idc, tc.cluster, got)
		}
	}
}
