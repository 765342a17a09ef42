package tfssupervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/mtls"
)

// Config of one supervisor. Container is required, the rest has defaults.
type Config struct {
	// Container is this agent's id in the fleet. Required. Default: MY_POD_NAME.
	Container string
	// Shard is the shard group the container offers itself for; -1: any. Replica is
	// its number within the group; -1: a number drawn from the pod's name, or from
	// Container. Flags default to SHARD_ID and REPLICA_ID, or else -1. ShardNum is of how
	// many groups it is one, for LayoutFilters. Default 1, or what MONOLITH_HOST_SHARD_N
	// or byterec_host_shard_n says.
	Shard    int
	Replica  int
	ShardNum int
	// ServerType is what the container takes: "entry", "ps", "dense", or "" for anything but
	// dense, which the built-in server does not know.
	ServerType string
	// Cluster and IDC are passed on, in lower case, to whoever chooses replicas by
	// distance. Defaults: TCE_LOGICAL_CLUSTER, TCE_CLUSTER or TCE_PHYSICAL_CLUSTER, and
	// TCE_INTERNAL_IDC. DCAware has
	// replicas registered below {idc}:{cluster}, which are then required.
	Cluster string
	IDC     string
	DCAware bool
	// PSM is the service name by which foreign agents know this one's cluster. Default:
	// TCE_PSM.
	PSM string
	// HostIP and HostIPv6 are this host's addresses, told to others where the server
	// listens on all of them. Defaults: MY_HOST_IP or MY_POD_IP, and MY_HOST_IPV6; without
	// any of those, this machine's own IPv4 address.
	HostIP   string
	HostIPv6 string
	// ArchonAddress and AgentAddress are where the server answers archon's protocol, and
	// where an agent service speaks for this container: host:port, or :port for HostIP.
	// Default: nowhere.
	ArchonAddress string
	AgentAddress  string
	// Layout makes the container serve what a layout offers instead of what the
	// publisher plans: its name, or its path /{bzid}/layouts/{name}, or that of any other
	// node of ZooKeeper's tree, whose children then are its entries; for that the whole
	// tree of the namespace is followed. LayoutFilters are
	// lines "{pattern}; {condition}" that say which sub-models it takes; none: all.
	Layout        string
	LayoutFilters []string
	// Fixed is set for a server that reads what it serves from a file of its own, once: it is
	// watched and told of, and never given another configuration.
	Fixed []FixedModel
	// ConfigFile is a file that the server reads its configuration from again and again: each
	// is written there as well, or the server would take it back. "": there is none.
	ConfigFile string
	// GRPCPort and HTTPPort are where the server's command line has it listen, on all
	// addresses; it is ready once the first answers. 0: it writes an address file.
	GRPCPort, HTTPPort int
	// LogFile is the server's log instead of modelserver.log in Dir; LogInherited has the server
	// write where this process writes. WorkDir is the server's working folder instead of Dir.
	// ServerEnv are further variables of its environment.
	LogFile      string
	LogInherited bool
	WorkDir      string
	ServerEnv    []string
	// Once ends the supervisor when its server has ended or does not start, in place of
	// starting it again. Gate, if any, is waited for before that.
	Once bool
	Gate func(context.Context) error
	// Getenv reads the environment for the defaults. Default: os.Getenv.
	Getenv func(string) string
	// Host is the name under which model-sync reports its copies for this machine.
	// Default: the host name.
	Host string
	// Command is the command line of the server process for [ExecLauncher]; empty: the
	// caller hands in a launcher of its own.
	Command []string
	// StartTimeout is how long a start of the server may take. Default 1h, since it may
	// have to read large models first. HangTimeout is how long a server may answer nothing
	// at all before it is killed and started again. Default 1m.
	StartTimeout time.Duration
	HangTimeout  time.Duration
	// LogBytes is the size at which the server's log is put aside and begun anew; two old
	// ones are kept. Default 64 MiB.
	LogBytes int64
	// ServerArgs are further arguments of the server's command line, be it given or the
	// built-in one: where it listens, such as --grpc=:8500. What listens on all addresses
	// is told of by HostIP.
	ServerArgs []string
	// GRPCTLS are the certificates of the server's gRPC port, by which it is configured; the
	// built-in server is handed them. Default: Env.TLS.
	GRPCTLS mtls.Files
	// Dir is the working folder of the server process, and of its address file and
	// log. Default: a folder of its own below the temporary folder.
	Dir string
	// SnapshotDir keeps the views' snapshots; empty: none.
	SnapshotDir string
	// Memory is what is offered to models, in bytes; 0: what the machine or its
	// control group has free.
	Memory int64
	// Heartbeat is the time between two heartbeats, Poll between two looks at the
	// server's models. Defaults 500 ms and 150 ms.
	Heartbeat time.Duration
	Poll      time.Duration
	// Backoff is the first wait before a dead server is started again; it doubles up
	// to MaxBackoff. Defaults 100 ms and 10 s.
	Backoff    time.Duration
	MaxBackoff time.Duration
	// Drain is how long a stop may take. Default 5 s.
	Drain time.Duration
}

// FixedModel is a model in the server's own file: what it is in the fleet, and its name there.
type FixedModel struct{ Model, Sub, Name string }

// Register binds the fields to flags of the same names, and sets the defaults.
func (c *Config) Register(fs *pflag.FlagSet) {
	c.Shard, c.Replica = -1, -1
	*c = c.withDefaults()
	for name, field := range map[string]*int{"SHARD_ID": &c.Shard, "REPLICA_ID": &c.Replica} {
		if n, err := strconv.Atoi(c.Getenv(name)); err == nil && n >= 0 && n <= math.MaxInt32 {
			*field = n
		}
	}
	fs.StringVar(&c.Container, "container", c.Container, "container `id` in the fleet")
	fs.IntVar(&c.Shard, "shard", c.Shard, "shard group offered; -1: any")
	fs.IntVar(&c.Replica, "replica", c.Replica, "replica number within the group; -1: drawn from the pod's name or the container's id")
	fs.IntVar(&c.ShardNum, "shard-num", c.ShardNum, "number of shard groups, for --layout-filter")
	fs.StringVar(&c.ServerType, "server-type", c.ServerType, "what the container takes: entry, ps, dense; empty: entry and ps")
	fs.StringVar(&c.Cluster, "cluster", c.Cluster, "cluster name")
	fs.StringVar(&c.IDC, "idc", c.IDC, "data centre name")
	fs.BoolVar(&c.DCAware, "dc-aware", c.DCAware, "register replicas below {idc}:{cluster}")
	fs.StringVar(&c.PSM, "psm", c.PSM, "service `name` by which other agents know this cluster")
	fs.StringVar(&c.HostIP, "host-ip", c.HostIP, "`address` told to others where the server listens on all of them")
	fs.StringVar(&c.HostIPv6, "host-ipv6", c.HostIPv6, "its IPv6 `address`")
	fs.StringVar(&c.ArchonAddress, "archon-address", c.ArchonAddress, "`host:port` where the server answers archon's protocol")
	fs.StringVar(&c.AgentAddress, "agent-address", c.AgentAddress, "`host:port` of the agent service that speaks for this container")
	fs.StringVar(&c.Layout, "layout", c.Layout, "`layout` to serve, by name or path; empty: what the publisher plans")
	fs.StringArrayVar(&c.LayoutFilters, "layout-filter", c.LayoutFilters, "`line` such as 'ps_{i}; i % ${shard_num} == ${shard_id}' that says what of the layout is taken; may be repeated")
	fs.StringVar(&c.Host, "host", c.Host, "host `name` under which model-sync reports copies")
	fs.StringSliceVar(&c.Command, "command", c.Command, "server command line, comma separated; empty: the built-in model server")
	fs.StringArrayVar(&c.ServerArgs, "server-arg", c.ServerArgs, "`argument` added to the server's command line, such as --grpc=:8500; may be repeated")
	c.GRPCTLS.RegisterPort(fs, "grpc-tls", "the built-in server's gRPC port, by which it is configured")
	fs.DurationVar(&c.StartTimeout, "start-timeout", c.StartTimeout, "time that a start of the server may take")
	fs.DurationVar(&c.HangTimeout, "hang-timeout", c.HangTimeout, "time without any answer after which the server is killed and started again")
	fs.Int64Var(&c.LogBytes, "server-log-bytes", c.LogBytes, "`bytes` after which the server's log is put aside; two old ones are kept")
	fs.StringVar(&c.Dir, "server-dir", c.Dir, "working `folder` of the server process")
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "`folder` of view snapshots; empty: none")
	fs.Int64Var(&c.Memory, "memory", c.Memory, "`bytes` offered to models; 0: what is free")
	fs.DurationVar(&c.Heartbeat, "heartbeat", c.Heartbeat, "time between heartbeats")
	fs.DurationVar(&c.Poll, "poll", c.Poll, "time between looks at the server's models")
	fs.DurationVar(&c.Backoff, "backoff", c.Backoff, "first wait before a dead server is started again")
	fs.DurationVar(&c.MaxBackoff, "max-backoff", c.MaxBackoff, "longest wait before a dead server is started again")
	fs.DurationVar(&c.Drain, "drain", c.Drain, "time a stop may take")
}

func (c Config) withDefaults() Config {
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	c.Getenv = agentconf.InMLService(c.Getenv)
	for field, names := range map[*string][]string{
		&c.Cluster: {"TCE_LOGICAL_CLUSTER", "TCE_CLUSTER", "TCE_PHYSICAL_CLUSTER"}, &c.IDC: {"TCE_INTERNAL_IDC"}, &c.PSM: {"TCE_PSM"},
		&c.Container: {"MY_POD_NAME"}, &c.HostIP: {"MY_HOST_IP", "MY_POD_IP"}, &c.HostIPv6: {"MY_HOST_IPV6"},
	} {
		for _, name := range names {
			*field = cmp.Or(*field, c.Getenv(name))
		}
	}
	c.Cluster, c.IDC = strings.ToLower(c.Cluster), strings.ToLower(c.IDC)
	for _, name := range []string{"MONOLITH_HOST_SHARD_N", "byterec_host_shard_n"} {
		if n, err := strconv.Atoi(c.Getenv(name)); c.ShardNum == 0 && err == nil && n > 0 {
			c.ShardNum = n
		}
	}
	c.ShardNum = cmp.Or(c.ShardNum, 1)
	if c.Host == "" {
		c.Host, _ = os.Hostname()
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, 500*time.Millisecond)
	c.Poll = cmp.Or(c.Poll, 150*time.Millisecond)
	c.Backoff = cmp.Or(c.Backoff, 100*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 10*time.Second)
	c.StartTimeout = cmp.Or(c.StartTimeout, time.Hour)
	c.HangTimeout = cmp.Or(c.HangTimeout, time.Minute)
	c.LogBytes = cmp.Or(c.LogBytes, 64<<20)
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	return c
}

// Validate joins every complaint.
func (c *Config) Validate() error {
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("tfssupervisor: "+format, args...))
	}
	if c.Container == "" {
		complain("--container is empty; give this agent an id, such as the pod's name")
	}
	if c.Shard < -1 {
		complain("--shard is %d; want a shard, or -1 for any", c.Shard)
	}
	if !slices.Contains([]string{"", "entry", "ps", "dense"}, c.ServerType) {
		complain("--server-type is %q; want entry, ps, dense, or nothing for entry and ps", c.ServerType)
	}
	if c.Replica < -1 || c.Replica > math.MaxInt32 {
		complain("--replica is %d; want 0 or more, or -1 for one drawn from the container's id", c.Replica)
	}
	if c.ShardNum < 0 {
		complain("--shard-num is %d; want 1 or more", c.ShardNum)
	}
	if c.DCAware && (c.IDC == "" || c.Cluster == "" || strings.ContainsAny(c.IDC+c.Cluster, ":/")) {
		complain("--dc-aware makes {idc}:{cluster} of --idc %q and --cluster %q; give both, without colons and slashes", c.IDC, c.Cluster)
	}
	for flag, addr := range map[string]string{"--archon-address": c.ArchonAddress, "--agent-address": c.AgentAddress} {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			complain("%s %q: give host:port, or :port for --host-ip: %w", flag, addr, err)
		}
	}
	for flag, ip := range map[string]string{"--host-ip": c.HostIP, "--host-ipv6": c.HostIPv6} {
		if at := net.ParseIP(ip); ip != "" && (at == nil || (flag == "--host-ipv6") != (at.To4() == nil)) {
			complain("%s is %q; give an IP address of that family, without brackets", flag, ip)
		}
	}
	if len(c.LayoutFilters) > 0 && c.Layout == "" {
		complain("--layout-filter chooses from a layout; name it with --layout")
	}
	if _, err := c.compileFilters(); err != nil {
		complain("--layout-filter: %w", err)
	}
	if c.Memory < 0 || c.LogBytes < 0 {
		complain("--memory is %d and --server-log-bytes %d; want 0 or more bytes", c.Memory, c.LogBytes)
	}
	for flag, d := range map[string]time.Duration{"--heartbeat": c.Heartbeat, "--poll": c.Poll, "--backoff": c.Backoff,
		"--max-backoff": c.MaxBackoff, "--drain": c.Drain, "--start-timeout": c.StartTimeout, "--hang-timeout": c.HangTimeout} {
		if d < 0 {
			complain("%s is %v; want a positive duration", flag, d)
		}
	}
	return errors.Join(errs...)
}
