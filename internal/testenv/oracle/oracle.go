// Package oracle gives tests the real counterparts: Apache Kafka, Apache Hadoop's HDFS, Apache ZooKeeper with
// its command line and Curator, HashiCorp Consul, nats-server, the nats CLI, and Python with kazoo and TensorFlow.
// `make oracles` installs them, and `make kube` Kubernetes' control plane. A missing one skips the test, and says so; with CI=true
// it fails, so that a green run means that all of them have answered.
package oracle

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/testenv/zookeeper"
)

// Missing skips t, or fails it where CI=true demands every counterpart.
func Missing(t testing.TB, what, fix string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing and CI must have it: %s", what, fix)
	}
	t.Skipf("SKIPPED, %s is missing: %s", what, fix)
}

// Home is the folder that `make oracles` fills.
func Home(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	home := filepath.Join(filepath.Dir(file), "..", "..", "..", ".oracles")
	abs, err := filepath.Abs(home)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

const fix = "run `make oracles`"

func need(t testing.TB, what, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, what, fix)
	}
	return path
}

// NATS is the path of the nats CLI.
func NATS(t testing.TB) string {
	t.Helper()
	return need(t, "the nats CLI", filepath.Join(Home(t), "bin", "nats"))
}

// environment is a folder, of a Python environment or of jars, that holds what its list names now.
func environment(t testing.TB, what, name, list string) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	wanted, err := os.ReadFile(filepath.Join(filepath.Dir(file), list))
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(Home(t), name)
	if made, err := os.ReadFile(need(t, what, filepath.Join(home, ".complete"))); err != nil || !bytes.Equal(made, wanted) {
		Missing(t, what+" as "+list+" lists it now", fix)
	}
	return home
}

// Python is an interpreter with kazoo, tensorflow and tensorflow_serving.
func Python(t testing.TB) string {
	t.Helper()
	return filepath.Join(environment(t, "Python with kazoo and TensorFlow", "python", "requirements.txt"), "bin", "python")
}

// Triton is an interpreter with tritonclient, NVIDIA's client of the open inference protocol.
func Triton(t testing.TB) string {
	t.Helper()
	return filepath.Join(environment(t, "Python with tritonclient", "triton", "triton-requirements.txt"), "bin", "python")
}

// Torch is an interpreter with PyTorch. It is one of the peers that benchmarks are measured
// beside, of several GB, so t is skipped without it, even where CI=true.
func Torch(t testing.TB) string {
	t.Helper()
	home := filepath.Join(Home(t), "peers", "torch")
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		t.Skip("SKIPPED, Python with PyTorch is missing: run `make peers`")
	}
	return filepath.Join(home, "bin", "python")
}

// Ratings is MovieLens' ratings.csv, real input that is no part of this project: it is
// looked for beside the repository, or where MONOLITH_RATINGS says.
func Ratings(t testing.TB) string {
	t.Helper()
	path := os.Getenv("MONOLITH_RATINGS")
	if path == "" {
		path = filepath.Join(Home(t), "..", "..", "shared", "data", "ml-latest-small", "ratings.csv")
	}
	if _, err := os.Stat(path); err != nil {
		Missing(t, "MovieLens' ratings.csv", "put ml-latest-small into ../shared/data, or name the file in MONOLITH_RATINGS")
	}
	return path
}

// NATSServer starts nats-server with JetStream on disk, fsync before ack, and returns
// its URL. It ends with the test.
func NATSServer(t testing.TB) *Process {
	t.Helper()
	return NATSServerWith(t, "")
}

// NATSServerWith is NATSServer whose configuration says this, too.
func NATSServerWith(t testing.TB, more string) *Process {
	t.Helper()
	bin := need(t, "nats-server", filepath.Join(Home(t), "bin", "nats-server"))
	dir, port := t.TempDir(), freePort(t)
	conf := filepath.Join(dir, "nats.conf")
	write(t, conf, fmt.Sprintf("listen: \"127.0.0.1:%d\"\njetstream { store_dir: %q, sync_interval: always }\n%s", port, filepath.Join(dir, "store"), more))
	p := start(t, "nats-server", port, exec.Command(bin, "-c", conf))
	p.URL = "nats://" + p.Addr
	return p
}

// NATSServerOf starts nats-server by a configuration that listens on a port of 127.0.0.1. It
// ends with the test.
func NATSServerOf(t testing.TB, conf string, port int) *Process {
	t.Helper()
	bin := need(t, "nats-server", filepath.Join(Home(t), "bin", "nats-server"))
	p := start(t, "nats-server", port, exec.Command(bin, "-c", conf))
	p.URL = "tls://" + p.Addr
	return p
}

// Kafka starts one Apache Kafka broker in KRaft mode and returns it; Addr is its
// bootstrap address. It ends with the test.
func Kafka(t testing.TB) *Process {
	t.Helper()
	port := freePort(t)
	return startKafka(t, port, fmt.Sprintf(`listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%%d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
`, port))
}

// startKafka starts one with these listeners, in which the controller's port is left open, and users.
func startKafka(t testing.TB, port int, listeners string, users ...string) *Process {
	t.Helper()
	dir, control := t.TempDir(), freePort(t)
	jars := filepath.Dir(need(t, "Apache Kafka", filepath.Join(Home(t), "kafka", ".complete")))
	conf := filepath.Join(dir, "kafka.properties")
	write(t, conf, fmt.Sprintf(listeners, control)+fmt.Sprintf(kafkaProperties, 1, fmt.Sprintf("1@127.0.0.1:%d", control), filepath.Join(dir, "log"), 1, 1))
	if out, err := exec.Command("java", kafkaFormat(jars, conf, users...)...).CombinedOutput(); err != nil {
		t.Fatalf("format Kafka's storage: %v\n%s", err, out)
	}
	return start(t, "Apache Kafka", port, exec.Command("java", kafkaBroker(jars, conf, 512)...))
}

// kafkaProperties are those of any broker, which is a controller too: its number, all controllers, the
// folder of its log, on how many brokers Kafka's own topics lie and how many of them an ack takes.
const kafkaProperties = `process.roles=broker,controller
node.id=%d
controller.quorum.voters=%s
controller.listener.names=CONTROLLER
log.dirs=%s
offsets.topic.replication.factor=%d
transaction.state.log.replication.factor=%[4]d
transaction.state.log.min.isr=%d
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
`

const quietKafka = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

// kafkaFormat and kafkaBroker are arguments of java.
func kafkaFormat(jars, conf string, users ...string) []string {
	return append([]string{quietKafka, "-cp", filepath.Join(jars, "*"), "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", conf}, users...)
}

func kafkaBroker(jars, conf string, heapMiB int) []string {
	return []string{fmt.Sprintf("-Xmx%dm", heapMiB), quietKafka, "-cp", filepath.Join(jars, "*"), "kafka.Kafka", conf}
}

// KafkaTool is one of Apache Kafka's commands, by its class.
func KafkaTool(t testing.TB, class string) func(args ...string) *exec.Cmd {
	t.Helper()
	jars := filepath.Join(Home(t), "kafka")
	need(t, "Apache Kafka's tools", filepath.Join(jars, "kafka-tools-3.9.1.jar"))
	return func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "java", append([]string{"-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(jars, "*"), class}, args...)...)
	}
}

// ZKCli runs Apache's command line against addr with one command per line of script.
func ZKCli(t testing.TB, addr, script string) string {
	t.Helper()
	cmd := ZKCliCommand(t, addr)
	cmd.Stdin = bytes.NewBufferString(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("zkCli: %v\n%s", err, out)
	}
	return string(out)
}

// ZKCliCommand is Apache's command line against addr, to be started: it reads commands
// from its standard input until "quit". It ends with the test.
func ZKCliCommand(t testing.TB, addr string) *exec.Cmd {
	t.Helper()
	needZooKeeper(t)
	return exec.CommandContext(t.Context(), "java", "-cp", zookeeper.Classes, "org.apache.zookeeper.ZooKeeperMain", "-server", addr)
}

// Process is a real server that a test has started.
type Process struct {
	Addr, URL string
	what      string
	out       syncBuffer
	mu        sync.Mutex
	cmd       *exec.Cmd
	exited    chan struct{}
}

// Kill ends the server at once, as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Kill() // already gone is as good
	<-p.exited
}

// Restart starts the server again after Kill, on the same address and the same data, and
// waits until it answers.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.Kill()
	p.launch(t)
}

// start runs cmd and waits until the server answers. It ends with the test.
func start(t testing.TB, what string, port int, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), what: what, cmd: cmd}
	p.launch(t)
	t.Cleanup(p.Kill)
	return p
}

// launch runs the command once and waits until it answers.
func (p *Process) launch(t testing.TB) {
	t.Helper()
	cmd := exec.Command(p.cmd.Path, p.cmd.Args[1:]...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.what, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	p.mu.Lock()
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()
	p.await(t)
}

// begins is how long a server may take to answer: most are Java programs, whose beginning is
// work for a processor, not a wait, and takes as many times longer as others share it.
const begins = 3 * wait.Patience

// await waits until the server answers, and kills it if it does not.
func (p *Process) await(t testing.TB) {
	t.Helper()
	deadline := time.NewTimer(begins)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !connects(p.Addr) {
		select {
		case <-p.exited:
			t.Fatalf("%s ended at once:\n%s", p.what, p.out.String())
		case <-deadline.C:
			p.Kill()
			t.Fatalf("%s does not answer on %s:\n%s", p.what, p.Addr, p.out.String())
		case <-tick.C:
		}
	}
}

func connects(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
