package replicaregistry_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

func serving(id, idc string, memory int64, rs ...*replica.Replica) *replica.Heartbeat {
	return &replica.Heartbeat{
		Container: &container.Container{Id: id, Kind: "serving", Shard: -1, Idc: idc, Cluster: "c"},
		Resource:  &container.ResourceReported{Memory: memory}, Replicas: rs,
	}
}

func on(id, model, kind string, task, number int32, stat replica.State) *replica.Replica {
	return &replica.Replica{ModelName: model, ServerType: kind, Task: task, Replica: number, Container: id,
		GrpcAddress: id + ":9000", ArchonAddress: id + ":9001", Stat: stat, Version: 1}
}

// dial asks a registry's agent service over the wire, as the entry of the original would.
func dial(t *testing.T, b *mem.Bus, cfg replicaregistry.Config) agentpb.AgentServiceClient {
	t.Helper()
	cfg.Listen, cfg.Lease = "127.0.0.1:0", longLease
	s, err := replicaregistry.New(cfg, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	return agentClient(t, s)
}

// agentClient speaks to the agent service of a registry that runs.
func agentClient(t *testing.T, s *replicaregistry.Server) agentpb.AgentServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return agentpb.NewAgentServiceClient(conn)
}

func keyed(r *agentpb.HeartBeatResponse) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(r.GetAddresses())) {
		lines = append(lines, key+"="+strings.Join(r.GetAddresses()[key].GetAddress(), ","))
	}
	return strings.Join(lines, " ")
}

func TestAgentService(t *testing.T) {
	b := mem.New()
	unified := dial(t, b, replicaregistry.Config{})
	first := dial(t, b, replicaregistry.Config{AgentModel: "m"})
	near := dial(t, b, replicaregistry.Config{DCAware: true, IDC: "EAST", Cluster: "C"})
	noGRPC := on("s1", "n", "entry", 0, 0, replica.State_AVAILABLE)
	noGRPC.GrpcAddress = "0.0.0.0:9000"
	nowhere := on("s1", "n", "ps", 0, 0, replica.State_AVAILABLE)
	nowhere.GrpcAddress, nowhere.ArchonAddress = "[::]:1", ""
	for _, hb := range []*replica.Heartbeat{
		serving("s0", "east", 1000, on("s0", "m", "ps", 0, 0, replica.State_AVAILABLE), on("s0", "m", "ps", 1, 0, replica.State_LOADING)),
		serving("s1", "west", 500, on("s1", "m", "ps", 0, 1, replica.State_AVAILABLE), on("s1", "m", "ps", 10, 0, replica.State_AVAILABLE),
			on("s1", "m", "dense", 0, 0, replica.State_AVAILABLE), on("s1", "m", "entry", 0, 0, replica.State_AVAILABLE), noGRPC, nowhere),
	} {
		controltest.Beat(t, b, hb)
	}
	settle(t, b, 3)

	for _, tc := range []struct {
		name   string
		client agentpb.AgentServiceClient
		kind   agentpb.ServerType
		want   string
	}{
		{"unified", unified, agentpb.ServerType_PS, "m:dense_0=s1:9000 m:entry=s1:9000 m:ps_0=s0:9000,s1:9000 m:ps_10=s1:9000 n:entry=s1:9001"},
		{"unified ignores the type", unified, agentpb.ServerType_DENSE, "m:dense_0=s1:9000 m:entry=s1:9000 m:ps_0=s0:9000,s1:9000 m:ps_10=s1:9000 n:entry=s1:9001"},
		{"first agent, ps", first, agentpb.ServerType_PS, "ps:0=s0:9000,s1:9000 ps:10=s1:9000"},
		{"first agent, dense", first, agentpb.ServerType_DENSE, "dense:0=s1:9000"},
		{"own data centre only", near, agentpb.ServerType_PS, "m:ps_0=s0:9000"},
	} {
		got, err := tc.client.HeartBeat(t.Context(), &agentpb.HeartBeatRequest{ServerType: tc.kind})
		if err != nil || keyed(got) != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.name, keyed(got), err, tc.want)
		}
	}

	for _, tc := range []struct {
		name   string
		client agentpb.AgentServiceClient
		ask    *agentpb.GetReplicasRequest
		want   string
		code   codes.Code
	}{
		{"by model", unified, &agentpb.GetReplicasRequest{ModelName: "m"}, "s0:9000 s1:9000", codes.OK},
		{"by the unified agent's key", unified, &agentpb.GetReplicasRequest{ModelName: "m:ps_10", Task: 10}, "s1:9000", codes.OK},
		{"task 1 is only loading", unified, &agentpb.GetReplicasRequest{ModelName: "m", Task: 1}, "", codes.OK},
		{"entry", unified, &agentpb.GetReplicasRequest{ModelName: "n", ServerType: agentpb.ServerType_ENTRY}, "s1:9001", codes.OK},
		{"unknown model", unified, &agentpb.GetReplicasRequest{ModelName: "x"}, "", codes.OK},
		{"which model?", unified, &agentpb.GetReplicasRequest{ModelName: "ps_0"}, "", codes.InvalidArgument},
		{"the old name", first, &agentpb.GetReplicasRequest{ModelName: "ps_0"}, "s0:9000 s1:9000", codes.OK},
		{"no name", first, &agentpb.GetReplicasRequest{}, "s0:9000 s1:9000", codes.OK},
		{"unknown type", first, &agentpb.GetReplicasRequest{ServerType: 7}, "", codes.InvalidArgument},
	} {
		got, err := tc.client.GetReplicas(t.Context(), tc.ask)
		if status.Code(err) != tc.code || strings.Join(got.GetAddressList().GetAddress(), " ") != tc.want {
			t.Errorf("%s: %v, %v; want %q and %v", tc.name, got, err, tc.want, tc.code)
		}
	}
	got, err := unified.GetResource(t.Context(), &agentpb.GetResourceRequest{})
	if err != nil || got.GetMemory() != 1500 || got.GetShardId() != -1 || got.GetReplicaId() != -1 || got.GetCpu() != -1 || got.GetAddress() == "" {
		t.Errorf("resource %v, %v", got, err)
	}
}

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  replicaregistry.Config
		says string
	}{
		{"defaults", replicaregistry.Config{}, ""},
		{"no port", replicaregistry.Config{Listen: "localhost"}, "--listen"},
		{"no zk port", replicaregistry.Config{ZKListen: "localhost"}, "--zk-listen"},
		{"dc aware", replicaregistry.Config{DCAware: true}, "--idc"},
		{"an agent version there is none of", replicaregistry.Config{AgentVersion: 4}, "--agent-version"},
		{"version 1 of no model", replicaregistry.Config{AgentVersion: 1}, "--agent-model"},
		{"address family", replicaregistry.Config{AddressFamily: "ipx"}, "--address-family"},
		{"short lease", replicaregistry.Config{Lease: 1}, "--lease"},
	} {
		err := tc.cfg.Validate()
		if (tc.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := replicaregistry.New(replicaregistry.Config{Lease: 1}, controltest.Env(mem.New())); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("New took a lease of 1 ns: %v", err)
	}
}
