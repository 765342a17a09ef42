// Package agentservice answers the original's agent service from the fleet view: to the entries of an
// agent, which ask it where their shards are, and to whoever else speaks it.
package agentservice

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
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

// Answers are how the service answers.
type Answers struct {
	// Version is whose agent service it is: 1, 2 or 3 are the original's, 0 answers HeartBeat as 1 does
	// with Model and as 3 without, and everything else as 2.
	Version int
	// Model is the only one of version 1.
	Model string
	// Archon answers with archon addresses, for servers that speak no gRPC.
	Archon bool
	// DCAware restricts it to replicas in IDC and Cluster.
	DCAware      bool
	IDC, Cluster string
	// Family is of the addresses that come first where a replica has both.
	Family fleet.Family
}

// Service answers in the way of Answers; Addr is where it listens.
type Service struct {
	Answers
	Fleet *follow.Follower[fleet.State]
	Addr  func() string
}

// FamilyOf is what the environment says of this host: IPv6 where it has such an address and no IPv4 one.
func FamilyOf(getenv func(string) string) fleet.Family {
	if getenv("MY_HOST_IPV6") != "" && getenv("MY_HOST_IP") == "" && getenv("MY_POD_IP") == "" {
		return fleet.IPv6
	}
	return fleet.IPv4
}

// GetReplicas returns the addresses of the AVAILABLE replicas of one task. Version 1
// answers for Model; otherwise the model is named as m, m:ps_1 or, the old
// way, ps_1, and may be left out where only one is served. Version 3 has no such call.
func (a *Service) GetReplicas(_ context.Context, in *agentpb.GetReplicasRequest) (*agentpb.GetReplicasResponse, error) {
	if a.Version == 3 {
		return nil, status.Error(codes.Unimplemented, "agent version 3 has no GetReplicas: use HeartBeat, or run the registry with --agent-version 2")
	}
	kind, ok := serverType(in.GetServerType())
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "server_type %d is unknown: ask for PS, ENTRY or DENSE", in.GetServerType())
	}
	var out []string
	var err error
	a.Fleet.Read(func(f fleet.State) {
		name := a.Model
		if a.Version != 1 {
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
//	1  ps:0, ps:1, ... of Model and the server type asked for
//	2  {model}:ps:0, ... of every model and the server type asked for
//	3  {model}:ps_0, {model}:entry, ... of every model, whatever the type
func (a *Service) HeartBeat(_ context.Context, in *agentpb.HeartBeatRequest) (*agentpb.HeartBeatResponse, error) {
	version := a.Version
	if version == 0 {
		version = 3
		if a.Model != "" {
			version = 1
		}
	}
	kind, ok := serverType(in.GetServerType())
	if !ok && version != 3 {
		return nil, status.Errorf(codes.InvalidArgument, "server_type %d is unknown: ask for PS, ENTRY or DENSE", in.GetServerType())
	}
	out := map[string]*agentpb.AddressList{}
	a.Fleet.Read(func(f fleet.State) {
		a.each(f, func(r *replica.Replica, addr string) {
			var key string
			switch {
			case version == 3:
				key = r.GetModelName() + ":" + r.SubModel()
			case r.GetServerType() != kind:
				return
			case version == 2:
				key = fmt.Sprintf("%s:%s:%d", r.GetModelName(), kind, r.GetTask())
			case r.GetModelName() != a.Model:
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
func (a *Service) GetResource(ctx context.Context, _ *agentpb.GetResourceRequest) (*agentpb.GetResourceResponse, error) {
	if a.Version == 1 {
		return &agentpb.GetResourceResponse{}, nil
	}
	out := &agentpb.GetResourceResponse{Address: a.Addr(), ShardId: -1, ReplicaId: -1, Cpu: -1, Network: -1, WorkLoad: -1}
	a.Fleet.Read(func(f fleet.State) {
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
func (a *Service) each(s fleet.State, f func(r *replica.Replica, addr string)) {
	for _, r := range s.Available("") {
		if a.DCAware && !s.Near(r, a.IDC, a.Cluster) {
			continue
		}
		addr := fleet.Address(r, a.Archon, a.Family)
		if addr == "" && a.Version == 0 {
			addr = fleet.Address(r, !a.Archon, a.Family)
		}
		if addr != "" {
			f(r, addr)
		}
	}
}

// modelOf finds the model that a request means.
func (a *Service) modelOf(f fleet.State, asked string) (string, error) {
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
	case a.Model != "":
		return a.Model, nil
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

// drain is how long calls in progress may take to end at a stop.
const drain = 2 * time.Second

// Serve answers on ln, over TLS unless keys are nil, until ctx ends.
func (a *Service) Serve(ctx context.Context, ln net.Listener, keys *tls.Config) error {
	opts := []grpc.ServerOption{grpc.MaxRecvMsgSize(64 << 10)}
	if keys != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(keys)))
	}
	srv := grpc.NewServer(opts...)
	agentpb.RegisterAgentServiceServer(srv, a)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("agent service: %w", err)
	case <-ctx.Done():
	}
	kill := time.AfterFunc(drain, srv.Stop)
	defer kill.Stop()
	srv.GracefulStop()
	<-failed
	return nil
}
