package tfssupervisor

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"time"

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

// localIP is this machine's own IPv4 address, for clients elsewhere: what its name resolves
// to, or else the first of its interfaces' that is not loopback; "" where there is neither.
func localIP(ctx context.Context, resolve func(ctx context.Context, network, host string) ([]net.IP, error), interfaces func() ([]net.Addr, error)) string {
	usable := func(ip net.IP) bool { return ip.To4() != nil && ip.IsGlobalUnicast() }
	if name, err := os.Hostname(); err == nil {
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		if ips, err := resolve(ctx, "ip4", name); err == nil {
			if i := slices.IndexFunc(ips, usable); i >= 0 {
				return ips[i].String()
			}
		}
	}
	addrs, err := interfaces()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && usable(n.IP) {
			return n.IP.String()
		}
	}
	return ""
}

// resolveTimeout bounds the look-up of this machine's own name.
const resolveTimeout = 2 * time.Second

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

// replica is the configured number, or one drawn from the pod's name by the rule that
// agents have always used, kept within 31 bits. Without a pod's name it is the container's
// id, so that no two agents have the same.
func (c *Config) replica() int32 {
	if c.Replica >= 0 {
		return int32(c.Replica)
	}
	sum := md5.Sum([]byte(cmp.Or(c.Getenv("MY_POD_NAME"), c.Container)))
	return int32(binary.BigEndian.Uint32(sum[6:10]) & 0x7fffffff) // they took sum[5:10]
}
