package replicaregistry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/agentpb"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/follow"
)

// agent answers the original's agent service from the fleet view.
type agent struct {
	cfg   Config
	fleet *follow.Follower[fleet.State]
	addr  func() string
}

// GetReplicas returns the addresses of the AVAILABLE replicas of one task. The model is
// named as m, m:ps_1 or, the old way, ps_1; it may be left out where only one is served.
func (a *agent) GetReplicas(_ context.Context, in *agentpb.GetReplicasRequest) (*agentpb.GetReplicasResponse, error) {
	kind, ok := serverType(in.GetServerType())
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "server_type %d is unknown: ask for PS, ENTRY or DENSE", in.GetServerType())
	}
	var out []string
	var err error
	a.fleet.Read(func(f fleet.State) {
		var name string
		if name, err = a.modelOf(f, in.GetModelName()); err != nil {
			return
		}
		for _, r := range a.available(f) {
			if r.GetModelName() == name && r.GetServerType() == kind && r.GetTask() == in.GetTask() {
				out = append(out, address(r))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.GetReplicasResponse{AddressList: &agentpb.AddressList{Address: out}}, nil
}

// HeartBeat returns addresses by task. With Config.AgentModel it is the first agent's:
// keys ps:0, ps:1, ... of that model and the server type asked for. Without, it is the
// unified agent's: keys {model}:ps_0, {model}:entry, ... of all, whatever the type.
// A key is there only while it has an address.
func (a *agent) HeartBeat(_ context.Context, in *agentpb.HeartBeatRequest) (*agentpb.HeartBeatResponse, error) {
	kind, ok := serverType(in.GetServerType())
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "server_type %d is unknown: ask for PS, ENTRY or DENSE", in.GetServerType())
	}
	out := map[string]*agentpb.AddressList{}
	a.fleet.Read(func(f fleet.State) {
		for _, r := range a.available(f) {
			key := r.GetModelName() + ":" + subModel(r)
			if a.cfg.AgentModel != "" {
				if r.GetModelName() != a.cfg.AgentModel || r.GetServerType() != kind {
					continue
				}
				key = fmt.Sprintf("%s:%d", kind, r.GetTask())
			}
			if out[key] == nil {
				out[key] = &agentpb.AddressList{}
			}
			out[key].Address = append(out[key].Address, address(r))
		}
	})
	return &agentpb.HeartBeatResponse{Addresses: out}, nil
}

// GetResource speaks for the whole fleet: the registry's own address and the memory
// that live serving containers report as free. It is no shard or replica, and the other
// figures are unknown: -1.
func (a *agent) GetResource(context.Context, *agentpb.GetResourceRequest) (*agentpb.GetResourceResponse, error) {
	out := &agentpb.GetResourceResponse{Address: a.addr(), ShardId: -1, ReplicaId: -1, Cpu: -1, Network: -1, WorkLoad: -1}
	a.fleet.Read(func(f fleet.State) {
		for _, c := range f.Containers {
			if free := c.Resource.V.GetMemory(); c.Alive && c.Container.V.GetKind() == "serving" && free > 0 {
				out.Memory += min(free, math.MaxInt64-out.Memory)
			}
		}
	})
	return out, nil
}

// available are the replicas that take traffic, by task and replica, as far as the
// caller's data centre sees them.
func (a *agent) available(f fleet.State) []*replica.Replica {
	var out []*replica.Replica
	for _, r := range f.Replicas {
		c := f.Containers[r.Replica.V.GetContainer()].Container.V
		if !r.Alive || r.Replica.V.GetStat() != replica.State_AVAILABLE || address(r.Replica.V) == "" {
			continue
		}
		if a.cfg.DCAware && (!strings.EqualFold(c.GetIdc(), a.cfg.IDC) || !strings.EqualFold(c.GetCluster(), a.cfg.Cluster)) {
			continue
		}
		out = append(out, r.Replica.V)
	}
	slices.SortFunc(out, func(x, y *replica.Replica) int {
		return cmp.Or(cmp.Compare(x.GetModelName(), y.GetModelName()), cmp.Compare(x.GetServerType(), y.GetServerType()),
			cmp.Compare(x.GetTask(), y.GetTask()), cmp.Compare(x.GetReplica(), y.GetReplica()))
	})
	return out
}

// modelOf finds the model that a request means.
func (a *agent) modelOf(f fleet.State, asked string) (string, error) {
	models := map[string]bool{}
	for _, r := range f.Replicas {
		if r.Alive {
			models[r.Replica.V.GetModelName()] = true
		}
	}
	name, _, _ := strings.Cut(asked, ":")
	switch {
	case name != "" && (models[name] || !isSubModel(name)):
		return name, nil
	case a.cfg.AgentModel != "":
		return a.cfg.AgentModel, nil
	case len(models) <= 1:
		for only := range models {
			return only, nil
		}
		return "", nil
	}
	return "", status.Errorf(codes.InvalidArgument, "model_name %q does not say which model: name one of %s",
		asked, strings.Join(slices.Sorted(maps.Keys(models)), ", "))
}

// isSubModel is true for entry, ps_1 and their like.
func isSubModel(name string) bool {
	kind, task, numbered := strings.Cut(name, "_")
	if _, err := strconv.Atoi(task); numbered && err != nil {
		return false
	}
	return kind == "ps" || kind == "entry" || kind == "dense"
}

// subModel names the exported folder that r serves.
func subModel(r *replica.Replica) string {
	if r.GetServerType() == "entry" {
		return "entry"
	}
	return fmt.Sprintf("%s_%d", r.GetServerType(), r.GetTask())
}

// address is where r takes requests, "" when it names nothing that can be dialled.
func address(r *replica.Replica) string {
	for _, addr := range []string{r.GetGrpcAddress(), r.GetArchonAddress()} {
		if addr != "" && !strings.HasPrefix(addr, "0.0.0.0") && !strings.HasPrefix(addr, "[::]") {
			return addr
		}
	}
	return ""
}

func serverType(t agentpb.ServerType) (string, bool) {
	switch t {
	case agentpb.ServerType_PS:
		return "ps", true
	case agentpb.ServerType_ENTRY:
		return "entry", true
	case agentpb.ServerType_DENSE:
		return "dense", true
	}
	return "", false
}
