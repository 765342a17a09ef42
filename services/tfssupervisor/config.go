package tfssupervisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
)

// Config of one supervisor. Container is required, the rest has defaults.
type Config struct {
	// Container is this agent's id in the fleet, such as a pod's name. Required.
	Container string
	// Shard is the shard group the container offers itself for; -1: any. Replica is
	// its number within the group.
	Shard   int
	Replica int
	// ServerType is what the container takes: "entry", "ps", or "" for anything.
	ServerType string
	// Cluster and IDC are passed on to whoever chooses replicas by distance.
	Cluster string
	IDC     string
	// Host is the name under which model-sync reports its copies for this machine.
	// Default: the host name.
	Host string
	// Command is the command line of the server process for [ExecLauncher]; empty: the
	// caller hands in a launcher of its own.
	Command []string
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

// Register binds the fields to flags of the same names, and sets the defaults.
func (c *Config) Register(fs *pflag.FlagSet) {
	c.Shard = -1
	c.setDefaults()
	fs.StringVar(&c.Container, "container", c.Container, "container `id` in the fleet")
	fs.IntVar(&c.Shard, "shard", c.Shard, "shard group offered; -1: any")
	fs.IntVar(&c.Replica, "replica", c.Replica, "replica number within the group")
	fs.StringVar(&c.ServerType, "server-type", c.ServerType, "what the container takes: entry, ps; empty: anything")
	fs.StringVar(&c.Cluster, "cluster", c.Cluster, "cluster name")
	fs.StringVar(&c.IDC, "idc", c.IDC, "data centre name")
	fs.StringVar(&c.Host, "host", c.Host, "host `name` under which model-sync reports copies")
	fs.StringSliceVar(&c.Command, "command", c.Command, "server command line, comma separated; empty: the built-in model server")
	fs.StringVar(&c.Dir, "server-dir", c.Dir, "working `folder` of the server process")
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "`folder` of view snapshots; empty: none")
	fs.Int64Var(&c.Memory, "memory", c.Memory, "`bytes` offered to models; 0: what is free")
	fs.DurationVar(&c.Heartbeat, "heartbeat", c.Heartbeat, "time between heartbeats")
	fs.DurationVar(&c.Poll, "poll", c.Poll, "time between looks at the server's models")
	fs.DurationVar(&c.Backoff, "backoff", c.Backoff, "first wait before a dead server is started again")
	fs.DurationVar(&c.MaxBackoff, "max-backoff", c.MaxBackoff, "longest wait before a dead server is started again")
	fs.DurationVar(&c.Drain, "drain", c.Drain, "time a stop may take")
}

func (c *Config) setDefaults() {
	if c.Host == "" {
		c.Host, _ = os.Hostname()
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 500 * time.Millisecond
	}
	if c.Poll == 0 {
		c.Poll = 150 * time.Millisecond
	}
	if c.Backoff == 0 {
		c.Backoff = 100 * time.Millisecond
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = 10 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 5 * time.Second
	}
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
	if c.ServerType != "" && c.ServerType != "entry" && c.ServerType != "ps" {
		complain("--server-type is %q; want entry, ps, or nothing for anything", c.ServerType)
	}
	if c.Replica < 0 {
		complain("--replica is %d; want 0 or more", c.Replica)
	}
	if c.Memory < 0 {
		complain("--memory is %d; want 0 or more bytes", c.Memory)
	}
	for flag, d := range map[string]time.Duration{"--heartbeat": c.Heartbeat, "--poll": c.Poll, "--backoff": c.Backoff,
		"--max-backoff": c.MaxBackoff, "--drain": c.Drain} {
		if d < 0 {
			complain("%s is %v; want a positive duration", flag, d)
		}
	}
	return errors.Join(errs...)
}
