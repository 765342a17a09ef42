package view

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// The types below are the payloads of Monolith's nodes. Bytes writes what Python's
// json.dumps makes of them: ", " and ": " between, keys in this order, ASCII only, an
// empty string as null.

// ModelMeta is the payload of /{bzid}/portal/{model}.
type ModelMeta struct {
	ModelName, ModelDir, Ckpt string
	NumShard                  int32 // -1: as many as were exported
	Action                    string
	SpecReplicas              []string
}

// Bytes is the node's data.
func (m ModelMeta) Bytes() []byte { return m.append(nil) }

func (m ModelMeta) append(to []byte) []byte {
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

// Bytes is the node's data.
func (r ResourceSpec) Bytes() []byte { return r.append(nil) }

func (r ResourceSpec) append(to []byte) []byte {
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
func (p PublishMeta) Bytes() []byte { return p.append(nil) }

func (p PublishMeta) append(to []byte) []byte {
	o := begin(to)
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
func (r ReplicaMeta) Bytes() []byte { return r.append(nil) }

func (r ReplicaMeta) append(to []byte) []byte {
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

// object writes one JSON object the way json.dumps does.
type object struct{ b []byte }

// begin overwrites what b holds.
func begin(b []byte) object { return object{append(b[:0], '{')} }

// key is one of ours: nothing in it needs to be escaped.
func (o *object) key(k string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ", "...)
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, "\": "...)
}

func (o *object) str(k, v string) {
	o.key(k)
	if v == "" {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = pyString(o.b, v)
}

func (o *object) int(k string, v int64) {
	o.key(k)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) float(k string, v float64) {
	o.key(k)
	o.b = pyFloat(o.b, v)
}

func (o *object) end() []byte { return append(o.b, '}') }

// pyString appends s quoted, everything beyond ASCII escaped. Bytes that are not UTF-8
// become U+FFFD.
func pyString(b []byte, s string) []byte {
	b = append(b, '"')
	if plain(s) {
		b = append(b, s...)
		return append(b, '"')
	}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c >= ' ' && c <= '~':
			b = append(b, byte(c))
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(b, '"')
}

// plain says that nothing in s is escaped, as in almost every name and address.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// pyFloat appends v as Python's repr: shortest digits that read back, an exponent below
// 1e-4 and from 1e16 on, and always something that says float.
func pyFloat(b []byte, v float64) []byte {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	case abs != 0 && (abs < 1e-4 || abs >= 1e16):
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	case v == math.Trunc(v) && abs < 1<<53 && (v != 0 || !math.Signbit(v)):
		return append(strconv.AppendInt(b, int64(v), 10), ".0"...)
	case v == math.Trunc(v):
		return append(strconv.AppendFloat(b, v, 'f', -1, 64), ".0"...)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
