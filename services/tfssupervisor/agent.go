package tfssupervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/agentservice"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/tfssupervisor/modelmanager"
)

// AgentConfig of one agent. Conf is required, the rest has defaults.
type AgentConfig struct {
	// Conf is the agent.conf. Required.
	Conf string
	// TFSLog names the servers' logs: {kind}_{its base name}, in its folder. With MLP_POD_NAME in
	// the environment they write where the agent writes. Default: in Dir.
	TFSLog string
	// Binary is the model server's command line; empty: MONOLITH_TFS_BINARY, TENSORFLOW_MODEL_SERVER,
	// the original's place, or else the built-in one.
	Binary []string
	// Original is set where the binary is ByteDance's, which has flags that no other knows, and
	// Archon where that speaks archon in place of gRPC.
	Original, Archon bool
	// Dir holds the servers' configuration files and logs. Default: a folder of the container's
	// own below the temporary folder.
	Dir string
	// Proxy is the program that turns HTTP into gRPC where proxy_port is given. Default: the original's,
	// where it is installed.
	Proxy string
	// InsecureAgent has the agent service, which its entries ask where their shards are, answer other
	// machines, too, in plain text. Default: this machine alone, as its entries' flags know no TLS.
	InsecureAgent bool
	// Drain is how long each server may take to stop. Default 5 s.
	Drain time.Duration
	// Poll is the time between two looks at the servers' models. Default 150 ms.
	Poll time.Duration
	// Self is the command line of the built-in server, which the host sets.
	Self []string
	// ServerArgs are further arguments of each server's command line, such as --insecure-grpc.
	ServerArgs []string
	// Getenv reads the environment. Default: os.Getenv.
	Getenv func(string) string
}

// Register binds the fields to flags, and sets the defaults.
func (c *AgentConfig) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.Conf, "conf", "", "agent.conf `file`")
	fs.StringVar(&c.TFSLog, "tfs_log", "", "`file` after which the servers' logs are named: {kind}_{its name}; empty: in --dir")
	fs.StringSliceVar(&c.Binary, "binary", nil, "model server's `command`, comma separated; empty: MONOLITH_TFS_BINARY, TENSORFLOW_MODEL_SERVER, "+agentconf.Home+"/bin/tensorflow_model_server, or the built-in one")
	fs.BoolVar(&c.Original, "original-flags", false, "give the server the flags that only the original's binary knows: archon, log_conf, conf_file, metrics")
	fs.BoolVar(&c.Archon, "archon", false, "the original's binary speaks archon in place of gRPC")
	fs.StringArrayVar(&c.ServerArgs, "server-arg", nil, "`argument` added to each server's command line, such as --insecure-grpc; may be repeated")
	fs.StringVar(&c.Dir, "dir", "", "`folder` of the servers' configuration files and logs")
	fs.StringVar(&c.Proxy, "proxy", "", "`program` that turns HTTP into gRPC on proxy_port; empty: "+proxyBinary+", where it is")
	fs.BoolVar(&c.InsecureAgent, "insecure-agent", false, "have the agent service answer other machines, too, in plain text")
	fs.DurationVar(&c.Drain, "drain", 5*time.Second, "time that a server may take to stop")
	fs.DurationVar(&c.Poll, "poll", 150*time.Millisecond, "time between looks at the servers' models")
}

// Validate says what is missing.
func (c *AgentConfig) Validate() error {
	if c.Conf == "" {
		return errors.New("agent: give an agent.conf with --conf")
	}
	if c.Drain < 0 || c.Poll < 0 {
		return fmt.Errorf("agent: --drain is %v and --poll %v; want positive durations", c.Drain, c.Poll)
	}
	return nil
}

// Agent starts the servers that an agent.conf names, one after the other, tells the fleet of them,
// and ends when one of them has ended.
type Agent struct {
	cfg     AgentConfig
	env     services.Env
	servers []*agentServer
	fleet   *follow.Follower[fleet.State]
	answers *agentservice.Service // on the agent's port
	models  *modelmanager.Manager // nil: none are brought
	ready   chan struct{}
}

var _ services.Role = (*Agent)(nil)

// agentServer is one server of an agent.
type agentServer struct {
	kind     string
	d        *agentconf.Deployment
	original bool
	cfg      Config
	role     *Supervisor
}

// NewAgent reads the configuration and allocates; nothing is started and no file written.
func NewAgent(cfg AgentConfig, env services.Env) (*Agent, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	cfg.Getenv = agentconf.InMLService(cfg.Getenv)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	conf, err := agentconf.Read(cfg.Conf)
	if err != nil {
		return nil, err
	}
	env.BZID = cmp.Or(conf.BZID, env.BZID)
	a := &Agent{cfg: cfg, env: env, ready: make(chan struct{})}
	for i := range max(denseServers(conf), 1) {
		if err := a.deploy(conf, i); err != nil {
			return nil, err
		}
	}
	if d := a.servers[0].d; d.BringsRoughSort() {
		if a.models, err = modelmanager.New(modelmanager.Config{Model: d.RoughSortModelName, Source: d.RoughSortModelP2PPath,
			Dest: d.RoughSortModelLocalPath}, env.Log, env.Metrics); err != nil {
			return nil, fmt.Errorf("agent.conf: rough_sort_model_name, rough_sort_model_p2p_path and rough_sort_model_local_path: %w", err)
		}
	}
	a.fleet = follow.New(env.Bus.Log(), registry.Fleet.Only(env.BZID), follow.Options{Log: env.Log, Metrics: env.Metrics})
	a.answers = a.service(a.servers[0])
	if conf.ZKServers != "" && env.Log != nil {
		env.Log.Info("zk_servers is not used: replica-registry --zk-mirror writes what this agent serves into an ensemble", "zk_servers", conf.ZKServers)
	}
	if len(conf.Unknown) > 0 && env.Log != nil {
		env.Log.Warn("keys of agent.conf that mean nothing", "conf", cfg.Conf, "keys", conf.Unknown)
	}
	return a, nil
}

// service is the agent service, in the way of the configuration's version, for its own model.
func (a *Agent) service(s *agentServer) *agentservice.Service {
	d := s.d
	return &agentservice.Service{Fleet: a.fleet, Addr: func() string { return onHost(s.role.cfg.AgentAddress, s.role.cfg.HostIP) }, Answers: agentservice.Answers{
		Version: d.AgentVersion, Model: d.BaseName, Archon: a.cfg.Archon, DCAware: d.DCAware, IDC: d.IDC, Cluster: d.Cluster,
		Family: agentservice.FamilyOf(a.cfg.Getenv)}}
}

// listenAddress is where the agent service listens; the fleet knows an agent by its host's address all the same.
func (a *Agent) listenAddress(d *agentconf.Deployment) string {
	host := "127.0.0.1"
	if a.cfg.InsecureAgent {
		host = ""
	}
	return net.JoinHostPort(host, strconv.Itoa(d.AgentPort))
}

// answer has the agent service answer on ln once it knows the fleet: an entry that asks earlier waits, where it would
// hear that there are no shards.
func (a *Agent) answer(ctx context.Context, ln net.Listener) error {
	if !role.Ready(ctx, a.fleet.Ready()) {
		return ln.Close()
	}
	return a.answers.Serve(ctx, ln, nil)
}

// denseServers is how many an agent has that serves nothing but the dense part; 0: it is none.
func denseServers(conf agentconf.Config) int {
	if conf.DeployType != agentconf.Dense || conf.StandAloneServing {
		return 0
	}
	return conf.DenseServiceNum
}

// deploy adds the servers of one deployment: the only one, or the i-th of several dense ones.
func (a *Agent) deploy(conf agentconf.Config, i int) error {
	of := agentconf.Environment{Getenv: a.cfg.Getenv, FreePort: freeport.Find}
	several := denseServers(conf) > 1
	if several {
		of.Getenv = func(key string) string {
			if key == "DENSE_SERVICE_IDX" {
				return strconv.Itoa(i)
			}
			return a.cfg.Getenv(key)
		}
	}
	d, err := conf.Deploy(of)
	if err != nil {
		return err
	}
	if several && d.Replica >= 0 {
		d.Replica = d.Replica*int64(conf.DenseServiceNum) + int64(i)
	}
	for _, kind := range d.Servers() {
		s, err := a.server(d, kind, several, i)
		if err != nil {
			return err
		}
		a.servers = append(a.servers, s)
	}
	return nil
}

// server is the supervisor of one server, which is a container of its own where the agent has others.
func (a *Agent) server(d *agentconf.Deployment, kind string, several bool, i int) (*agentServer, error) {
	own := *d // servers differ in where their files lie
	d = &own
	host, _ := os.Hostname()
	container := cmp.Or(d.PodName, host)
	suffix := ""
	if len(d.Servers()) > 1 {
		container += "-" + kind
	}
	if several {
		container, suffix = container+"-"+strconv.Itoa(i), ".mps"+strconv.Itoa(i)
	}
	s := &agentServer{kind: kind, d: d, original: a.cfg.Original}
	s.cfg = Config{
		Container: container, Shard: d.Shard, Replica: int(max(d.Replica, 0) & 0x7fffffff), ShardNum: d.NumShard, Cluster: d.Cluster, IDC: d.IDC, DCAware: d.DCAware, PSM: d.PSM,
		ArchonAddress: ":" + strconv.Itoa(d.Ports[kind].Archon), AgentAddress: ":" + strconv.Itoa(d.AgentPort),
		GRPCPort: d.Ports[kind].GRPC, HTTPPort: d.Ports[kind].HTTP, Once: true, Drain: a.cfg.Drain, Poll: a.cfg.Poll, Getenv: a.cfg.Getenv,
		Dir: cmp.Or(a.cfg.Dir, filepath.Join(os.TempDir(), "monolith-agent")),
	}
	if !a.cfg.Original {
		s.cfg.ArchonAddress = "" // no other binary listens there
	}
	if d.Replica < 0 {
		s.cfg.Replica = -1
	}
	s.cfg.Dir = filepath.Join(s.cfg.Dir, container)
	switch log := a.cfg.TFSLog; {
	case a.cfg.Getenv("MLP_POD_NAME") != "":
		s.cfg.LogInherited = true
	case log != "":
		s.cfg.LogFile = filepath.Join(filepath.Dir(log), kind+"_"+filepath.Base(log)+suffix)
	}
	if err := s.wishes(); err != nil {
		return nil, err
	}
	if kind == agentconf.Entry {
		s.cfg.ServerEnv = []string{"PORT2=" + strconv.Itoa(d.AgentPort)}
		s.cfg.Gate = a.awaitOthers(d)
	}
	if _, err := os.Stat(filepath.Dir(d.PlatformConfigFile)); err != nil { // the original is not installed here
		d.PlatformConfigFile = filepath.Join(s.cfg.Dir, filepath.Base(d.PlatformConfigFile))
	}
	models := filepath.Join(s.cfg.Dir, modelsFile)
	line := d.Command(agentconf.Start{Kind: kind, ModelConfig: models, Original: a.cfg.Original, Archon: a.cfg.Archon})
	binary, builtIn := a.binary()
	s.cfg.Command = append(binary, line[1:]...)
	s.cfg.ServerArgs = a.cfg.ServerArgs
	if builtIn {
		s.join(a.env.BZID)
	}
	if kind == agentconf.Unified {
		s.cfg.ConfigFile = models
	}
	launcher, err := NewExecLauncher(s.cfg)
	if err != nil {
		return nil, err
	}
	s.role, err = New(s.cfg, a.env, launcher)
	return s, err
}

// wishes say what the server serves: a layout, or what stands in its file.
func (s *agentServer) wishes() error {
	d := s.d
	if s.kind == agentconf.Unified {
		s.cfg.Layout, s.cfg.LayoutFilters = d.LayoutPattern, d.LayoutFilters
		if s.cfg.Layout == "" {
			return errors.New("agent.conf: deploy_type unified needs a layout_pattern")
		}
		return nil
	}
	models, err := d.Models(s.kind)
	if err != nil {
		return err
	}
	if d.BaseName == "" || d.BasePath == "" {
		return errors.New("agent.conf: give base_name and base_path, the model's name and where its exports lie")
	}
	if len(models) == 0 {
		return fmt.Errorf("agent.conf: there is nothing to serve: of %d shards this agent, shard %d of %d, has none; set SHARD_ID", d.NumPS, d.Shard, d.NumShard)
	}
	s.cfg.ServerType = s.kind
	for _, m := range models {
		if isTask(m.Name) {
			s.cfg.Fixed = append(s.cfg.Fixed, FixedModel{Model: d.BaseName, Sub: m.Name, Name: m.Name})
		}
	}
	return nil
}

// join has the built-in server be one of the fleet: an entry asks the shards of whatever agent for rows,
// and shards follow the deltas of a job that this log knows. It says itself where it listens.
func (s *agentServer) join(bzid string) {
	s.cfg.Command = append(s.cfg.Command, "--container", s.cfg.Container, "--bzid", bzid, "--of-model", s.d.BaseName)
	s.cfg.GRPCPort, s.cfg.HTTPPort = 0, 0
}

// binary is the model server's command line without its flags, and whether it is the built-in one's.
func (a *Agent) binary() (line []string, builtIn bool) {
	if len(a.cfg.Binary) > 0 {
		return slices.Clone(a.cfg.Binary), false
	}
	installed := agentconf.Home + "/bin/tensorflow_model_server"
	if _, err := os.Stat(installed); err != nil {
		installed = ""
	}
	if path := cmp.Or(a.cfg.Getenv("MONOLITH_TFS_BINARY"), a.cfg.Getenv("TENSORFLOW_MODEL_SERVER"), installed); path != "" {
		return []string{path}, false
	}
	return slices.Clone(a.cfg.Self), true
}

// Ready is closed once every server answers.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run starts the servers in their order, each once the one before it answers, and ends them all
// when ctx ends or one of them has. It may be called once.
func (a *Agent) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", a.listenAddress(a.servers[0].d))
	if err != nil {
		return fmt.Errorf("agent: its own port: %w", err)
	}
	all, inner := errgroup.WithContext(ctx)
	all.Go(func() error { return a.fleet.Run(inner) })
	all.Go(func() error { return a.answer(inner, ln) })
	if a.models != nil {
		all.Go(func() error {
			if err := a.models.Run(inner); err != nil {
				return fmt.Errorf("agent: the model for rough sorting: %w", err)
			}
			return nil
		})
		if !role.Ready(inner, a.models.Ready()) {
			return all.Wait()
		}
	}
	for _, s := range a.servers {
		all.Go(func() error {
			err := s.writeFiles(a.env.Log)
			if err == nil {
				err = s.role.Run(inner)
			}
			if err == nil && inner.Err() == nil {
				err = errEnded
			}
			if err != nil {
				return fmt.Errorf("agent: the %s server: %w; all others are stopped", s.kind, err)
			}
			return nil
		})
		if !role.Ready(inner, s.role.Ready()) {
			return all.Wait()
		}
	}
	if line := a.proxyLine(); line != nil {
		all.Go(func() error { return a.proxy(inner, line) })
	}
	close(a.ready)
	return all.Wait()
}

// writeFiles writes what the server reads at its start. A crash leaves whole files, which the next
// start writes again.
func (s *agentServer) writeFiles(log *slog.Logger) error {
	if err := os.MkdirAll(s.cfg.Dir, 0o750); err != nil {
		return err
	}
	models, err := s.d.ModelConfig(s.kind)
	if err == nil {
		err = durable.Swap(filepath.Join(s.cfg.Dir, modelsFile), 0o644, []byte(models))
	}
	if err != nil {
		return err
	}
	path := s.d.PlatformConfigFile
	if err := durable.Swap(path, 0o644, []byte(s.d.Platform(s.original))); err != nil {
		_ = os.Remove(path) // one of another configuration would say the wrong thing
		log.Warn("the platform's file cannot be written; the server is told of it all the same", "err", err)
	}
	return nil
}

// modelsFile is the server's file of models, in its folder.
const modelsFile = "model_config_file.cfg"

// gateTimeout is how long an entry waits for those that it asks.
const gateTimeout = time.Hour

// awaitOthers waits until every shard of the model, and its dense part where that stands alone, has a
// replica that takes traffic.
func (a *Agent) awaitOthers(d *agentconf.Deployment) func(context.Context) error {
	every := 2 * time.Second * time.Duration(max(d.UpdateModelStatusInterval, 1))
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, gateTimeout)
		defer cancel()
		ask := struct {
			Model   string `json:"model"`
			NumPS   int    `json:"numPs"`
			IDC     string `json:"idc,omitempty"`
			Cluster string `json:"cluster,omitempty"`
		}{Model: d.BaseName, NumPS: d.NumPS}
		if d.DCAware {
			ask.IDC, ask.Cluster = d.IDC, d.Cluster
		}
		body, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		for {
			var has struct{ PS, Dense bool }
			call, stop := context.WithTimeout(ctx, role.Deadline)
			answer, err := a.env.Bus.Commands().Call(call, a.env.BZID, "registry.started", body)
			stop()
			if err == nil {
				err = json.Unmarshal(answer, &has)
			}
			if err == nil && has.PS && (has.Dense || !d.DenseAlone) {
				return nil
			}
			a.env.Log.Info("the entry waits for those that it asks", "shards", has.PS, "dense", has.Dense, "err", err)
			if retry.Sleep(ctx, every) != nil {
				return fmt.Errorf("the shards that the entry asks have not come up in %v", gateTimeout)
			}
		}
	}
}
