// Package znodedata is what Monolith's nodes in ZooKeeper hold. Bytes writes what Python's
// json.dumps makes of it: ", " and ": " between, keys in this order, ASCII only, an empty
// string as null.
package znodedata

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ModelMeta is the payload of /{bzid}/portal/{model}.
type ModelMeta struct {
	ModelName, ModelDir, Ckpt string
	NumShard                  int32 // -1: as many as were exported
	Action                    string
	SpecReplicas              []string
}

// Bytes is the node's data.
func (m ModelMeta) Bytes() []byte { return m.Append(nil) }

// Append overwrites to with the node's data.
func (m ModelMeta) Append(to []byte) []byte {
	o := begin(to)
	o.str("model_name", m.ModelName)
	o.str("model_dir", m.ModelDir)
	o.str("ckpt", m.Ckpt)
	o.int("num_shard", int64(m.NumShard))
	o.str("action", m.Action)
	o.key("spec_replicas")
	o.b = append(o.b, '[')
	for i, r := range m.SpecReplicas {
		if i > 0 {
			o.b = append(o.b, ", "...)
		}
		o.b = pyString(o.b, r)
	}
	o.b = append(o.b, ']')
	return o.end()
}

// ResourceSpec is the payload of /{bzid}/resource/{shard}:{replica}.
type ResourceSpec struct {
	Address                string
	ShardID, ReplicaID     int64
	Memory                 int64
	CPU, Network, WorkLoad float64
}

// Append overwrites to with the node's data.
func (r ResourceSpec) Append(to []byte) []byte {
	o := begin(to)
	o.str("address", r.Address)
	o.int("shard_id", r.ShardID)
	o.int("replica_id", r.ReplicaID)
	o.int("memory", r.Memory)
	o.float("cpu", r.CPU)
	o.float("network", r.Network)
	o.float("work_load", r.WorkLoad)
	return o.end()
}

// PublishMeta is the payload of /{bzid}/publish/{shard}:{replica}:{model}.
type PublishMeta struct {
	ShardID, ReplicaID int64
	ModelName          string
	NumPS              int64
	TotalPublishNum    int
	SubModels          map[string]string // written by name, numbers in counting order
	PType              int               // 1 load, 2 unload
	IsSpec             bool
}

// Bytes is the node's data.
func (p PublishMeta) Bytes() []byte {
	o := begin(nil)
	o.int("shard_id", p.ShardID)
	o.int("replica_id", p.ReplicaID)
	o.str("model_name", p.ModelName)
	o.int("num_ps", p.NumPS)
	o.int("total_publish_num", int64(p.TotalPublishNum))
	o.key("sub_models")
	o.b = append(o.b, '{')
	for i, name := range slices.SortedFunc(maps.Keys(p.SubModels), bySubModel) {
		if i > 0 {
			o.b = append(o.b, ", "...)
		}
		o.b = append(pyString(o.b, name), ": "...)
		o.b = pyString(o.b, p.SubModels[name])
	}
	o.b = append(o.b, '}')
	o.int("ptype", int64(p.PType))
	o.key("is_spec")
	o.b = strconv.AppendBool(o.b, p.IsSpec)
	return o.end()
}

// bySubModel puts ps_2 before ps_10.
func bySubModel(a, b string) int {
	cut := func(s string) (string, uint64) {
		i := strings.LastIndexByte(s, '_')
		n, err := strconv.ParseUint(s[i+1:], 10, 64)
		if i < 0 || err != nil {
			return s, 0
		}
		return s[:i], n
	}
	an, ai := cut(a)
	bn, bi := cut(b)
	return cmp.Or(cmp.Compare(an, bn), cmp.Compare(ai, bi), cmp.Compare(a, b))
}

// ReplicaMeta is the payload of /{bzid}/service/{model}/{type}:{task}/{replica}.
type ReplicaMeta struct {
	Address           string `json:"address,omitempty"`
	AddressIPv6       string `json:"address_ipv6,omitempty"`
	Stat              int32  `json:"stat"`
	ModelName         string `json:"model_name,omitempty"`
	ServerType        string `json:"server_type,omitempty"`
	Task              int32  `json:"task"`
	Replica           int64  `json:"replica"` // an agent's own is 40 bits of a hash
	ArchonAddress     string `json:"archon_address,omitempty"`
	ArchonAddressIPv6 string `json:"archon_address_ipv6,omitempty"`

	Container string `json:"container,omitempty"` // who serves it; no part of the payload
}

// Bytes is the node's data.
func (r ReplicaMeta) Bytes() []byte { return r.Append(nil) }

// Append overwrites to with the node's data.
func (r ReplicaMeta) Append(to []byte) []byte {
	o := begin(to)
	o.str("address", r.Address)
	o.str("address_ipv6", r.AddressIPv6)
	o.int("stat", int64(r.Stat))
	o.str("model_name", r.ModelName)
	o.str("server_type", r.ServerType)
	o.int("task", int64(r.Task))
	o.int("replica", r.Replica)
	o.str("archon_address", r.ArchonAddress)
	o.str("archon_address_ipv6", r.ArchonAddressIPv6)
	return o.end()
}

// SavedModelDeployConfig is the payload of /{bzid}/saved_models/{model}/{sub_graph}.
type SavedModelDeployConfig struct{ ModelBasePath, VersionPolicy string }

// Bytes is the node's data.
func (c SavedModelDeployConfig) Bytes() []byte {
	o := begin(nil)
	o.str("model_base_path", c.ModelBasePath)
	o.str("version_policy", c.VersionPolicy)
	return o.end()
}

// ContainerServiceInfo is the payload of /{bzid}/container_service/{cluster}:{ctx_id}.
type ContainerServiceInfo struct {
	GRPC, HTTP, Archon, Agent, IDC string
	DebugInfo                      string // a JSON text of its own
}

// Bytes is the node's data.
func (c ContainerServiceInfo) Bytes() []byte {
	o := begin(nil)
	o.str("grpc", c.GRPC)
	o.str("http", c.HTTP)
	o.str("archon", c.Archon)
	o.str("agent", c.Agent)
	o.str("idc", c.IDC)
	o.str("debug_info", c.DebugInfo)
	return o.end()
}

// DebugInfo is the JSON text in debug_info, "" for a container that follows no layout.
func DebugInfo(path string, filters []string) string {
	if path == "" {
		return ""
	}
	o := begin(nil)
	o.str("layout_path", path)
	o.key("layout_filters")
	o.b = append(o.b, '[')
	for i, f := range filters {
		if i > 0 {
			o.b = append(o.b, ", "...)
		}
		o.b = pyString(o.b, f)
	}
	o.b = append(o.b, ']')
	return string(o.end())
}
