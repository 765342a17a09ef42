package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/discovery"
	"github.com/monolith-go/monolith/internal/host/otlp"
	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"
)

// RowsTLS begins the flags of the row protocol's certificates.
const RowsTLS = "rows-tls"

// Process is an operating-system process that hosts one role.
type Process struct {
	role       Role
	bound      blueprint
	conn       connect.Config
	status     statusPort
	tls        mtls.Files // of all ports whose own flags name none
	statusFile string
	addrFile   string
	named      func() bool // a NATS server was, by its flag
	trace      string
	otlp       otlp.Config
	rows       mtls.Files
	fs         *pflag.FlagSet
	config     runconfig.Options // of a role that belongs to a training job
}

// NewProcess binds the flags of a process of this role.
func NewProcess(r Role, fs *pflag.FlagSet) *Process {
	p := &Process{role: r, bound: r.bind(fs), fs: fs}
	if r.job != "" {
		p.config.Register(fs)
	}
	p.conn.Register(fs)
	p.conn.RegisterReplicas(fs)
	p.named = func() bool { return fs.Changed("nats") }
	p.register(fs)
	return p
}

func (p *Process) register(fs *pflag.FlagSet) {
	p.tls.RegisterShared(fs)
	p.status.register(fs, "127.0.0.1:0", "")
	fs.StringVar(&p.statusFile, "status-file", "", "`file` that says pid and status address once the role is ready")
	fs.StringVar(&p.trace, "trace-file", "", "`file` for finished spans, one JSON object each")
	p.otlp.Register(fs)
	p.rows.Register(fs, RowsTLS, "the row protocol, between machines (default: --tls-cert, -key and -ca, where all of them are given)")
	fs.StringVar(&p.addrFile, "addr-file", "", "`file` that a model server writes its addresses to once it is ready")
}

// ofBothEnds are the certificates of all ports, where they do for a connection between our own
// processes: both of its ends want the authorities.
func ofBothEnds(shared mtls.Files) mtls.Files {
	if shared.CA == "" {
		return mtls.Files{}
	}
	return shared
}

// Run hosts the role until ctx ends, on a connection of its own.
func (p *Process) Run(ctx context.Context) (err error) {
	v, guard, err := discovered(p.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close()) }() // on a panic of this goroutine, too
	return p.host(ctx, v, guard)
}

// host is Run with a run configuration that was read, and its service discovery.
func (p *Process) host(ctx context.Context, v runconfig.Values, guard *discovery.Guard) (err error) {
	report, err := p.steer(ctx, v, guard)
	if err != nil {
		return err
	}
	if err := p.bound.validate(); err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	conn, name := &p.conn, p.role.Name
	logger, err := conn.Logger()
	if err != nil {
		return err
	}
	rows, err := p.rows.Or(ofBothEnds(p.tls)).Load()
	if err != nil {
		return fmt.Errorf("%w: --%s-… or --%s-…: %w", flags.ErrUsage, RowsTLS, mtls.Shared, err)
	}
	for _, x := range report.All() {
		logger.Info("run configuration", "says", x.String())
	}
	well := health.New()
	reg := newRegistry(well)
	told, err := newTelemetry(ctx, p.trace, name, p.otlp, reg, logger)
	if err != nil {
		return err
	}
	logger = told.logger(logger).With("role", name, "pid", os.Getpid())
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
	conn.Log = logger
	conn.Health = well
	b, nats, err := p.dial(ctx)
	if err != nil {
		return err
	}
	p.status.shared = p.tls
	status, err := p.status.serve(reg, well)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	status.answers = p.role.answers
	defer func() {
		ctx, cancel := last()
		defer cancel()
		err = errors.Join(err, status.close(ctx), b.Close())
	}()
	env := services.Env{BZID: conn.BZID, Bus: b, Log: logger, Tracer: told.tracer(name, 0), Rows: rows, TLS: p.tls, Health: well, Lanes: nn.NewLanes(0),
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"role": name}, reg)}
	r, err := p.bound.build(surroundings{env: env, launch: p.launch, self: p.self})
	if err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	if p.role.lean {
		var heap sync.WaitGroup
		lean, stop := context.WithCancel(ctx)
		heap.Go(func() { KeepHeapSmall(lean) })
		defer heap.Wait()
		defer stop()
	}
	logger.Info("starting", "nats", nats, "bzid", conn.BZID, "status", status.scheme+"://"+status.addr)
	return p.announced(ctx, env, r, guard, status)
}

// announced runs the role, which is made known once it is ready. One that its service discovery does not take ends.
func (p *Process) announced(ctx context.Context, env services.Env, r services.Role, guard *discovery.Guard, status *statusServer) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	ready := func() {
		if err := p.announce(ctx, guard, r, status, env.Health); err != nil {
			fail(err)
			return
		}
		p.ready(r, status, env.Log)
	}
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, errUnregistered) {
			err = errors.Join(err, cause)
		}
	}()
	return connect.While(ctx, env.Bus, func(ctx context.Context) error { return runRole(ctx, r, ready) })
}

// discovered reads a run configuration, and opens the service discovery that it names.
func discovered(config runconfig.Options) (runconfig.Values, *discovery.Guard, error) {
	v, err := config.Read(os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	guard, err := discovery.Open(v, os.Getenv)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	return v, guard, nil
}

// steer has the run configuration set the flags that were not given, with what the service discovery
// that it names says of this process and of NATS. A job that this role starts is told of it.
func (p *Process) steer(ctx context.Context, v runconfig.Values, guard *discovery.Guard) (*runconfig.Report, error) {
	own, launched := guard.Task()
	if launched {
		if own.Role != p.role.job {
			return nil, fmt.Errorf("%w: %s says that this process is %s %d, and monolith %s is a %s: start the other role", flags.ErrUsage, guard.Kind(), own.Role, own.Index, p.role.Name, p.role.job)
		}
		v.Launch("index", strconv.Itoa(own.Index))
		if own.PS > 0 {
			v.Launch("num_ps", strconv.Itoa(own.PS))
		}
	}
	listen := p.fs.Lookup("listen")
	if launched && own.Addr != "" && listen != nil && !listen.Changed {
		if err := p.fs.Set("listen", own.Addr); err != nil {
			return nil, err
		}
	}
	report, err := v.Apply(p.fs, p.role.Name)
	if err != nil {
		return nil, err
	}
	if !p.named() && os.Getenv(connect.EnvNATS) == "" && guard.Kind() != "local" {
		found, err := guard.Query(ctx, "nats")
		if err != nil {
			return nil, err
		}
		var urls []string
		for _, index := range slices.Sorted(maps.Keys(found)) {
			urls = append(urls, "nats://"+found[index])
		}
		if len(urls) > 0 {
			p.conn.NATS = strings.Join(urls, ",")
		}
	}
	if p.fs.Lookup("run-override") != nil {
		for _, o := range report.Facts() {
			if err := p.fs.Set("run-override", o); err != nil {
				return nil, err
			}
		}
	}
	return report, nil
}

// errUnregistered ends a role that its service discovery does not take.
var errUnregistered = errors.New("the role is not registered")

// announce makes the role known where the run configuration says: a shard by the address of its rows, a
// trainer, which nobody calls, by that of its status port.
func (p *Process) announce(ctx context.Context, guard *discovery.Guard, r services.Role, status *statusServer, well *health.State) error {
	if guard.Kind() == "local" {
		return nil
	}
	addr, number := status.addr, "index"
	if a, ok := r.(interface{ Addr() string }); ok {
		addr, number = a.Addr(), "shard"
	}
	index, err := p.fs.GetInt(number)
	if err == nil {
		err = guard.Register(ctx, p.role.job, index, addr, func(err error) {
			if err == nil {
				well.OK("discovery")
				return
			}
			well.Fail("discovery", err)
		})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnregistered, err)
	}
	return nil
}

// dial connects to the logs, and says whose they are. A role that needs none has an empty one of its
// own, so that it goes the same way.
func (p *Process) dial(ctx context.Context) (b bus.Bus, nats string, err error) {
	if p.bound.alone != nil && p.bound.alone() {
		if p.named() {
			return nil, "", fmt.Errorf("%w: --nats is given without --container: a %s that belongs to no container follows no log; give both, or none", flags.ErrUsage, p.role.Name)
		}
		return mem.New(), "none", p.conn.Validate()
	}
	if warning := connect.Unsynced(p.conn.NATS); warning != "" {
		p.conn.Log.Warn(warning)
	}
	b, err = p.conn.Dial(ctx, "monolith "+p.role.Name)
	return b, connect.Redacted(p.conn.NATS), err
}

// ready tells the supervisor, the files that were asked for and /readyz that the role is.
func (p *Process) ready(r services.Role, status *statusServer, logger *slog.Logger) {
	if l, ok := r.(listening); ok && p.addrFile != "" {
		if err := tfssupervisor.WriteAddrFile(p.addrFile, l.GRPCAddr(), l.HTTPAddr(), l.RowsAddr(), l.GRPCSecure()); err != nil {
			logger.Error("cannot say where this server listens", "err", err)
			return
		}
	}
	status.ready.Store(true)
	if p.statusFile != "" {
		if err := writeStatusFile(p.statusFile, status.addr); err != nil {
			logger.Error("cannot write the status file", "err", err)
		}
	}
	logger.Info("ready")
}

// launch makes the supervisor start its server as a child process: the command that was
// given, or this binary.
func (p *Process) launch(cfg *tfssupervisor.Config) (tfssupervisor.Launcher, error) {
	if len(cfg.Command) == 0 {
		self, err := p.self()
		if err != nil {
			return nil, err
		}
		cfg.Command = slices.Concat(self, []string{"--container", cfg.Container, "--bzid", p.conn.BZID}, cfg.GRPCTLS.Args("grpc-tls"))
		if p.trace != "" {
			cfg.Command = append(cfg.Command, "--trace-file", p.trace)
		}
	}
	return tfssupervisor.NewExecLauncher(*cfg)
}

// self is the command line of the built-in server, which inherits the rest by this process's environment.
func (p *Process) self() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary to start a model server from: %w", err)
	}
	for _, v := range slices.Concat(p.conn.Env(), p.otlp.Env()) {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return slices.Concat([]string{self, p.role.server, "--log-level", p.conn.Level, "--archive", p.conn.Archive}, p.rows.Args(RowsTLS), p.tls.Args(mtls.Shared)), nil
}

// ProcessStatus is the content of a status file.
type ProcessStatus struct {
	PID    int    `json:"pid"`
	Status string `json:"status"` // host:port of /livez, /readyz and /metrics
}

func writeStatusFile(path, status string) error {
	raw, err := json.Marshal(ProcessStatus{PID: os.Getpid(), Status: status})
	if err != nil {
		return err
	}
	return ReplaceFile(path, raw)
}
