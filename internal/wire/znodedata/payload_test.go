package znodedata

import (
	"math"
	"testing"
)

func TestPayloadBytes(t *testing.T) {
	v1 := ReplicaMeta{
		Address: "10.0.0.1:4003", AddressIPv6: "[::]:4003", Task: -1, Replica: -1,
		ArchonAddress: "10.0.0.1:4001", ArchonAddressIPv6: "[::]:4001",
	}
	up := v1
	up.Stat = 30
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{
			"ModelMeta", ModelMeta{ModelName: "m1", ModelDir: "/d/m1/exported_models", NumShard: -1, Action: "NONE"}.Bytes(),
			`{"model_name": "m1", "model_dir": "/d/m1/exported_models", "ckpt": null, "num_shard": -1, "action": "NONE", "spec_replicas": []}`,
		},
		{
			"ResourceSpec", ResourceSpec{Address: "10.0.0.1:4002", ReplicaID: 1, Memory: 1 << 30, CPU: -1, Network: -1, WorkLoad: -1}.Append(nil),
			`{"address": "10.0.0.1:4002", "shard_id": 0, "replica_id": 1, "memory": 1073741824, "cpu": -1.0, "network": -1.0, "work_load": -1.0}`,
		},
		{
			"PublishMeta", PublishMeta{
				ReplicaID: 1, ModelName: "m1", NumPS: 2, TotalPublishNum: 4, PType: 1,
				SubModels: map[string]string{"ps_0": "/d/m1/exported_models/ps_0/1622716114", "entry": "/d/m1/exported_models/entry/1622716114"},
			}.Bytes(),
			`{"shard_id": 0, "replica_id": 1, "model_name": "m1", "num_ps": 2, "total_publish_num": 4, "sub_models": {"entry": "/d/m1/exported_models/entry/1622716114", "ps_0": "/d/m1/exported_models/ps_0/1622716114"}, "ptype": 1, "is_spec": false}`,
		},
		{
			"ReplicaMeta at registration", v1.Bytes(),
			`{"address": "10.0.0.1:4003", "address_ipv6": "[::]:4003", "stat": 0, "model_name": null, "server_type": null, "task": -1, "replica": -1, "archon_address": "10.0.0.1:4001", "archon_address_ipv6": "[::]:4001"}`,
		},
		{
			"ReplicaMeta available", up.Bytes(),
			`{"address": "10.0.0.1:4003", "address_ipv6": "[::]:4003", "stat": 30, "model_name": null, "server_type": null, "task": -1, "replica": -1, "archon_address": "10.0.0.1:4001", "archon_address_ipv6": "[::]:4001"}`,
		},
		{
			"sub-models count", PublishMeta{SubModels: map[string]string{"ps_10": "c", "ps_2": "b", "dense_0": "a", "ps_x": "d", "_10": "f", "_9": "e"}}.Bytes(),
			`{"shard_id": 0, "replica_id": 0, "model_name": null, "num_ps": 0, "total_publish_num": 0, "sub_models": {"_9": "e", "_10": "f", "dense_0": "a", "ps_2": "b", "ps_10": "c", "ps_x": "d"}, "ptype": 0, "is_spec": false}`,
		},
		{
			"list", ModelMeta{SpecReplicas: []string{"0:1", "1:2"}}.Bytes(),
			`{"model_name": null, "model_dir": null, "ckpt": null, "num_shard": 0, "action": null, "spec_replicas": ["0:1", "1:2"]}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if string(tc.got) != tc.want {
				t.Errorf("got  %s\nwant %s", tc.got, tc.want)
			}
		})
	}
}

// The right-hand sides are what CPython 3 prints for json.dumps.
func TestPython(t *testing.T) {
	for in, want := range map[string]string{
		"a\"b\\c/d":      `"a\"b\\c/d"`,
		"\b\f\n\r\t\x00": `"\b\f\n\r\t\u0000"`,
		"\x7f\u0080é":    `"\u007f\u0080\u00e9"`,
		"\u2028中":        `"\u2028\u4e2d"`,
		"😀":              `"\ud83d\ude00"`,
		"<&>":            `"<&>"`,
	} {
		if got := string(pyString(nil, in)); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	for _, tc := range []struct {
		in   float64
		want string
	}{
		{0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {-1, "-1.0"}, {0.1, "0.1"}, {1.0 / 3, "0.3333333333333333"},
		{1e15, "1000000000000000.0"}, {123456789012345680, "1.2345678901234568e+17"}, {1e16, "1e+16"}, {9999999999999998, "9999999999999998.0"},
		{1e-4, "0.0001"}, {1e-5, "1e-05"}, {1.5e-7, "1.5e-07"}, {1e22, "1e+22"}, {5e-324, "5e-324"}, {1.7976931348623157e308, "1.7976931348623157e+308"},
		{math.Inf(1), "Infinity"}, {math.Inf(-1), "-Infinity"}, {math.NaN(), "NaN"},
	} {
		if got := string(pyFloat(nil, tc.in)); got != tc.want {
			t.Errorf("%g: got %s, want %s", tc.in, got, tc.want)
		}
	}
}
