package agentconf

import (
	"crypto/md5"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The kinds of server, which are also what an agent may be deployed as; Mixed is an agent with a
// server of each kind.
const (
	PS      = "ps"
	Entry   = "entry"
	Dense   = "dense"
	Unified = "unified"
	Mixed   = "mixed"
)

// Home is where the original is installed.
const Home = "/opt/tiger/monolith_serving"

// Ports are those of one server; 0: none.
type Ports struct{ GRPC, HTTP, Archon int }

// Environment is what a configuration is completed from.
type Environment struct {
	Getenv func(string) string
	// FreePort finds a port that nobody listens on, for what neither file nor environment names.
	FreePort func() (int, error)
}

// Deployment is a configuration at its place: who this agent is, and where its servers listen.
type Deployment struct {
	Config
	Type      string
	Shard     int // -1: it has none, and serves no shard
	Replica   int64
	Ports     map[string]Ports // by kind of server
	DenseIdx  int              // which of several dense servers this is
	IDC       string
	Cluster   string
	PSM       string // service name
	TCE       string // cluster as it is written for archon
	CPULimit  int    // 0: unknown
	PodName   string
	getenv    func(string) string
	firstFree func() (int, error)
}

// Deploy completes a configuration, and joins every complaint.
func (c Config) Deploy(e Environment) (*Deployment, error) {
	d := &Deployment{Config: c, Type: c.DeployType, Ports: map[string]Ports{}, getenv: e.Getenv, firstFree: e.FreePort}
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf("agent.conf: "+format, args...)) }
	if c.StandAloneServing {
		d.Type = Mixed
	}
	d.Type = strings.ToLower(d.Type)
	switch d.Type {
	case Mixed, PS, Entry, Unified:
	case Dense:
		if !c.DenseAlone {
			complain("deploy_type is dense without dense_alone; add dense_alone true")
		}
	case "":
		complain("there is no deploy_type; give mixed, ps, entry, dense or unified")
	default:
		complain("deploy_type is %q; want mixed, ps, entry, dense or unified", c.DeployType)
	}
	if c.AgentVersion == 3 != (d.Type == Unified) {
		complain("agent_version is %d and deploy_type %q; unified goes with version 3, and nothing else does", c.AgentVersion, d.Type)
	}
	number := func(fallback int, names ...string) int {
		for _, name := range names {
			text := strings.TrimSpace(e.Getenv(name))
			if text == "" {
				continue
			}
			n, err := strconv.Atoi(text)
			if err != nil {
				complain("%s is %q in the environment; give a number", name, text)
				return fallback
			}
			return n
		}
		return fallback
	}
	shards := number(1, "MONOLITH_HOST_SHARD_N", "byterec_host_shard_n")
	if c.NumShard != 0 && c.NumShard != shards {
		complain("num_shard is %d, MONOLITH_HOST_SHARD_N says %d; make them equal", c.NumShard, shards)
	}
	d.NumShard = max(shards, 1)
	d.Shard, d.DenseIdx, d.CPULimit = number(-1, "SHARD_ID"), number(0, "DENSE_SERVICE_IDX"), number(0, "MY_CPU_LIMIT")
	d.PodName = e.Getenv("MY_POD_NAME")
	d.Replica = podReplica(d.PodName)
	if c.AgentVersion != 1 {
		if n := number(-1, "REPLICA_ID"); n >= 0 {
			d.Replica = int64(n)
		}
	}
	d.PSM, d.TCE = e.Getenv("TCE_PSM"), e.Getenv("TCE_CLUSTER")
	d.IDC = strings.ToLower(e.Getenv("TCE_INTERNAL_IDC"))
	for _, name := range []string{"TCE_LOGICAL_CLUSTER", "TCE_CLUSTER", "TCE_PHYSICAL_CLUSTER"} {
		if d.Cluster == "" {
			d.Cluster = strings.ToLower(e.Getenv(name))
		}
	}
	if err := d.ports(number); err != nil {
		errs = append(errs, err)
	}
	if d.PlatformConfigFile == "" {
		d.PlatformConfigFile = Home + "/conf/platform_config_file.cfg"
	}
	return d, errors.Join(errs...)
}

// podReplica is the replica number that agents draw from their pod's name: 40 bits of its MD5.
func podReplica(pod string) int64 {
	if pod == "" {
		return -1
	}
	n := int64(0)
	sum := md5.Sum([]byte(pod))
	for _, b := range sum[5:10] {
		n = n<<8 | int64(b)
	}
	return n
}

// ports gives each server its ports: those that the environment has for the kind that is deployed,
// then those of the file, then free ones.
func (d *Deployment) ports(number func(fallback int, names ...string) int) error {
	free := func(port *int) error {
		if *port != 0 {
			return nil
		}
		p, err := d.firstFree()
		*port = p
		return err
	}
	of := map[string]Ports{
		Entry:   {d.TFSEntryPort, d.TFSEntryHTTPPort, d.TFSEntryArchonPort},
		PS:      {d.TFSPSPort, d.TFSPSHTTPPort, d.TFSPSArchonPort},
		Dense:   {d.TFSDensePort, d.TFSDenseHTTPPort, d.TFSDenseArchonPort},
		Unified: {d.TFSPortGRPC, d.TFSPortHTTP, d.TFSPortArchon},
	}
	named := map[string][3]string{}
	switch d.Type {
	case Mixed:
		named[Entry] = [3]string{"PORT3", "PORT4", "PORT"}
		named[PS] = [3]string{"PORT5", "PORT6", "PORT7"}
		if d.DenseIdx == 0 {
			named[Dense] = [3]string{"PORT8", "PORT9", "PORT10"}
		}
	case Dense:
		if d.DenseIdx == 0 {
			named[Dense] = [3]string{"PORT3", "PORT4", "PORT"}
		}
	default:
		named[d.Type] = [3]string{"PORT3", "PORT4", "PORT"}
	}
	for _, kind := range d.Servers() {
		p := of[kind]
		for i, port := range []*int{&p.GRPC, &p.HTTP, &p.Archon} {
			if named[kind][i] != "" {
				*port = number(*port, named[kind][i])
			}
			if err := free(port); err != nil {
				return err
			}
		}
		d.Ports[kind] = p
	}
	d.AgentPort = number(d.AgentPort, portUnless(d.AgentPort)...)
	return free(&d.AgentPort)
}

// portUnless is the agent's own variable, unless the file names its port.
func portUnless(said int) []string {
	if said != 0 {
		return nil
	}
	return []string{"PORT2"}
}

// Servers are the kinds of server that this agent runs, in the order in which they start; the
// last is the main one.
func (d *Deployment) Servers() []string {
	switch {
	case d.Type == Mixed && d.DenseAlone:
		return []string{PS, Dense, Entry}
	case d.Type == Mixed:
		return []string{PS, Entry}
	}
	return []string{d.Type}
}

// Shards are the tasks among the parameter servers that this agent has.
func (d *Deployment) Shards() (tasks []int) {
	for i := range d.NumPS {
		if i%d.NumShard == d.Shard {
			tasks = append(tasks, i)
		}
	}
	return tasks
}

// Main is the kind of server that others ask.
func (d *Deployment) Main() string {
	all := d.Servers()
	return all[len(all)-1]
}
