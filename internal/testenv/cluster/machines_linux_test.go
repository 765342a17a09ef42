// Package cluster holds the promises of README's one line per role on three machines, each of which
// has an address and a disk of its own: NATS and Apache Kafka on all of them, every role twice.
package cluster

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/auth"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/hosts"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

const (
	machineCount = 3
	shards       = 2
	replicas     = 2 // of each shard, and of the entry
	partitions   = 2
	natsPort     = "4222"
	routePort    = "6222"
	grpcPort     = "8500" // of an entry
	transferPort = "8600"
)

// world is three machines with everything on them, as a person sets it up who has auth init's keys.
type world struct {
	t        testing.TB
	dir      string // where the test keeps its files
	data     string // the folder that is another disk on each machine
	keys     string
	binary   string
	machines []*machine
	kafka    oracle.KafkaCluster
	http     *http.Client // a person's
}

// machine is a host, and what is to run on it.
type machine struct {
	*hosts.Host
	w     *world
	disk  string // its data, as the test finds it
	tasks []*task
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.data, w.keys, w.binary = filepath.Join(w.dir, "srv"), filepath.Join(w.dir, "keys"), filepath.Join(w.dir, "monolith")
	if err := os.Mkdir(w.data, 0o755); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	var all []*hosts.Host
	for i, h := range hosts.New(t, machineCount) {
		w.machines = append(w.machines, &machine{Host: h, w: w, disk: h.Disk(w.data)})
		all, addresses = append(all, h), append(addresses, w.machines[i].Address)
	}
	build := exec.Command("go", "build", "-o", w.binary, "github.com/monolith-go/monolith/cmd/monolith")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build monolith: %v\n%s", err, out)
	}
	if err := auth.Init(auth.Config{Dir: w.keys, Hosts: addresses, Listen: net.JoinHostPort(addresses[0], natsPort), Valid: 24 * time.Hour}, time.Now()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: w.client()}
	w.http = &http.Client{Transport: transport, Timeout: 5 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	w.kafka = oracle.KafkaOn(t, all, w.data)
	for i, m := range w.machines {
		m.plan(i)
		t.Cleanup(m.off)
	}
	return w
}

// plan says what runs on the machine: NATS and a broker on each, every role on two of them.
func (m *machine) plan(i int) {
	name := string(rune('a' + i))
	m.add("kafka", m.w.kafka.Commands[i]...)
	m.nats(name)
	m.task("model-sync", "", "--host", name, "--dir", m.w.path("copies"), "--exports", m.w.path("training"), "--transfer-listen", m.at(transferPort))
	switch name {
	case "a":
		m.task("portal", "", "--log-replicas", strconv.Itoa(machineCount))
		m.task("publisher", "", m.w.kafkaFlags()...)
		m.entry(name, 0)
		m.serving(name, 0, 0)
		m.ps(0)
	case "b":
		m.task("portal", "", "--log-replicas", strconv.Itoa(machineCount))
		m.task("replica-registry", "", "--listen", m.at("8700"), "--zk-listen", m.at("2181"))
		m.entry(name, 1)
		m.serving(name, 1, 0)
		m.ps(1)
		m.trainer(0)
	case "c":
		m.task("publisher", "", m.w.kafkaFlags()...)
		m.task("replica-registry", "", "--listen", m.at("8700"), "--zk-listen", m.at("2181"))
		m.serving(name, 0, 1)
		m.serving(name, 1, 1)
		m.trainer(1)
	}
}

func (m *machine) nats(name string) {
	var routes []string
	for _, other := range m.w.machines {
		routes = append(routes, other.at(routePort))
	}
	m.monolith("nats", slices.Concat([]string{"nats", "--dir", m.w.path("nats"), "--name", name, "--listen", m.at(natsPort), "--cluster-name", "logs", "--cluster-listen", m.at(routePort),
		"--routes", strings.Join(routes, ","), "--users", filepath.Join(m.w.keys, auth.UsersConf), "--drain", "1s", "--status", m.at("0")}, m.w.files("nats-server").Args(mtls.Shared))...)
}

// task is a role with the flags that all of them have.
func (m *machine) task(role, number string, args ...string) {
	f := m.w.files(role)
	m.monolith(role+number, slices.Concat([]string{role, "--nats", m.w.natsURL(), "--nats-creds", filepath.Join(m.w.keys, role+".nk"), "--status", m.at("0")},
		f.Args("nats"), f.Args(mtls.Shared), args)...)
}

func (m *machine) entry(name string, replica int) {
	m.supervisor(name, "-entry", "entry", -1, replica, "--server-arg=--grpc="+m.at(grpcPort), "--server-arg=--http="+m.at("8501"))
}

func (m *machine) serving(name string, shard, replica int) {
	m.supervisor(name, fmt.Sprintf("-%d-%d", shard, replica), "ps", shard, replica, "--server-arg=--grpc="+m.at("0"), "--server-arg=--http="+m.at("0"))
}

func (m *machine) supervisor(name, number, kind string, shard, replica int, args ...string) {
	for _, broker := range m.w.kafka.Bootstrap {
		args = append(args, "--server-arg=--kafka="+broker)
	}
	m.task("tfs-supervisor", number, slices.Concat([]string{"--host", name, "--container", fmt.Sprintf("%s%s-%d", kind, number, replica), "--server-type", kind, "--shard", strconv.Itoa(shard),
		"--replica", strconv.Itoa(replica), "--server-dir", m.w.path("server" + number), "--memory", "1073741824", "--server-arg=--rows=" + m.at("0")}, args)...)
}

func (m *machine) ps(shard int) {
	m.task("ps", fmt.Sprint("-", shard), "--job", host.JobName, "--model", host.ModelName, "--shard", strconv.Itoa(shard), "--shards", strconv.Itoa(shards),
		"--dir", m.w.path("training", host.JobName), "--listen", m.at("0"), "--sync-interval", "200ms")
}

func (m *machine) trainer(i int) {
	m.task("trainer", fmt.Sprint("-", i), slices.Concat([]string{"--job", host.JobName, "--model", host.ModelName, "--name", fmt.Sprint("trainer-", i), "--index", strconv.Itoa(i),
		"--shards", strconv.Itoa(shards), "--dir", m.w.path("training", host.JobName), "--checkpoint-every", "20s", "--linger", "50ms"}, m.w.kafkaFlags())...)
}

func (w *world) kafkaFlags() (args []string) {
	for _, broker := range w.kafka.Bootstrap {
		args = append(args, "--kafka", broker)
	}
	return args
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.data}, parts...)...)
}

func (m *machine) at(port string) string { return net.JoinHostPort(m.Address, port) }

func (w *world) files(who string) mtls.Files {
	in := func(name string) string { return filepath.Join(w.keys, name) }
	return mtls.Files{Cert: in(who + ".pem"), Key: in(who + ".key"), CA: in(auth.CAFile)}
}

func (w *world) natsURL() string {
	var urls []string
	for _, m := range w.machines {
		urls = append(urls, "tls://"+m.at(natsPort))
	}
	return strings.Join(urls, ",")
}

// operator is the connection of a person who may make the streams.
func (w *world) operator() connect.Config {
	return connect.Config{NATS: w.natsURL(), BZID: "demo", Level: "warn", Keys: w.files("operator"), Creds: filepath.Join(w.keys, "operator.nk")}
}
