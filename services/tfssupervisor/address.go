package tfssupervisor

import (
	"crypto/md5"
	"encoding/binary"
	"net"

	"github.com/monolith-go/monolith/events/container"
)

// addresses are those that heartbeats tell: of the server, and of what stands beside it.
type addresses struct {
	grpc, http, rows, archon, agent string
	grpc6, archon6                  string
}

// addresses puts this host's own in place of one that means "everywhere", on which
// nobody can be dialled. Only a server that listens everywhere is told of by its IPv6
// address as well.
func (c *Config) addresses(srv *Server) addresses {
	return addresses{
		grpc: onHost(srv.GRPCAddr, c.HostIP), http: onHost(srv.HTTPAddr, c.HostIP), rows: onHost(srv.RowsAddr, c.HostIP),
		archon: onHost(c.ArchonAddress, c.HostIP), agent: onHost(c.AgentAddress, c.HostIP),
		grpc6: on6(srv.GRPCAddr, c.HostIPv6), archon6: on6(c.ArchonAddress, c.HostIPv6),
	}
}

// onHost leaves addr as it is unless it means every address of this host.
func onHost(addr, host string) string {
	port, everywhere := everywhere(addr)
	if !everywhere || host == "" {
		return addr
	}
	return net.JoinHostPort(host, port)
}

func on6(addr, host string) string {
	port, everywhere := everywhere(addr)
	if !everywhere || host == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// everywhere is the port of an address without a host, or with 0.0.0.0 or [::].
func everywhere(addr string) (port string, ok bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", false
	}
	ip := net.ParseIP(host)
	return port, host == "" || ip != nil && ip.IsUnspecified()
}

// container is what heartbeats say of this agent.
func (s *Supervisor) container(at addresses) *container.Container {
	return &container.Container{
		Id: s.cfg.Container, Kind: "serving", Shard: int32(s.cfg.Shard), Replica: s.cfg.replica(),
		Cluster: s.cfg.Cluster, Idc: s.cfg.IDC, DcAware: s.cfg.DCAware, Psm: s.cfg.PSM, ServerType: s.cfg.ServerType,
		GrpcAddress: at.grpc, HttpAddress: at.http, RowsAddress: at.rows, ArchonAddress: at.archon, AgentAddress: at.agent,
		GrpcAddressIpv6: at.grpc6, ArchonAddressIpv6: at.archon6,
		LayoutPath: s.layoutPath, LayoutFilters: s.filters.Lines(), Host: s.cfg.Host,
	}
}

// replica is the configured number, or one drawn from the container's id by the rule
// that agents used for their pod's name, kept within 31 bits.
func (c *Config) replica() int32 {
	if c.Replica >= 0 {
		return int32(c.Replica)
	}
	sum := md5.Sum([]byte(c.Container))
	return int32(binary.BigEndian.Uint32(sum[6:10]) & 0x7fffffff) // they took sum[5:10]
}
