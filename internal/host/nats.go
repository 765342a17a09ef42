package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/otlp"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/health"
)

// natsName is the name of the process that is a NATS server and nothing else.
const natsName = "nats"

// lookEvery is how often a NATS server's replicas are looked at.
const lookEvery = time.Second

// NATSProcess is an operating-system process that is the embedded NATS server alone, one of a
// cluster or by itself.
type NATSProcess struct {
	dir, listen, users string
	name               string
	maxStore           int64
	cluster            natsserver.Cluster
	level              string
	ports              struct {
		tls, nats, cluster        mtls.Files
		plainNATS, plainClustered bool
	}
	status     statusPort
	statusFile string
	otlp       otlp.Config
}

// NewNATSProcess binds its flags.
func NewNATSProcess(fs *pflag.FlagSet) *NATSProcess {
	p := new(NATSProcess)
	fs.StringVar(&p.dir, "dir", "monolith-nats", "`folder` of the streams")
	fs.StringVar(&p.listen, "listen", "127.0.0.1:4222", "listen `address` for clients")
	fs.StringVar(&p.name, "name", "", "server's `name`, another one for each of a cluster (default: the host's)")
	fs.StringVar(&p.users, "users", "", "`file` with the users and what each may do, such as users.conf of monolith auth init; empty: everybody may do everything")
	fs.Int64Var(&p.maxStore, "max-store", 32<<30, "most `bytes` on disk that all streams together may reserve")
	fs.StringVar(&p.cluster.Name, "cluster-name", "", "cluster's `name`, the same on all of its servers; empty: the server is alone")
	fs.StringVar(&p.cluster.Listen, "cluster-listen", "127.0.0.1:6222", "listen `address` for the cluster's other servers")
	fs.StringSliceVar(&p.cluster.Routes, "routes", nil, "`host:port` list of the --cluster-listen addresses of all servers")
	fs.DurationVar(&p.cluster.Drain, "drain", 10*time.Second, "time over which clients are sent to the other servers before this one ends")
	fs.StringVar(&p.level, "log-level", flags.Env("MONOLITH_LOG", "info"), "debug, info, warn or error (MONOLITH_LOG)")
	p.ports.tls.RegisterShared(fs)
	p.ports.nats.RegisterPort(fs, "nats-tls", "the port for clients")
	p.ports.cluster.Register(fs, "cluster-tls", "the connections between servers")
	fs.BoolVar(&p.ports.plainNATS, "insecure-nats", false, "have the port for clients in plain text, beyond this machine, too: whoever reaches it may state any fact")
	fs.BoolVar(&p.ports.plainClustered, "insecure-cluster", false, "have the port for servers in plain text, beyond this machine, too: whoever reaches it may change every stream")
	p.status.register(fs, "127.0.0.1:0", "")
	fs.StringVar(&p.statusFile, "status-file", "", "`file` that says pid and status address once the server is ready")
	p.otlp.Register(fs)
	return p
}

// config is the server's, once the flags make sense.
func (p *NATSProcess) config() (natsserver.Config, error) {
	cfg := natsserver.Config{Dir: p.dir, Users: p.users, MaxStore: p.maxStore, Cluster: p.cluster}
	var errs []error
	host, port, err := natsserver.HostPort(p.listen)
	if err != nil {
		errs = append(errs, fmt.Errorf("--listen %q: give host:port: %w", p.listen, err))
	}
	cfg.Host, cfg.Port = host, port
	if err := p.cluster.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--cluster-name, --cluster-listen, --routes and --drain: %w", err))
	}
	if p.dir == "" || p.maxStore < 64<<20 {
		errs = append(errs, fmt.Errorf("--dir %q must name a folder, and --max-store %d be at least 64 MiB", p.dir, p.maxStore))
	}
	machine, err := os.Hostname()
	if cfg.Name = cmp.Or(p.name, machine); cfg.Name == "" {
		errs = append(errs, fmt.Errorf("--name is missing and the host has none: %w", err))
	}
	cfg.TLS, err = mtls.Port{Role: natsName, Name: "clients", Addr: p.listen, Own: p.ports.nats, Shared: p.ports.tls, Keys: "--nats-tls",
		Insecure: p.ports.plainNATS, Switch: "--insecure-nats", Mutual: p.users == ""}.Config()
	errs = append(errs, err)
	cfg.Cluster.TLS, err = p.routeKeys()
	return cfg, errors.Join(append(errs, err)...)
}

// routeKeys are the TLS of both ends of a route, nil for plain text.
func (p *NATSProcess) routeKeys() (*tls.Config, error) {
	port := mtls.Port{Role: natsName, Name: "routes between servers", Addr: p.cluster.Listen, Own: p.ports.cluster, Keys: "--cluster-tls",
		Insecure: p.ports.plainClustered, Switch: "--insecure-cluster", Mutual: true}
	if p.cluster.Name == "" {
		return nil, nil
	}
	if port.Insecure {
		return port.Config()
	}
	var err error
	if port.TLS, err = p.ports.cluster.Or(ofBothEnds(p.ports.tls)).Load(); err != nil {
		return nil, fmt.Errorf("--cluster-tls-… or --%s-…: %w", mtls.Shared, err)
	}
	return port.TLS, port.Check()
}

// Run serves until ctx ends, then hands over what it leads and sends its clients to the others.
func (p *NATSProcess) Run(ctx context.Context) (err error) {
	cfg, err := p.config()
	if err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	logger, err := (&connect.Config{Level: p.level}).Logger()
	if err != nil {
		return err
	}
	well := health.New()
	reg := newRegistry(well)
	told, err := newTelemetry(ctx, "", natsName, p.otlp, reg, logger)
	if err != nil {
		return err
	}
	logger = told.logger(logger).With("role", natsName, "pid", os.Getpid())
	last := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	}
	defer func() {
		ctx, cancel := last()
		defer cancel()
		err = errors.Join(err, told.close(ctx))
	}()
	written, err := heapFiles(logger)
	if err != nil {
		return err
	}
	defer written()
	p.status.shared = p.ports.tls
	status, err := p.status.serve(reg, well) // lives while streams are recovered, which takes a while
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := last()
		defer cancel()
		err = errors.Join(err, status.close(ctx))
	}()
	logger.Info("starting", "dir", p.dir, "listen", p.listen, "cluster", p.cluster.Name, "status", status.scheme+"://"+status.addr)
	cfg.Log = logger
	s, err := natsserver.Start(cfg)
	if err != nil {
		return err
	}
	reg.MustRegister(s)
	p.watch(ctx, s, status, well, logger)
	status.ready.Store(false)
	logger.Info("leaving")
	return s.Leave()
}

// watch has /readyz say whether the replicas here are current, until ctx ends.
func (p *NATSProcess) watch(ctx context.Context, s *natsserver.Server, status *statusServer, well *health.State, logger *slog.Logger) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := s.Current(); err != nil {
			well.Fail("replicas", err)
		} else {
			well.OK("replicas")
			if !status.ready.Swap(true) {
				logger.Info("ready", "url", s.URL())
				if p.statusFile != "" {
					if err := writeStatusFile(p.statusFile, status.addr); err != nil {
						logger.Error("cannot write the status file", "err", err)
					}
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
