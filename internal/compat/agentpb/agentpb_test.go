package agentpb_test

import (
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/agentpb"
)

// The bytes follow from the original's field numbers, types and enum values.
func TestWire(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"GetReplicasRequest", &agentpb.GetReplicasRequest{ServerType: agentpb.ServerType_DENSE, Task: 3, ModelName: "m"}, "080210031a016d"},
		{"GetReplicasResponse", &agentpb.GetReplicasResponse{AddressList: &agentpb.AddressList{Address: []string{"a", "b"}}}, "0a060a01610a0162"},
		{"GetResourceRequest", &agentpb.GetResourceRequest{}, ""},
		{"GetResourceResponse", &agentpb.GetResourceResponse{Address: "a", ShardId: 1, ReplicaId: 2, Memory: 3, Cpu: 1, Network: 2, WorkLoad: -1},
			"0a0161100118022003" + "2d0000803f" + "3500000040" + "3d000080bf"},
		{"HeartBeatRequest", &agentpb.HeartBeatRequest{ServerType: agentpb.ServerType_ENTRY}, "0801"},
		{"HeartBeatResponse", &agentpb.HeartBeatResponse{Addresses: map[string]*agentpb.AddressList{"ps:0": {Address: []string{"a"}}}}, "0a0b0a0470733a3012030a0161"},
	} {
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(tc.m)
		if err != nil || hex.EncodeToString(got) != tc.want {
			t.Errorf("%s: %x, %v; want %s", tc.name, got, err, tc.want)
		}
	}
	if got := agentpb.File_internal_agentpb_agent_service_proto.Services().Get(0).FullName(); got != agentpb.ServiceName {
		t.Errorf("the proto's service is %s, ours %s", got, agentpb.ServiceName)
	}
}
