package replicaregistry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// settle waits until n registries, which answer in turns, have folded the whole log.
func settle(t *testing.T, b *mem.Bus, n int) {
	t.Helper()
	last, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(controltest.Patience)
	for folded := 0; folded < n; { // they answer in turn: n in a row are all of them
		folded++
		if !strings.Contains(controltest.MustCall(t, b, "registry.state", `{"view":"fleet"}`), `"seq":`+itoa(last)+",") {
			folded = 0
		}
		if time.Now().After(deadline) {
			t.Fatal("a registry does not catch up")
		}
	}
}

// threeContainers beats for three containers, each with 20 shards and an entry.
func threeContainers(t *testing.T, b *mem.Bus) {
	t.Helper()
	for number, idc := range []string{"lf", "lf", "hl"} {
		id := fmt.Sprintf("192.168.1.%d", number)
		var rs []*replica.Replica
		for task := range int32(20) {
			rs = append(rs, on(id, "test_model", "ps", task, int32(number), replica.State_AVAILABLE))
		}
		rs = append(rs, on(id, "test_model", "entry", 0, int32(number), replica.State_AVAILABLE))
		hb := serving(id, idc, int64(1000+number), rs...)
		hb.Container.Cluster = "Default"
		hb.Container.DcAware = true
		hb.Container.AgentAddress = fmt.Sprintf("127.0.0.%d:4002", number+1)
		hb.Container.Shard, hb.Container.Replica = 3, int32(number)
		controltest.Beat(t, b, hb)
	}
}

// The original's agent-service test, 20 shards in two replicas with an entry each, asked
// in the way of every agent version.
func TestAgentVersions(t *testing.T) {
	b := mem.New()
	cfg := func(version int) replicaregistry.Config {
		c := replicaregistry.Config{AgentVersion: version, Getenv: func(string) string { return "" }}
		if version == 1 {
			c.AgentModel, c.DCAware, c.IDC, c.Cluster = "test_model", true, "LF", "default"
		}
		return c
	}
	v1, v2, v3 := dial(t, b, cfg(1)), dial(t, b, cfg(2)), dial(t, b, cfg(3))
	archon := cfg(3)
	archon.AgentArchon = true
	v3archon := dial(t, b, archon)
	threeContainers(t, b)
	settle(t, b, 4)

	beat := func(c agentpb.AgentServiceClient, kind agentpb.ServerType) map[string]*agentpb.AddressList {
		t.Helper()
		got, err := c.HeartBeat(t.Context(), &agentpb.HeartBeatRequest{ServerType: kind})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetAddresses()
	}
	for _, tc := range []struct {
		name   string
		client agentpb.AgentServiceClient
		kind   agentpb.ServerType
		keys   int
		key    string
		want   string
	}{
		{"v1: own data centre, no prefix", v1, agentpb.ServerType_PS, 20, "ps:19", "192.168.1.0:9000 192.168.1.1:9000"},
		{"v1: entry", v1, agentpb.ServerType_ENTRY, 1, "entry:0", "192.168.1.0:9000 192.168.1.1:9000"},
		{"v2: by model and type", v2, agentpb.ServerType_PS, 20, "test_model:ps:7", "192.168.1.0:9000 192.168.1.1:9000 192.168.1.2:9000"},
		{"v3: everything", v3, agentpb.ServerType_DENSE, 21, "test_model:ps_7", "192.168.1.0:9000 192.168.1.1:9000 192.168.1.2:9000"},
		{"v3: entry, an unknown type is ignored", v3, 77, 21, "test_model:entry", "192.168.1.0:9000 192.168.1.1:9000 192.168.1.2:9000"},
		{"v3 with archon", v3archon, 0, 21, "test_model:entry", "192.168.1.0:9001 192.168.1.1:9001 192.168.1.2:9001"},
	} {
		got := beat(tc.client, tc.kind)
		if addrs := strings.Join(got[tc.key].GetAddress(), " "); len(got) != tc.keys || addrs != tc.want {
			t.Errorf("%s: %d keys, %s=%s", tc.name, len(got), tc.key, addrs)
		}
	}
	if _, err := v1.HeartBeat(t.Context(), &agentpb.HeartBeatRequest{ServerType: 77}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("v1, an unknown type: %v", err)
	}

	if got, err := v1.GetReplicas(t.Context(), &agentpb.GetReplicasRequest{ServerType: agentpb.ServerType_PS, Task: 1}); err != nil || len(got.GetAddressList().GetAddress()) != 2 {
		t.Errorf("v1 replicas: %v, %v", got, err)
	}
	if got, err := v2.GetReplicas(t.Context(), &agentpb.GetReplicasRequest{ServerType: agentpb.ServerType_PS, Task: 1, ModelName: "test_model"}); err != nil || len(got.GetAddressList().GetAddress()) != 3 {
		t.Errorf("v2 replicas: %v, %v", got, err)
	}
	if _, err := v3.GetReplicas(t.Context(), &agentpb.GetReplicasRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("v3 replicas: %v", err)
	}

	resources(t, v1, v2, v3)
}

// resources asks for the resource of the caller, of a named agent and of a stranger.
func resources(t *testing.T, v1, v2, v3 agentpb.AgentServiceClient) {
	t.Helper()
	if got, err := v1.GetResource(t.Context(), &agentpb.GetResourceRequest{}); err != nil || got.GetAddress() != "" || got.GetMemory() != 0 || got.GetCpu() != 0 {
		t.Errorf("v1 resource: %v, %v", got, err)
	}
	// The call comes from 127.0.0.1, where one agent is.
	if got, err := v3.GetResource(t.Context(), &agentpb.GetResourceRequest{}); err != nil || got.GetAddress() != "127.0.0.1:4002" ||
		got.GetMemory() != 1000 || got.GetShardId() != 3 || got.GetReplicaId() != 0 || got.GetCpu() != -1 || got.GetNetwork() != -1 || got.GetWorkLoad() != -1 {
		t.Errorf("v3 resource: %v, %v", got, err)
	}
	named := metadata.AppendToOutgoingContext(t.Context(), "monolith-container", "192.168.1.2")
	if got, err := v2.GetResource(named, &agentpb.GetResourceRequest{}); err != nil || got.GetMemory() != 1002 || got.GetReplicaId() != 2 {
		t.Errorf("the resource of the agent that says who it is: %v, %v", got, err)
	}
	stranger := metadata.AppendToOutgoingContext(t.Context(), "monolith-container", "nobody")
	if got, err := v2.GetResource(stranger, &agentpb.GetResourceRequest{}); err != nil || got.GetMemory() != 3003 || got.GetShardId() != -1 {
		t.Errorf("a stranger hears of the fleet: %v, %v", got, err)
	}
}

// Replicas of data centres that are told apart have keys of their own, in lower case.
func TestDataCentres(t *testing.T) {
	b := mem.New()
	startLeasing(t, b, longLease)
	for id, idc := range map[string]string{"a": "LF", "b": "hl"} {
		hb := serving(id, idc, 1, on(id, "m", "ps", 0, 0, replica.State_AVAILABLE))
		hb.Container.Cluster, hb.Container.DcAware = "Default", true
		controltest.Beat(t, b, hb)
	}
	listed := controltest.MustCall(t, b, "registry.replicas", `{}`)
	for _, key := range []string{`"m/lf:default/ps:0/0"`, `"m/hl:default/ps:0/0"`} {
		if !strings.Contains(listed, key) {
			t.Errorf("no %s in %s", key, listed)
		}
	}
	body := `{"container":{"id":"c","kind":"serving","dcAware":true},"replicas":[{"modelName":"m","serverType":"ps"}]}`
	_, err := controltest.Call(t, b, "pulse.registry.heartbeat", body)
	if err == nil || !strings.Contains(err.Error(), "give both") {
		t.Errorf("a container that does not say where it is: %v", err)
	}
}

func TestStarted(t *testing.T) {
	b := mem.New()
	startLeasing(t, b, longLease)
	controltest.Beat(t, b, serving("s0", "LF", 1, on("s0", "m", "ps", 0, 0, replica.State_AVAILABLE), on("s0", "m", "ps", 1, 0, replica.State_LOADING)))
	ask := func(body, want string) {
		t.Helper()
		if got := controltest.MustCall(t, b, "registry.started", body); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	ask(`{"model":"m","numPs":2}`, `{"ps":false,"dense":false}`)
	controltest.Beat(t, b, serving("s0", "LF", 1, on("s0", "m", "ps", 0, 0, replica.State_AVAILABLE), on("s0", "m", "ps", 1, 0, replica.State_AVAILABLE), on("s0", "m", "dense", 0, 0, replica.State_AVAILABLE)))
	ask(`{"model":"m","numPs":2,"idc":"lf","cluster":"c"}`, `{"ps":true,"dense":true}`)
	ask(`{"model":"m","numPs":2,"idc":"hl"}`, `{"ps":false,"dense":false}`)
	if _, err := controltest.Call(t, b, "registry.started", `{"model":"m"}`); err == nil || !strings.Contains(err.Error(), "numPs") {
		t.Errorf("without numPs: %v", err)
	}
}

// Who pushes parameters asks where to.
func TestTargets(t *testing.T) {
	b := mem.New()
	startLeasing(t, b, longLease)
	one, two := on("a", "m", "ps", 3, 0, replica.State_AVAILABLE), on("b", "m", "ps", 3, 1, replica.State_AVAILABLE)
	one.GrpcAddress, two.GrpcAddress = "10.0.0.1:8500", "10.0.0.2:8500"
	for id, r := range map[string]*replica.Replica{"a": one, "b": two} {
		hb := serving(id, "LF", 1, r, on(id, "m", "ps", 4, r.GetReplica(), replica.State_LOADING))
		hb.Container.Cluster = "Default"
		controltest.Beat(t, b, hb)
	}
	for body, want := range map[string]string{
		`{"model":"m","task":3}`:             `{"targets":[{"address":"10.0.0.1:8500","replica":0,"idc":"LF","cluster":"Default"},{"address":"10.0.0.2:8500","replica":1,"idc":"LF","cluster":"Default"}]}`,
		`{"model":"m","task":4}`:             `{"targets":[]}`,
		`{"model":"m","serverType":"entry"}`: `{"targets":[]}`,
	} {
		if got := controltest.MustCall(t, b, "registry.targets", body); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if _, err := controltest.Call(t, b, "registry.targets", `{}`); err == nil || !strings.Contains(err.Error(), "model must be given") {
		t.Errorf("of no model: %v", err)
	}
}

// A container that was lost and beats again is registered once, with the state it has
// then: nothing flaps, however often it beats afterwards.
func TestReregisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no machine is so slow that a lease ends between two heartbeats
		b := mem.New()
		defer b.Close()
		stop := start(t, b)
		controltest.Beat(t, b, ps(replica.State_AVAILABLE))
		lost := controltest.Next(t, b, 1, func(r events.Recorded) bool {
			return r.Header.Type == "lost" && strings.Contains(string(r.Subject), ".container.")
		})
		settle(t, b, 1) // a heartbeat that overtakes the fold of the loss changes nothing; the next one does
		for range 3 {
			controltest.Beat(t, b, ps(replica.State_AVAILABLE))
		}
		var after []string
		for _, r := range controltest.All(t, b) {
			if r.Seq > lost.Seq {
				after = append(after, r.Header.Type)
			}
			if e, ok := r.Event.(*replica.Event); ok && r.Seq > lost.Seq && e.GetRegistered() != nil && e.GetRegistered().GetReplica().GetStat() != replica.State_AVAILABLE {
				t.Errorf("registered as %v", e.GetRegistered().GetReplica().GetStat())
			}
		}
		if diff := cmp.Diff([]string{"reported", "resourceReported", "registered"}, after); diff != "" {
			t.Errorf("after the loss: %s", diff)
		}
		stop()
	})
}

// gathered are the samples of serving_model.*, as name{labels} value.
func gathered(t *testing.T, g prometheus.Gatherer) (out []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(f.GetName(), ".serving_model.") {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), m.GetGauge().GetValue()))
		}
	}
	slices.Sort(out)
	return out
}

func TestMetricsByTheirNames(t *testing.T) {
	b := mem.New()
	env := controltest.Env(b)
	registry := prometheus.NewRegistry()
	env.Metrics = registry
	cfg := replicaregistry.Config{
		Getenv: func(string) string { return "" },
		Now:    time.Now,
		Lease:  longLease,
	}
	s, err := replicaregistry.New(cfg, env)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	hb := serving("s0", "lf", 1, on("s0", "rank.v2", "ps", 4, 1, replica.State_AVAILABLE), on("s0", "rank.v2", "entry", 0, 0, replica.State_LOADING))
	hb.Replicas[0].Version = 1622716114
	controltest.Beat(t, b, hb)
	fact := controltest.Next(t, b, 1, func(r events.Recorded) bool { return strings.Contains(string(r.Subject), "ps:4") })
	const labels = "{base_name=rank.v2,idc=lf:c,model_name=ps_4,replica_id=1,shard_id=-1} "
	ts := fmt.Sprint(float64(fact.Time.UnixMilli()) / 1000)
	want := []string{
		"data.monolith_serving.global.serving_model.latest_version" + labels + "1.622716114e+09",
		"data.monolith_serving.global.serving_model.update_ts" + labels + ts,
		"data.monolith_serving.rank.v2.serving_model.latest_version" + labels + "1.622716114e+09",
		"data.monolith_serving.rank.v2.serving_model.update_ts" + labels + ts,
	}
	deadline := time.Now().Add(controltest.Patience)
	for {
		var got, ages []string
		for _, line := range gathered(t, registry) {
			if strings.Contains(line, "since_last_update") {
				ages = append(ages, line)
			} else {
				got = append(got, line)
			}
		}
		if cmp.Equal(want, got) && len(ages) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s; ages %v", cmp.Diff(want, got), ages)
		}
	}

	prefixed := controltest.Env(b)
	own := prometheus.NewRegistry()
	prefixed.Metrics = own
	cfg.Getenv = func(key string) string { return map[string]string{"TCE_PSM": "data.svc"}[key] }
	second, err := replicaregistry.New(cfg, prefixed)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, second)
	for !slices.ContainsFunc(gathered(t, own), func(line string) bool {
		return strings.HasPrefix(line, "data.svc.serving_model.latest_version")
	}) {
		if time.Now().After(deadline) {
			t.Fatal("the prefix of the environment is not used")
		}
	}
}
