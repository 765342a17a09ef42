package replicaregistry

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"strings"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// lookBindings reads what agents of version 3 write themselves: below container_service who they
// are, and below binding what each of them serves. A binding holds no address, so it counts once
// its container is known.
func (s seen) lookBindings(t view.State, bzid string) {
	services := "/" + bzid + "/container_service"
	for _, name := range t.Children(services) {
		path := services + "/" + name
		data, st, _ := t.Get(path)
		if c := unified(view.ForeignContainer(name), name, data); c != nil && !tree.IsService(st.EphemeralOwner) {
			c.Znode = path
			s.containers[c.Id] = c
		}
	}
	top := "/" + bzid + "/binding"
	for _, model := range t.Children(top) {
		for _, name := range t.Children(top + "/" + model) {
			path := top + "/" + model + "/" + name
			_, st, _ := t.Get(path)
			sub, who, _ := strings.Cut(name, ":")
			kind, task, ok := replica.TaskOf(sub)
			c := s.containers[view.ForeignContainer(who)]
			if !ok || c == nil || tree.IsService(st.EphemeralOwner) {
				continue
			}
			r := &replica.Replica{
				ModelName: model, ServerType: kind, Task: task, Replica: numberOf(who), Container: c.Id, Znode: path, Stat: replica.State_AVAILABLE,
				GrpcAddress: c.GrpcAddress, HttpAddress: c.HttpAddress, ArchonAddress: c.ArchonAddress,
			}
			if (&replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}).Validate(r.Key()) == nil {
				s.replicas[r.Key()] = r
			}
		}
	}
}

// unified is the container that calls itself {psm};{idc};{cluster}:{ctx_id}; nil: the node is none of
// an agent that follows a layout, and no plan may take what it is for a place to load models.
func unified(id, name string, data []byte) *container.Container {
	var info struct {
		GRPC, HTTP, Archon, Agent, IDC string
		Debug                          string `json:"debug_info"`
	}
	var debug struct {
		Path    string   `json:"layout_path"`
		Filters []string `json:"layout_filters"`
	}
	cluster, _, ok := strings.Cut(name, ":")
	if !ok || json.Unmarshal(data, &info) != nil || json.Unmarshal([]byte(info.Debug), &debug) != nil || debug.Path == "" {
		return nil
	}
	c := &container.Container{
		Id: id, Kind: "serving", Shard: -1, Replica: numberOf(name), GrpcAddress: info.GRPC, HttpAddress: info.HTTP, ArchonAddress: info.Archon,
		AgentAddress: info.Agent, Idc: info.IDC, LayoutPath: debug.Path, LayoutFilters: debug.Filters,
	}
	if parts := strings.Split(cluster, ";"); len(parts) == 3 {
		c.Psm = parts[0]
		if parts[2] != "None" {
			c.Cluster = parts[2]
		}
	}
	if (&container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}}).Validate(id) != nil {
		return nil
	}
	return c
}

// numberOf tells the containers of one sub-graph apart, which have no numbers of their own.
func numberOf(name string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int32(h.Sum32() & math.MaxInt32)
}
