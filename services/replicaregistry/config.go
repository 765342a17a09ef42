package replicaregistry

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
)

// Config of the replica-registry.
type Config struct {
	// Listen is where the agent service (gRPC) answers, host:port; "" switches it off.
	Listen string
	// ZKListen is where the built-in ZooKeeper answers, host:port; "" switches it off.
	// As a flag it defaults to 127.0.0.1:2181.
	ZKListen string
	// SnapshotDir keeps snapshots of the views; default: none.
	SnapshotDir string
	// Lease is how long a container lives after its last heartbeat. Default 3s.
	Lease time.Duration
	// AgentModel makes the agent service speak the first agent's way, for this one
	// model: HeartBeat answers with keys like ps:0. Default "": keys like movies:ps_0,
	// for every model.
	AgentModel string
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
	fs.StringVar(&c.ZKListen, "zk-listen", c.ZKListen, "address of the ZooKeeper port; empty: off")
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the views (default: none)")
	fs.DurationVar(&c.Lease, "lease", c.Lease, "how long a container lives after its last heartbeat")
	fs.StringVar(&c.AgentModel, "agent-model", c.AgentModel, "answer HeartBeat for this one model, with keys like ps:0 (default: every model, keys like movies:ps_0)")
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
	if c.Lease != 0 && (c.Lease < 100*time.Millisecond || c.Lease > 10*time.Minute) {
		errs = append(errs, fmt.Errorf("--lease %v: give 100ms to 10m", c.Lease))
	}
	if c.DCAware && (c.IDC == "" || c.Cluster == "") {
		errs = append(errs, errors.New("--dc-aware needs --idc and --cluster"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = 3 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
