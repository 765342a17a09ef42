package ps

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/machine"
)

// Config of one parameter-server shard. New fills in the defaults named here.
type Config struct {
	// Job is the training job, Model the declared model that it trains.
	Job   string
	Model string
	// Shard is this process's, from 0 to Shards-1. Default of Shards: 1.
	Shard  int
	Shards int
	// Dir holds checkpoints in model.ckpt-<id>/ps_<i>/ and exports in
	// exported_models/ps_<i>/<version>/.
	Dir string
	// SnapshotDir keeps snapshots of the views. Default: none.
	SnapshotDir string

	// Listen is where rows are served: host:port or unix:///path. Default 127.0.0.1:0.
	Listen string
	// Advertise is what others connect to. Default: the address listened on.
	Advertise string
	// GRPC is where the same is served over gRPC: host:port or unix:///path. Default: nowhere.
	GRPC string
	// GRPCTLS are the certificates of GRPC. Default: those of rows, or else Env.TLS.
	GRPCTLS mtls.Files
	// InsecureGRPC has GRPC in plain text, beyond this machine, too.
	InsecureGRPC bool
	// Insecure allows Listen to be reachable from other machines, although
	// without certificates they are neither encrypted nor authenticated.
	Insecure bool

	// SyncInterval is how often touched rows are published. Default 50 ms.
	SyncInterval time.Duration
	// Clock says when they are, instead of SyncInterval: for measurements in which intervals
	// have no length. Default: none.
	Clock <-chan time.Time
	// DenseEvery publishes dense variables with every n-th publication that holds new
	// applies. Default 2.
	DenseEvery int
	// DenseRate is how many bytes a second the dense variables of the model, on all shards
	// together, are published with at most: large ones go out less often. Default 8 MiB.
	DenseRate int64
	// Deterministic makes the shard answer lookups and take applies turn by turn, and
	// roll back with the other shards of the job.
	Deterministic bool
	// ClockStep bounds how far one apply moves the record time by which a table's rows
	// expire, whatever time its records carry: whole seconds, the same on every shard of a
	// job. Default 24 h.
	ClockStep time.Duration
	// HoldTimeout is how long a checkpoint cut may hold applies back. Default 5 s.
	HoldTimeout time.Duration
	// HeartbeatInterval is how often the replica-registry hears of this task. Default
	// 500 ms.
	HeartbeatInterval time.Duration
	// Health says how the machine is looked at. Default: never; by flags every 30 s.
	Health machine.Config
	// TransferTLS are the certificates that the shard shows hosts which have a part of a checkpoint that it
	// lacks. Default: those of all ports.
	TransferTLS mtls.Files
	// InsecureTransfer has parts fetched in plain text, from other machines, too.
	InsecureTransfer bool
	// Drain bounds a clean stop. Default 5 s.
	Drain time.Duration
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 1)
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.DenseEvery = cmp.Or(c.DenseEvery, 2)
	c.DenseRate = cmp.Or(c.DenseRate, 8<<20)
	c.SyncInterval = cmp.Or(c.SyncInterval, 50*time.Millisecond)
	c.HoldTimeout = cmp.Or(c.HoldTimeout, 5*time.Second)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 500*time.Millisecond)
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	c.ClockStep = cmp.Or(c.ClockStep, 24*time.Hour)
	return c
}

// Register binds the flags; what the fields hold is their default.
func (c *Config) Register(fs *pflag.FlagSet) {
	*c = c.withDefaults()
	fs.StringVar(&c.Job, "job", c.Job, "training job")
	fs.StringVar(&c.Model, "model", c.Model, "declared model that the job trains")
	fs.IntVar(&c.Shard, "shard", c.Shard, "this shard, from 0")
	fs.IntVar(&c.Shards, "shards", c.Shards, "shards of the job")
	fs.StringVar(&c.Dir, "dir", c.Dir, "folder for checkpoints and exports, the same path as the job's trainers have; each machine may have a disk of its own there")
	fs.StringVar(&c.SnapshotDir, "snapshot-dir", c.SnapshotDir, "folder for snapshots of the views (default: none)")
	fs.StringVar(&c.Listen, "listen", c.Listen, "where rows are served: host:port or unix:///path")
	fs.StringVar(&c.Advertise, "advertise", c.Advertise, "address others connect to (default: the one listened on)")
	fs.StringVar(&c.GRPC, "grpc", c.GRPC, "where the gRPC API is served: host:port or unix:///path (default: nowhere)")
	c.GRPCTLS.RegisterPort(fs, "grpc-tls", "the gRPC port (default: that of --rows-tls-cert)")
	fs.BoolVar(&c.InsecureGRPC, "insecure-grpc", c.InsecureGRPC, "serve gRPC in plain text, beyond this machine, too, though whoever reaches it may change the model")
	fs.BoolVar(&c.Insecure, "insecure-rows", c.Insecure, "serve rows beyond this machine, though without --rows-tls-cert they are neither encrypted nor authenticated")
	fs.DurationVar(&c.SyncInterval, "sync-interval", c.SyncInterval, "how often touched rows are published")
	fs.IntVar(&c.DenseEvery, "dense-every", c.DenseEvery, "publish dense variables with every n-th publication that holds new applies")
	fs.Int64Var(&c.DenseRate, "dense-rate", c.DenseRate, "bytes of dense variables, on all shards together, that are published a second at most")
	fs.BoolVar(&c.Deterministic, "deterministic", c.Deterministic, "learn turn by turn; a lost shard rolls all back to the newest checkpoint")
	fs.DurationVar(&c.ClockStep, "clock-step", c.ClockStep, "how far one apply may move the record time by which rows expire")
	fs.DurationVar(&c.HoldTimeout, "hold-timeout", c.HoldTimeout, "how long a checkpoint cut may hold applies back")
	fs.DurationVar(&c.HeartbeatInterval, "heartbeat-interval", c.HeartbeatInterval, "how often the replica-registry hears of this task")
	c.Health.Register(fs)
	c.TransferTLS.RegisterPort(fs, "transfer-tls", "fetches of checkpoints from other hosts, which both ends show")
	fs.BoolVar(&c.InsecureTransfer, "insecure-transfer", c.InsecureTransfer, "fetch checkpoints in plain text, from other machines, too: who answers in a host's place may send another model")
	fs.DurationVar(&c.Drain, "drain", c.Drain, "longest a clean stop takes")
}

// Validate joins every complaint; zero values stand for their defaults.
func (c *Config) Validate() error {
	d := c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(d.Job != "", "no job: name the training job with --job")
	check(d.Model != "", "no model: name the declared model with --model")
	check(d.Dir != "", "no folder for checkpoints: name one with --dir")
	check(d.Shards >= 1 && d.Shards <= 1<<16, "%d shards: give 1 to 65536", d.Shards)
	check(d.Shard >= 0 && d.Shard < max(d.Shards, 1), "shard %d of %d does not exist: shards count from 0", d.Shard, d.Shards)
	check(d.SyncInterval >= time.Millisecond, "sync interval %v: give at least 1ms", d.SyncInterval)
	check(d.DenseEvery >= 1, "dense variables every %d publications: give at least 1", d.DenseEvery)
	check(d.DenseRate >= 1, "%d bytes of dense variables a second: give at least 1", d.DenseRate)
	check(d.ClockStep >= time.Second && d.ClockStep <= math.MaxInt32*time.Second, "clock step %v: give 1s to 68 years", d.ClockStep)
	check(d.HoldTimeout > 0, "hold time-out %v: give a positive one", d.HoldTimeout)
	check(d.HeartbeatInterval > 0, "heartbeat interval %v: give a positive one", d.HeartbeatInterval)
	check(d.Drain > 0, "drain %v: give a positive one", d.Drain)
	errs = append(errs, d.Health.Validate())
	network, address, err := rowwire.SplitAddr(d.Listen)
	if err != nil {
		errs = append(errs, err)
	} else if network == "tcp" {
		host, _, _ := net.SplitHostPort(address)
		ip := net.ParseIP(host)
		check(d.Advertise != "" || host != "" && (ip == nil || !ip.IsUnspecified()), "nobody can connect to %s: name a reachable address with --advertise", d.Listen)
	}
	if d.GRPC != "" {
		if _, _, err := rowwire.SplitAddr(d.GRPC); err != nil {
			errs = append(errs, fmt.Errorf("gRPC: %w", err))
		}
	}
	if d.Advertise != "" {
		if _, _, err := rowwire.SplitAddr(d.Advertise); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkpointPath is where the shard's part of a checkpoint lies, below Dir.
func (c *Config) checkpointPath(id int64) string {
	return filepath.FromSlash(checkpoint.Part(id, c.Shard))
}

// exportPath is where the shard's part of an export lies, below Dir.
func (c *Config) exportPath(version int64) string {
	return filepath.Join("exported_models", fmt.Sprintf("ps_%d", c.Shard), fmt.Sprint(version))
}
