package agentdata

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// The decoders read what Bytes of znode's payloads writes, and what the original's own
// decoder takes: fields that are missing or null have their defaults, others are passed
// over. A value of another type is an error.

// DecodeModelMeta reads a portal node.
func DecodeModelMeta(data []byte) (znodedata.ModelMeta, error) {
	v := struct {
		ModelName    string   `json:"model_name"`
		ModelDir     string   `json:"model_dir"`
		Ckpt         string   `json:"ckpt"`
		NumShard     int32    `json:"num_shard"`
		Action       string   `json:"action"`
		SpecReplicas []string `json:"spec_replicas"`
	}{NumShard: -1, Action: "NONE"}
	err := decode("ModelMeta", data, &v)
	return znodedata.ModelMeta{ModelName: v.ModelName, ModelDir: v.ModelDir, Ckpt: v.Ckpt, NumShard: v.NumShard, Action: v.Action, SpecReplicas: v.SpecReplicas}, err
}

// DecodePublishMeta reads a publish node.
func DecodePublishMeta(data []byte) (znodedata.PublishMeta, error) {
	v := struct {
		ShardID         int64             `json:"shard_id"`
		ReplicaID       int64             `json:"replica_id"`
		ModelName       string            `json:"model_name"`
		NumPS           int64             `json:"num_ps"`
		TotalPublishNum int               `json:"total_publish_num"`
		SubModels       map[string]string `json:"sub_models"`
		PType           int               `json:"ptype"`
		IsSpec          bool              `json:"is_spec"`
	}{ReplicaID: -1, TotalPublishNum: 1, PType: load}
	err := decode("PublishMeta", data, &v)
	if err == nil && v.PType != load && v.PType != unload {
		err = fmt.Errorf("PublishMeta: ptype %d is neither 1 (load) nor 2 (unload)", v.PType)
	}
	return znodedata.PublishMeta{
		ShardID: v.ShardID, ReplicaID: v.ReplicaID, ModelName: v.ModelName, NumPS: v.NumPS,
		TotalPublishNum: v.TotalPublishNum, SubModels: v.SubModels, PType: v.PType, IsSpec: v.IsSpec,
	}, err
}

const load, unload = 1, 2

// DecodeResourceSpec reads a resource node.
func DecodeResourceSpec(data []byte) (znodedata.ResourceSpec, error) {
	v := struct {
		Address  string  `json:"address"`
		ShardID  int64   `json:"shard_id"`
		Replica  int64   `json:"replica_id"`
		Memory   int64   `json:"memory"`
		CPU      float64 `json:"cpu"`
		Network  float64 `json:"network"`
		WorkLoad float64 `json:"work_load"`
	}{CPU: -1, Network: -1, WorkLoad: -1}
	err := decode("ResourceSpec", data, &v)
	return znodedata.ResourceSpec{Address: v.Address, ShardID: v.ShardID, ReplicaID: v.Replica, Memory: v.Memory, CPU: v.CPU, Network: v.Network, WorkLoad: v.WorkLoad}, err
}

// DecodeReplicaMeta reads a service node.
func DecodeReplicaMeta(data []byte) (znodedata.ReplicaMeta, error) {
	v := struct {
		Address           string `json:"address"`
		AddressIPv6       string `json:"address_ipv6"`
		Stat              int32  `json:"stat"`
		ModelName         string `json:"model_name"`
		ServerType        string `json:"server_type"`
		Task              int32  `json:"task"`
		Replica           int64  `json:"replica"`
		ArchonAddress     string `json:"archon_address"`
		ArchonAddressIPv6 string `json:"archon_address_ipv6"`
	}{Task: -1, Replica: -1}
	err := decode("ReplicaMeta", data, &v)
	return znodedata.ReplicaMeta{
		Address: v.Address, AddressIPv6: v.AddressIPv6, Stat: v.Stat, ModelName: v.ModelName, ServerType: v.ServerType,
		Task: v.Task, Replica: v.Replica, ArchonAddress: v.ArchonAddress, ArchonAddressIPv6: v.ArchonAddressIPv6,
	}, err
}

// decode leaves a field as it is where the JSON says null.
func decode(what string, data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// integer reads what Python's int() makes of a node's name: zero padding is fine.
func integer(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
