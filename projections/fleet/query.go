package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/replica"
)

// Family is which addresses come first where a replica has both.
type Family int

// The families. Each falls back to the other.
const (
	IPv4 Family = iota
	IPv6
)

// Address is where r takes requests: at its gRPC address, or, with archon, at its archon
// address, of the preferred family if it has one of it. An address on which nobody can
// be dialled (0.0.0.0 and [::]) counts as missing; "" when all are.
func Address(r *replica.Replica, archon bool, prefer Family) string {
	v4, v6 := r.GetGrpcAddress(), r.GetGrpcAddressIpv6()
	if archon {
		v4, v6 = r.GetArchonAddress(), r.GetArchonAddressIpv6()
	}
	if prefer == IPv6 {
		v4, v6 = v6, v4
	}
	for _, addr := range []string{v4, v6} {
		if addr != "" && !strings.HasPrefix(addr, "0.0.0.0") && !strings.HasPrefix(addr, "[::]") {
			return addr
		}
	}
	return ""
}

// Available are the replicas of a model (of every model for "") that take traffic, by
// model, type, task and number. What is returned is shared with the view: it is read,
// never changed.
func (s State) Available(model string) []*replica.Replica {
	var out []*replica.Replica
	for _, r := range s.Replicas {
		if x := r.Replica.V; r.Alive && x.GetStat() == replica.State_AVAILABLE && (model == "" || x.GetModelName() == model) {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(x, y *replica.Replica) int {
		return cmp.Or(cmp.Compare(x.GetModelName(), y.GetModelName()), cmp.Compare(x.GetServerType(), y.GetServerType()),
			cmp.Compare(x.GetTask(), y.GetTask()), cmp.Compare(x.GetReplica(), y.GetReplica()), cmp.Compare(x.GetDataCenter(), y.GetDataCenter()))
	})
	return out
}

// Near says whether a replica is in a data centre and cluster, whose names count without
// their case: its own {idc}:{cluster} if it has one, which is all that is known of a foreign
// agent's, else its container's. Empty names match everything.
func (s State) Near(r *replica.Replica, idc, cluster string) bool {
	in, at, told := strings.Cut(r.GetDataCenter(), ":")
	if !told {
		c := s.Containers[r.GetContainer()].Container.V
		in, at = c.GetIdc(), c.GetCluster()
	}
	return (idc == "" || strings.EqualFold(in, idc)) && (cluster == "" || strings.EqualFold(at, cluster))
}

// Started says whether each of the tasks 0 to n-1 of a model's type has a replica that
// takes traffic in the data centre: before that, an entry would answer with errors.
func (s State) Started(model, serverType string, n int, idc, cluster string) bool {
	have := map[int32]bool{}
	for _, r := range s.Available(model) {
		if r.GetServerType() == serverType && r.GetTask() >= 0 && int(r.GetTask()) < n && s.Near(r, idc, cluster) {
			have[r.GetTask()] = true
		}
	}
	return len(have) == n
}

// Target is a replica that takes parameters.
type Target struct {
	IDC, Cluster string
	Replica      int32
}

// Targets are those of one task by address, for whoever pushes parameters to them.
func (s State) Targets(model, serverType string, task int32, prefer Family) map[string]Target {
	out := map[string]Target{}
	for _, r := range s.Available(model) {
		addr := Address(r, false, prefer)
		if r.GetServerType() != serverType || r.GetTask() != task || addr == "" {
			continue
		}
		c := s.Containers[r.GetContainer()].Container.V
		out[addr] = Target{IDC: c.GetIdc(), Cluster: c.GetCluster(), Replica: r.GetReplica()}
	}
	return out
}
