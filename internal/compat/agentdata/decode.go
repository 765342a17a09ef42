// Package agentdata reads nodes of ZooKeeper's tree as the original's agents and scheduler write them.
package agentdata

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// DecodeReplicaMeta reads a service node as the original's own decoder does: fields that are missing or
// null have their defaults, others are passed over. A value of another type is an error.
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
	if err := json.Unmarshal(data, &v); err != nil {
		return znodedata.ReplicaMeta{}, fmt.Errorf("ReplicaMeta: %w", err)
	}
	return znodedata.ReplicaMeta{
		Address: v.Address, AddressIPv6: v.AddressIPv6, Stat: v.Stat, ModelName: v.ModelName, ServerType: v.ServerType,
		Task: v.Task, Replica: v.Replica, ArchonAddress: v.ArchonAddress, ArchonAddressIPv6: v.ArchonAddressIPv6,
	}, nil
}

// ParsePublish takes the node {shard}:{replica}:{model} apart. Zero padding is fine, as for Python's int().
func ParsePublish(path string) (shard, replica int64, model string, ok bool) {
	f := strings.SplitN(path[strings.LastIndexByte(path, '/')+1:], ":", 3)
	if len(f) != 3 || f[2] == "" {
		return 0, 0, "", false
	}
	shard, err1 := strconv.ParseInt(f[0], 10, 64)
	replica, err2 := strconv.ParseInt(f[1], 10, 64)
	return shard, replica, f[2], err1 == nil && err2 == nil
}
