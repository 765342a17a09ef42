package replicaregistry

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/projections/fleet"
)

// containerKey is the gRPC metadata in which an agent may say who it is.
const containerKey = "monolith-container"

// agent answers the original's agent service from the fleet view, in the way of the
// agent version that cfg names.
type agent struct {
	cfg   Config
	fleet *follow.Follower[fleet.State]
	addr  func() string
}

// GetReplicas returns the addresses of the AVAILABLE replicas of one task. Version 1
// answers for Config.AgentModel; otherwise the model is named as m, m:ps_1 or, the old
// way, ps_1, and may be left out where only one is served. Version 3 has no such call.
func (a *agent) GetReplicas(_ context.Context, in *agentpb.GetReplicasRequest) (*agentpb.GetReplicasResponse, error) {
	if a.cfg.AgentVersion == 3 {
		return nil, status.Error(codes.Unimplemented, "agent version 3 has no GetReplicas: use HeartBeat, or run the registry with --agent-version 2")
	}
	kind, ok := serverType(in.GetServerType())
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "server_type %d is unknown: ask for PS, ENTRY or DENSE", in.GetServerType())
	}
	var out []string
	var err error
	a.fleet.Read(func(f fleet.State) {
		name := a.cfg.AgentModel
		if a.cfg.AgentVersion != 1 {
			if name, err = a.modelOf(f, in.GetModelName()); err != nil {
				return
			}
		}
		a.each(f, func(r *replica.Replica, addr string) {
			if r.GetModelName() == name && r.GetServerType() == kind && r.GetTask() == in.GetTask() {
				out = append(out, addr)
			}
		})
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.GetReplicasResponse{AddressList: &agentpb.AddressList{Address: out}}, nil
}

// HeartBeat returns addresses by task. A key is there only while it has an address. The
// keys are those of the agent version:
//
//	1  ps:0, ps:1, ... of Config.AgentModel and the server type asked for
//	2  {model}:ps:0, ... of every model and the server type asked for
//	3  {model}:ps_0, {model}:entry, ... of every model, whatever the type
func (a *agent) HeartBeat(_ context.Context, in *agentpb.HeartBeatRequest) (*agentpb.HeartBeatResponse, error) {
	version := a.cfg.AgentVersion
	if version == 0 {
		version = 3
		if a.cfg.AgentModel != "" {
			version = 1
		}
	}
	kind, ok := serverType(in.GetServerType())
	if !ok && version != 3 {
		return nil, status.Errorf(codes.InvalidArgument, "server_type %d is unknown: ask for PS, ENTRY or DENSE", in.GetServerType())
	}
	out := map[string]*agentpb.AddressList{}
	a.fleet.Read(func(f fleet.State) {
		a.each(f, func(r *replica.Replica, addr string) {
			var key string
			switch {
			case version == 3:
				key = r.GetModelName() + ":" + r.SubModel()
			case r.GetServerType() != kind:
				return
			case version == 2:
				key = fmt.Sprintf("%s:%s:%d", r.GetModelName(), kind, r.GetTask())
			case r.GetModelName() != a.cfg.AgentModel:
				return
			default:
				key = fmt.Sprintf("%s:%d", kind, r.GetTask())
			}
			if out[key] == nil {
				out[key] = &agentpb.AddressList{}
			}
			out[key].Address = append(out[key].Address, addr)
		})
	})
	return &agentpb.HeartBeatResponse{Addresses: out}, nil
}

// GetResource returns what the asking agent last reported; what it does not report is
// -1. Version 1 always answered with an empty message. Somebody who is no agent, or
// shares its host with others, hears of the whole fleet: the registry's own address and
// the memory that live serving containers report as free, as no shard or replica.
func (a *agent) GetResource(ctx context.Context, _ *agentpb.GetResourceRequest) (*agentpb.GetResourceResponse, error) {
	if a.cfg.AgentVersion == 1 {
		return &agentpb.GetResourceResponse{}, nil
	}
	out := &agentpb.GetResourceResponse{Address: a.addr(), ShardId: -1, ReplicaId: -1, Cpu: -1, Network: -1, WorkLoad: -1}
	a.fleet.Read(func(f fleet.State) {
		if c, ok := asking(ctx, f); ok {
			out.Address = c.Container.V.GetAgentAddress()
			out.ShardId, out.ReplicaId = c.Container.V.GetShard(), c.Container.V.GetReplica()
			out.Memory = c.Resource.V.GetMemory()
			return
		}
		for _, c := range f.Containers {
			if free := c.Resource.V.GetMemory(); c.Alive && c.Container.V.GetKind() == "serving" && free > 0 {
				out.Memory += min(free, math.MaxInt64-out.Memory)
			}
		}
	})
	return out, nil
}

// asking is the live serving container that a call comes from: the one it names in its
// metadata, or the only one whose agent is on the caller's host.
func asking(ctx context.Context, f fleet.State) (found fleet.Container, ok bool) {
	if names := metadata.ValueFromIncomingContext(ctx, containerKey); len(names) > 0 {
		c := f.Containers[names[0]]
		return c, c.Alive && c.Container.V.GetKind() == "serving"
	}
	p, _ := peer.FromContext(ctx)
	if p == nil || p.Addr == nil {
		return found, false
	}
	from, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return found, false
	}
	n := 0
	for _, c := range f.Containers {
		if c.Alive && c.Container.V.GetKind() == "serving" && sameHost(c.Container.V, from) {
			found = c
			n++
		}
	}
	return found, n == 1
}

func sameHost(c *container.Container, ip string) bool {
	host, _, err := net.SplitHostPort(c.GetAgentAddress())
	if err != nil {
		return false
	}
	a, b := net.ParseIP(host), net.ParseIP(ip)
	return a != nil && a.Equal(b)
}

// each calls f with the replicas that take traffic and their address, by task and
// replica, as far as the agent's data centre sees them. One that has no address is left
// out.
func (a *agent) each(s fleet.State, f func(r *replica.Replica, addr string)) {
	for _, r := range s.Available("") {
		if a.cfg.DCAware && !s.Near(r, a.cfg.IDC, a.cfg.Cluster) {
			continue
		}
		addr := fleet.Address(r, a.cfg.AgentArchon, a.cfg.family())
		if addr == "" && a.cfg.AgentVersion == 0 {
			addr = fleet.Address(r, !a.cfg.AgentArchon, a.cfg.family())
		}
		if addr != "" {
			f(r, addr)
		}
	}
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
