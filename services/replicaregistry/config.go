package replicaregistry

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/internal/agentservice"
)

// Config of the replica-registry.
type Config struct {
	// Listen is where the agent service (gRPC) answers, host:port; "" switches it off.
	Listen string
	// AgentTLS are the certificates of Listen. Default: Env.TLS.
	AgentTLS mtls.Files
	// InsecureAgent has Listen in plain text, beyond this machine, too. Default false.
	InsecureAgent bool
	// ZKListen is where the built-in ZooKeeper answers, host:port; "" switches it off.
	// As a flag it defaults to 127.0.0.1:2181.
	ZKListen string
	// ZK guards and bounds that port.
	ZK ZKPort
	// Mirror is a real ensemble that shows the same tree.
	Mirror ZKMirror
	// SnapshotDir keeps snapshots of the views; default: none.
	SnapshotDir string
	// Lease is how long a container lives after its last heartbeat. Default 3s.
	Lease time.Duration
	// AgentModel makes the agent service speak the first agent's way, for this one
	// model: HeartBeat answers with keys like ps:0. Default "": keys like movies:ps_0,
	// for every model.
	AgentModel string
	// AgentVersion is whose agent service it is: 1, 2 or 3 are the original's, 0 answers
	// HeartBeat as 1 does with AgentModel and as 3 without, and everything else as 2.
	// Default 0.
	AgentVersion int
	// AgentArchon has the agent service answer with archon addresses, for servers that
	// speak no gRPC. Default false.
	AgentArchon bool
	// AddressFamily is which addresses come first where a replica has both: ipv4, ipv6,
	// or "" for ipv4 unless the environment names only an IPv6 host. Default "".
	AddressFamily string
	// MetricPrefix stands before serving_model.*; default: MONOLITH_METRIC_PREFIX, else
	// TCE_PSM, else data.monolith_serving.{model}.
	MetricPrefix string
	// Getenv reads the environment; default os.Getenv.
	Getenv func(string) string
	// DCAware restricts the agent service to replicas whose container is in IDC and
	// Cluster. Default false.
	DCAware bool
	IDC     string
	Cluster string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Register binds the flags, after it has put defaults where nothing is set.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.ZKListen == "" {
		c.ZKListen = "127.0.0.1:2181"
	}
	fs.StringVar(&c.Listen, "listen", c.Listen, "address of the agent service (gRPC); empty: off")
	c.AgentTLS.RegisterPort(fs, "agent-tls", "the agent service")
	fs.BoolVar(&c.InsecureAgent, "insecure-agent", c.InsecureAgent, "serve the agent service in plain text, beyond this machine, too")
	fs.StringVar(&c.ZKListen, "zk-listen", c.ZKListen, "address of the ZooKeeper port; empty: off")
	c.ZK.register(fs)
	c.Mirror.register(fs)
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the views (default: none)")
	fs.DurationVar(&c.Lease, "lease", c.Lease, "how long a container lives after its last heartbeat")
	fs.StringVar(&c.AgentModel, "agent-model", c.AgentModel, "answer HeartBeat for this one model, with keys like ps:0 (default: every model, keys like movies:ps_0)")
	fs.IntVar(&c.AgentVersion, "agent-version", c.AgentVersion, "whose agent service: 1, 2 or 3 as the original's; 0: all of them together")
	fs.BoolVar(&c.AgentArchon, "agent-archon", c.AgentArchon, "answer the agent service with archon addresses instead of gRPC ones")
	fs.StringVar(&c.AddressFamily, "address-family", c.AddressFamily, "ipv4 or ipv6: which address comes first (default: ipv4 unless the environment names only an IPv6 host)")
	fs.StringVar(&c.MetricPrefix, "metric-prefix", c.MetricPrefix, "stands before serving_model.* (default: MONOLITH_METRIC_PREFIX, TCE_PSM or data.monolith_serving.{model})")
	fs.BoolVar(&c.DCAware, "dc-aware", c.DCAware, "answer with replicas of --idc and --cluster only")
	fs.StringVar(&c.IDC, "idc", c.IDC, "own data centre")
	fs.StringVar(&c.Cluster, "cluster", c.Cluster, "own cluster")
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	var errs []error
	for flag, addr := range map[string]string{"listen": c.Listen, "zk-listen": c.ZKListen} {
		if addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("--%s %q: give host:port, such as 127.0.0.1:0: %w", flag, addr, err))
		}
	}
	errs = append(errs, c.ZK.validate()...)
	errs = append(errs, c.Mirror.validate(c.ZKListen)...)
	if c.Lease != 0 && (c.Lease < 100*time.Millisecond || c.Lease > 10*time.Minute) {
		errs = append(errs, fmt.Errorf("--lease %v: give 100ms to 10m", c.Lease))
	}
	if c.DCAware && (c.IDC == "" || c.Cluster == "") {
		errs = append(errs, errors.New("--dc-aware needs --idc and --cluster"))
	}
	switch {
	case c.AgentVersion < 0 || c.AgentVersion > 3:
		errs = append(errs, fmt.Errorf("--agent-version %d: give 1, 2 or 3, or 0 for all of them together", c.AgentVersion))
	case c.AgentVersion == 1 && c.AgentModel == "":
		errs = append(errs, errors.New("--agent-version 1 needs --agent-model: it answers for one model"))
	}
	switch c.AddressFamily {
	case "", "ipv4", "ipv6":
	default:
		errs = append(errs, fmt.Errorf("--address-family %q: give ipv4 or ipv6", c.AddressFamily))
	}
	return errors.Join(errs...)
}

// agentPort is the agent service's; shared are the certificates of ports that have none of
// their own.
func (c Config) agentPort(shared mtls.Files) mtls.Port {
	return mtls.Port{Role: source, Name: "the agent service", Addr: c.Listen, Own: c.AgentTLS, Shared: shared, Keys: "--agent-tls", Insecure: c.InsecureAgent, Switch: "--insecure-agent"}
}

// family is the configured one, or that of this host.
func (c Config) family() fleet.Family {
	if c.AddressFamily == "ipv6" {
		return fleet.IPv6
	}
	if c.AddressFamily == "" {
		return agentservice.FamilyOf(c.Getenv)
	}
	return fleet.IPv4
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, 3*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.MetricPrefix == "" {
		c.MetricPrefix = cmp.Or(c.Getenv("MONOLITH_METRIC_PREFIX"), c.Getenv("TCE_PSM"))
	}
	return c
}
