package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/auth"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/doctor"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
	"github.com/monolith-go/monolith/projections/fleet"
)

// machines are two addresses of loopback, and keys for everybody on them.
type machines struct {
	*opsWorld
	keys, dir, nats, kafka, agent string
}

const machineA, machineB = "127.0.0.2", "127.0.0.3"

// TestOracleRolesOnTwoMachines runs each role alone by the lines of docs/guides/machines.md, under
// the keys of `monolith auth init` and a nats-server by its configuration: control and the entry on
// one address, a serving shard and a training shard on another. It learns, serves over TLS, and the
// doctor finds nothing wrong.
func TestOracleRolesOnTwoMachines(t *testing.T) {
	m := newMachines(t)
	m.role("portal", machineA)
	m.role("publisher", machineA)
	m.role("replica-registry", machineA, "--listen", m.agent, "--zk-listen", machineA+":0")
	for host, at := range map[string]string{"a": machineA, "b": machineB} {
		m.role("model-sync", at, "--host", host, "--dir", filepath.Join(m.dir, "copies-"+host))
	}
	m.supervisor(machineA, "a", "entry-0", "entry")
	m.supervisor(machineB, "b", "serving-0", "ps", "--shard", "0")
	m.role("ps", machineB, "--job", host.JobName, "--model", host.ModelName, "--dir", filepath.Join(m.dir, "training"), "--listen", machineB+":0", "--grpc", machineB+":0")
	m.role("trainer", machineA, "--kafka", m.kafka, "--job", host.JobName, "--model", host.ModelName, "--name", "trainer-0", "--shards", "1", "--dir", filepath.Join(m.dir, "training"))

	var err error
	m.job, err = demo.OpenJob(m.ctx, m.as("operator"))
	m.must("open the job", err)
	defer func() { m.must("close the job", m.job.Close()) }()
	m.must("declare the model", m.job.Declare(m.ctx, modelspec.MovieRanking()))
	_, err = m.job.AwaitExport(m.ctx)
	m.must("wait for the first export", err)
	_, err = m.job.Load(m.ctx, &model.Load{ModelName: host.ModelName, ModelDir: filepath.Join(m.dir, "training", "exported_models"), Job: host.JobName, Replicas: 1})
	m.must("load the model", err)
	entry, err := m.job.AwaitServing(m.ctx, host.ModelName, 1, 1)
	m.must("wait for every replica", err)
	m.addresses(entry.GetGrpcAddress())
	m.predict(entry.GetGrpcAddress())
	m.ask()
	m.examine()
}

func newMachines(t *testing.T) *machines {
	t.Helper()
	t.Setenv("MONOLITH_NATS_SYNC", "always") // as auth init has it
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	m := &machines{opsWorld: &opsWorld{t: t, log: new(opsLines)}, dir: t.TempDir(), nats: fmt.Sprintf("tls://127.0.0.1:%d", port)}
	m.keys = filepath.Join(m.dir, "keys")
	agent, err := freeport.Find()
	m.must("find a port for the agent service", err)
	m.agent = net.JoinHostPort(machineA, strconv.Itoa(agent))
	var cancel context.CancelFunc
	m.ctx, cancel = context.WithTimeout(t.Context(), 2*opsWithin)
	t.Cleanup(cancel)
	m.must("make keys", auth.Init(auth.Config{Dir: m.keys, Hosts: []string{machineA, machineB}, Listen: strings.TrimPrefix(m.nats, "tls://"), Valid: time.Hour}, time.Now()))
	oracle.NATSServerOf(t, filepath.Join(m.keys, auth.ServerConf), port)
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(m.dir, "kafka"), Topics: map[string]int32{host.RatingsTopic: 2, "predictions": 1}})
	m.must("start Kafka", err)
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
	m.kafka = broker.Addr()
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: []string{m.kafka}})
	defer w.Close()
	var recs []kafka.Record
	for i := range 200 {
		recs = append(recs, kafka.Record{Topic: host.RatingsTopic, Partition: int32(i % 2), Value: opsRating(i).AppendJSON(nil)})
	}
	_, err = w.Write(m.ctx, recs...)
	m.must("write ratings", err)
	return m
}

func (m *machines) files(who string) mtls.Files {
	in := func(name string) string { return filepath.Join(m.keys, name) }
	return mtls.Files{Cert: in(who + ".pem"), Key: in(who + ".key"), CA: in(auth.CAFile)}
}

// as is the connection of whoever has the keys.
func (m *machines) as(who string) connect.Config {
	return connect.Config{NATS: m.nats, BZID: "demo", Level: "warn", Keys: m.files(who), Creds: filepath.Join(m.keys, who+".nk")}
}

// shared are the flags that every role has.
func (m *machines) shared(who, at string) []string {
	f := m.files(who)
	return slices.Concat([]string{"--nats", m.nats, "--nats-creds", filepath.Join(m.keys, who+".nk"), "--status", at + ":0"}, f.Args("nats"), f.Args(mtls.Shared))
}

// role starts one, and waits until it is ready where nothing else is needed for that.
func (m *machines) role(name, at string, args ...string) {
	m.t.Helper()
	status := filepath.Join(m.dir, name+"-"+at)
	// As the binary itself: a supervisor starts its model server from it.
	c := opsSpawnLine(m.t, binaryEnv+"=1", slices.Concat([]string{os.Args[0], name}, m.shared(name, at), []string{"--status-file", status}, args)...)
	if name != "portal" {
		return
	}
	m.until(name+" to make the streams", func() (bool, string) {
		select {
		case err := <-c.exited:
			m.t.Fatalf("%s ended: %v\n%s", name, err, c.log.tail(20))
		default:
		}
		return strings.Contains(c.log.String(), "msg=ready"), c.log.tail(3)
	})
}

func (m *machines) supervisor(at, host, container, kind string, args ...string) {
	m.role("tfs-supervisor", at, slices.Concat([]string{"--host", host, "--container", container, "--server-type", kind, "--server-dir", filepath.Join(m.dir, container),
		"--server-arg=--grpc=" + at + ":0", "--server-arg=--http=" + at + ":0", "--server-arg=--rows=" + at + ":0", "--server-arg=--kafka=" + m.kafka}, args)...)
}

// addresses holds that others are told each machine's own.
func (m *machines) addresses(entry string) {
	m.t.Helper()
	if !strings.HasPrefix(entry, machineA+":") {
		m.t.Errorf("the entry is at %s", entry)
	}
	m.job.Fleet.Read(func(f fleet.State) {
		for id, at := range map[string]string{"entry-0": machineA, "serving-0": machineB} {
			c := f.Containers[id].Container.V
			for _, addr := range []string{c.GetGrpcAddress(), c.GetHttpAddress(), c.GetRowsAddress()} {
				if !strings.HasPrefix(addr, at+":") {
					m.t.Errorf("%s is at %q", id, addr)
				}
			}
		}
		if r := f.Shards[host.JobName][0].Ready.V; !strings.HasPrefix(r.GetRowsAddress(), machineB+":") {
			m.t.Errorf("the training shard is at %q", r.GetRowsAddress())
		}
	})
}

// predict asks the entry over TLS, whose rows are on the other machine.
func (m *machines) predict(entry string) {
	m.t.Helper()
	conf, err := m.files("operator").Client()
	m.must("read the operator's keys", err)
	c, err := scenario.Dial(entry, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	m.must("dial the entry", err)
	defer c.Close()
	m.until("a prediction", func() (bool, string) {
		scores, err := c.Score(m.ctx, nil, host.ModelName, "", []rating.Record{{Rating: opsRating(1)}, {Rating: opsRating(2)}})
		return err == nil && len(scores) == 2, fmt.Sprint(scores, err)
	})
	bare, err := scenario.Dial(entry)
	m.must("dial the entry in plain text", err)
	defer bare.Close()
	if scores, err := bare.Score(m.ctx, nil, host.ModelName, "", []rating.Record{{Rating: opsRating(1)}}); err == nil {
		m.t.Errorf("in plain text: %v", scores)
	}
}

// ask has the original's command ask the agent service, which answers over TLS alone.
func (m *machines) ask() {
	m.t.Helper()
	ask := []string{"agent-client", "--cmd_type=hb", "--server_type=ps", "--json", "--target", m.agent}
	if code, out, stderr := opsTool(slices.Concat(ask, m.files("operator").Args("tls"))...); code != exitOK || !strings.Contains(out, machineB+":") {
		m.t.Errorf("the agent service: %d %s%s", code, out, stderr)
	}
	if code, out, _ := opsTool(ask...); code != exitFailure {
		m.t.Errorf("the agent service in plain text: %d %s", code, out)
	}
}

// examine has the doctor look with the reader's keys.
func (m *machines) examine() {
	m.t.Helper()
	m.until("the doctor to find nothing wrong", func() (bool, string) {
		code, out, stderr := opsTool(slices.Concat([]string{"doctor", "--json", "--dir", m.dir, "--kafka", m.kafka, "--nats", m.nats, "--nats-creds", filepath.Join(m.keys, "reader.nk")},
			m.files("reader").Args("nats"))...)
		var all []doctor.Finding
		if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) < 15 {
			m.t.Fatalf("%v: %s%s", err, out, stderr)
		}
		return code == exitOK || !slices.ContainsFunc(all, wrongHere), out
	})
}
