package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/planted"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/report"
)

// binaryEnv makes this test binary behave as monolith: the tests kill real processes.
const binaryEnv = "MONOLITH_TEST_AS_BINARY"

// raceEnv holds the race detector's options of the processes that tests start.
const raceEnv = "GORACE"

func TestMain(m *testing.M) {
	if natstest.Node() {
		return
	}
	if os.Getenv(binaryEnv) == "1" {
		os.Exit(run(arguments(os.Args), os.Stdout, os.Stderr))
	}
	// The race detector has each process sleep for a second before it exits, which the many
	// processes of these tests need not.
	if os.Getenv(raceEnv) == "" {
		if err := os.Setenv(raceEnv, "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// ratingsCSV writes n simulated ratings as MovieLens does, and broken rows among them.
func ratingsCSV(t testing.TB, n int, broken ...string) string {
	t.Helper()
	sim, err := gen.NewSimulator(gen.SimulatorConfig{Seed: 7, Count: n})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "userId,movieId,rating,timestamp")
	for i := 0; ; i++ {
		r, ok := sim.Next()
		if !ok {
			break
		}
		if i < len(broken) {
			fmt.Fprintln(&b, broken[i])
		}
		fmt.Fprintf(&b, "%d,%d,%g,%d\n", r.User, r.Movie, r.Rating, r.Timestamp)
	}
	path := filepath.Join(t.TempDir(), "ratings.csv")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// child is a monolith process of its own.
type child struct {
	cmd   *exec.Cmd
	out   bytes.Buffer
	err   opsLines // may be read while it writes
	done  chan struct{}
	state error // of Wait; read after done
}

func startChild(t testing.TB, args ...string) *child {
	t.Helper()
	return startProgram(t, os.Args[0], args...)
}

// startProgram is startChild for any program.
func startProgram(t testing.TB, program string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(program, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), binaryEnv+"=1", "MONOLITH_NATS=", "MONOLITH_KAFKA=")
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.state = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(c.kill)
	return c
}

// kill is kill -9, and returns once the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // gone already is as good
	<-c.done
}

// wait returns the exit's error, nil for 0.
func (c *child) wait(t testing.TB, within time.Duration) error {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.state
	case <-timer.C:
		c.kill()
		t.Fatalf("%s did not end within %v:\n%s", strings.Join(c.cmd.Args[1:], " "), within, tail(c.err.String()))
		return nil
	}
}

func tail(s string) string { return s[max(0, len(s)-6000):] }

// played is a demo run in a folder of its own.
type played struct {
	dir, data string
	args      []string
	extra     []string // of verify
	broker    string   // "": the demo's own
}

func newPlayed(t testing.TB, data string, args ...string) *played {
	p := &played{dir: filepath.Join(t.TempDir(), "data"), data: data}
	p.args = append([]string{"demo", "--dir", p.dir, "--data", data, "--json", "--nats-port", "0", "--kafka-port", "0", "--zk-port", "0",
		"--grpc-port", "0", "--rest-port", "0", "--load", "20"}, args...)
	return p
}

// streaming says whether the stream has begun: ratings are in Kafka's files, or in the topic of another broker.
func (p *played) streaming() bool {
	if p.broker != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, ends, err := kafka.Plain.Bounds(ctx, []string{p.broker}, host.RatingsTopic)
		return err == nil && slices.Max(append(slices.Collect(maps.Values(ends)), 0)) > 0
	}
	segments, _ := filepath.Glob(filepath.Join(p.dir, "kafka", "*ratings*", "*"))
	more, _ := filepath.Glob(filepath.Join(p.dir, "kafka", "*", "*ratings*", "*"))
	for _, s := range append(segments, more...) {
		if info, err := os.Stat(s); err == nil && !info.IsDir() && info.Size() > 2000 {
			return true
		}
	}
	return false
}

// demoEnds and workEnds are for programs that compute, and take as many times longer as others
// share the processors.
const (
	demoEnds = 8 * time.Minute
	workEnds = 6 * time.Minute
)

// finish runs the demo to its end and holds its report against the issue's promises and
// against the logs.
func (p *played) finish(t testing.TB, c *child, ratings, rejected int64) *report.Report {
	t.Helper()
	if err := c.wait(t, demoEnds); err != nil {
		t.Fatalf("demo: %v\n%s", err, tail(c.err.String()))
	}
	return p.hold(t, c.out.Bytes(), ratings, rejected)
}

func (p *played) hold(t testing.TB, out []byte, ratings, rejected int64) *report.Report {
	t.Helper()
	var keys map[string]json.RawMessage
	var r report.Report
	if err := errors.Join(json.Unmarshal(out, &keys), json.Unmarshal(out, &r)); err != nil {
		t.Fatalf("the report is no JSON object: %v\n%s", err, out)
	}
	for _, k := range []string{"ratings_read", "ratings_trained", "ratings_rejected", "auc_online", "auc_frozen", "freshness_ms", "predict",
		"events", "replay_hash_equal", "replicas_agree", "model_version", "seconds"} {
		if keys[k] == nil {
			t.Errorf("the report lacks %s", k)
		}
	}
	if r.RatingsRead != ratings+rejected || r.RatingsTrained != ratings || r.RatingsRejected != rejected {
		t.Errorf("read %d, trained %d, rejected %d; want %d, %d, %d", r.RatingsRead, r.RatingsTrained, r.RatingsRejected, ratings+rejected, ratings, rejected)
	}
	if !r.ReplayHashEqual || !r.ReplicasAgree {
		t.Errorf("replay hash equal %t, replicas agree %t", r.ReplayHashEqual, r.ReplicasAgree)
	}
	v := startChild(t, append([]string{"verify", "--dir", p.dir, "--data", p.data, "--json"}, p.extra...)...)
	verr := v.wait(t, workEnds)
	var said struct {
		OK     bool          `json:"ok"`
		Checks []audit.Check `json:"checks"`
	}
	if err := json.Unmarshal(v.out.Bytes(), &said); err != nil {
		t.Fatalf("verify: %v, %v\n%s", verr, err, tail(v.err.String()))
	}
	for _, check := range said.Checks {
		if !check.OK {
			t.Errorf("verify: %s", check)
		}
	}
	if verr != nil || !said.OK || len(said.Checks) < 25 {
		t.Errorf("verify: %v, ok %t after %d checks", verr, said.OK, len(said.Checks))
	}
	return &r
}

// TestDemo is the slice in one process, on ratings with broken rows among them.
func TestDemo(t *testing.T) {
	data := ratingsCSV(t, 3000, "1,2,three,964982703", "7,8", "1,2,99,964982703")
	p := newPlayed(t, data, "--rate", "1000")
	var out, errs bytes.Buffer
	if code := run(p.args, &out, &errs); code != exitOK {
		t.Fatalf("exit %d\n%s", code, tail(errs.String()))
	}
	r := p.hold(t, out.Bytes(), 3000, 3)
	if r.Freshness.Samples == 0 || !r.Freshness.P99.Known() {
		t.Errorf("freshness of %d samples: %v", r.Freshness.Samples, r.Freshness.P99)
	}
	for _, name := range []string{"report.html", "report.json", audit.AckFile} {
		if _, err := os.Stat(filepath.Join(p.dir, "report", name)); err != nil {
			t.Error(err)
		}
	}
}

// TestDemoRealRatings is the slice on the head of the real file.
func TestDemoRealRatings(t *testing.T) {
	all, err := os.ReadFile(oracle.Ratings(t))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfterN(string(all), "\n", 4002)
	data := filepath.Join(t.TempDir(), "ratings.csv")
	if err := os.WriteFile(data, []byte(strings.Join(lines[:4001], "")), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newPlayed(t, data, "--rate", "1000")
	p.finish(t, startChild(t, p.args...), 4000, 0)
}

// TestDemoExternal is the slice as processes of their own around a nats-server and an
// Apache Kafka broker, which asks for a password over TLS.
func TestDemoExternal(t *testing.T) {
	nats, authority := oracle.NATSServer(t), certs.NewAuthority(t)
	broker := oracle.StartSecureKafka(t, authority)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(oracle.Scram512+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPlayed(t, ratingsCSV(t, 2000), "--rate", "400", "--processes")
	p.extra = []string{"--nats", nats.URL, "--kafka", broker.SASL, "--kafka-tls-ca", authority.Issue("client").CA,
		"--kafka-sasl-mechanism", "SCRAM-SHA-512", "--kafka-sasl-user", oracle.KafkaUser, "--kafka-sasl-password-file", password}
	p.args = append(p.args, p.extra...)
	p.finish(t, startChild(t, p.args...), 2000, 0)
	d := startChild(t, append([]string{"doctor", "--dir", p.dir}, p.extra...)...)
	_ = d.wait(t, 2*time.Minute) // no role runs any more, which is wrong
	if said := d.out.String(); !strings.Contains(said, "topic ratings") || strings.Contains(said, "kafka-is-away") {
		t.Errorf("doctor: %s%s", said, d.err.String())
	}
}

// pid is the process of a task that parent has started, 0 while it has none. A status
// file may be older than both: what it names can be anybody's process by now.
func (p *played) pid(task string, parent int) int {
	raw, err := os.ReadFile(filepath.Join(p.dir, "status", task+".json"))
	if err != nil {
		return 0
	}
	var s host.ProcessStatus
	if json.Unmarshal(raw, &s) != nil || !childOf(s.PID, parent) {
		return 0
	}
	return s.PID
}

// until polls cond, for what the file system alone can tell.
func until(t testing.TB, c *child, what string, cond func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), workEnds)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-c.done:
			return false
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s\n%s", what, tail(c.err.String()))
		}
	}
	return true
}

var killable = []string{"portal", "publisher", "replica-registry", "model-sync", "entry-0", "serving-0-0", "serving-1-1", "ps-0", "ps-1", "trainer-0", "trainer-1"}

// killRoles kills each task some time after its predecessor is up again, while ratings stream, and
// returns how many it killed before the demo ended.
func killRoles(t testing.TB, p *played, c *child, after time.Duration, tasks ...string) (killed int) {
	t.Helper()
	if !until(t, c, "the stream", p.streaming) {
		return killed
	}
	for _, task := range tasks {
		var pid int
		if !until(t, c, task+" to be up", func() bool { pid = p.pid(task, c.cmd.Process.Pid); return pid != 0 }) {
			return killed
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-c.done:
			timer.Stop()
			return killed
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		killed++
		t.Logf("killed %s (%d)", task, pid)
		if !until(t, c, task+" to be up again", func() bool { now := p.pid(task, c.cmd.Process.Pid); return now != 0 && now != pid }) {
			return killed
		}
	}
	return killed
}

// TestKillEachRole kills -9 every role in turn. No rating is lost or learnt twice, and
// the replicas end up with the training shards' rows.
func TestKillEachRole(t *testing.T) {
	p := newPlayed(t, ratingsCSV(t, 9000), "--rate", "300", "--processes", "--checkpoint-interval", "2s")
	c := startChild(t, p.args...)
	if killed := killRoles(t, p, c, 0, killable...); killed < len(killable) {
		t.Errorf("the demo ended when %d of %d roles had been killed: give it more ratings", killed, len(killable))
	}
	p.finish(t, c, 9000, 0)
}

// killWhole kills the whole process some time into the stream, and checks that none of
// its children outlives it.
func killWhole(t testing.TB, p *played, after time.Duration) {
	t.Helper()
	c := startChild(t, p.args...)
	if !until(t, c, "the stream", p.streaming) {
		return // it was quicker
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.done:
	}
	var pids []int
	for _, task := range killable {
		if pid := p.pid(task, c.cmd.Process.Pid); pid != 0 {
			pids = append(pids, pid)
		}
	}
	c.kill()
	for _, pid := range pids {
		gone := make(chan struct{})
		until(t, &child{done: gone, cmd: c.cmd}, "process "+strconv.Itoa(pid)+" to follow its parent", func() bool {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
		})
	}
}

// TestKillWhole kills -9 everything at random moments and starts the same command again.
func TestKillWhole(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, mode := range []string{"--processes=false", "--processes=true"} {
		t.Run(mode, func(t *testing.T) {
			p := newPlayed(t, ratingsCSV(t, 4000), "--rate", "800", "--checkpoint-interval", "1s", mode)
			for range 2 {
				killWhole(t, p, time.Duration(rng.IntN(1500))*time.Millisecond)
			}
			p.finish(t, startChild(t, p.args...), 4000, 0)
		})
	}
}

// soakRounds is how many disturbances MONOLITH_SOAK asks for, and the seed that draws them.
func soakRounds(t *testing.T) (n int, seed uint64) {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("MONOLITH_SOAK"))
	if err != nil || n < 1 {
		t.Skip("MONOLITH_SOAK says no number: make soak sets it")
	}
	seed = uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("MONOLITH_SOAK_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (MONOLITH_SOAK_SEED repeats it)", seed)
	return n, seed
}

// TestSoak kills at MONOLITH_SOAK random moments: roles, or everything.
func TestSoak(t *testing.T) {
	kills, seed := soakRounds(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := 0; kills > 0; round++ {
		t.Run(fmt.Sprint("round", round), func(t *testing.T) {
			p := newPlayed(t, ratingsCSV(t, 6000), "--rate", "400", "--processes", "--checkpoint-interval", "1s")
			for range min(kills, 2) {
				kills--
				killWhole(t, p, time.Duration(rng.IntN(4000))*time.Millisecond)
			}
			c := startChild(t, p.args...)
			var tasks []string
			for range min(kills, 4) {
				tasks = append(tasks, killable[rng.IntN(len(killable))])
			}
			kills -= killRoles(t, p, c, 0, tasks...)
			p.finish(t, c, 6000, 0)
		})
	}
}

// learners are what learns.
var learners = []string{"ps-0", "ps-1", "trainer-0", "trainer-1"}

// TestKillsBesideKafka kills -9 trainers and shards at random moments while they learn from Apache Kafka:
// MONOLITH_SOAK times, or 4. Each rating is learnt exactly once, which verify reads from the logs. A round is a kill,
// and what was killed is up again before the next; some rounds share a run of the demo, and a broker.
func TestKillsBesideKafka(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("MONOLITH_SOAK"))
	if err != nil || rounds < 1 {
		rounds = 4
	}
	rng := rand.New(rand.NewPCG(soakSeed(t), 0))
	for killed := 0; killed < rounds && !t.Failed(); {
		t.Run(fmt.Sprint("from round ", killed), func(t *testing.T) {
			broker, began := oracle.Kafka(t), time.Now()
			p := newPlayed(t, ratingsCSV(t, 8000), "--rate", "300", "--processes", "--checkpoint-interval", "1s")
			p.broker, p.extra = broker.Addr, []string{"--kafka", broker.Addr}
			p.args = append(p.args, p.extra...)
			c := startChild(t, p.args...)
			now := 0
			for range min(rounds-killed, 8) {
				now += killRoles(t, p, c, time.Duration(rng.IntN(1000))*time.Millisecond, learners[rng.IntN(len(learners))])
			}
			p.finish(t, c, 8000, 0)
			if now == 0 {
				t.Fatal("the demo ended before anything was killed: give it more ratings")
			}
			killed += now
			t.Logf("%d rounds in %v", now, time.Since(began).Round(time.Second))
		})
	}
}

// TestDeterministicTwin trains the same ratings twice, once while shards and a trainer
// are killed -9: both end with the same bits.
func TestDeterministicTwin(t *testing.T) { deterministicTwin(t, func(*opsWorld) {}) }

// TestDeterministicTwinOfDeepFM does so with crossed factors and a tower.
func TestDeterministicTwinOfDeepFM(t *testing.T) {
	spec, err := specfile.Read(filepath.Join(repository, "docs", "models", "deepfm.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	deterministicTwin(t, func(w *opsWorld) {
		w.spec = spec
		w.value = func(i int) []byte { return planted.Draw(rand.New(rand.NewPCG(9, uint64(i))), "deepfm").AppendJSON(nil) }
	})
}

func deterministicTwin(t *testing.T, prepare func(*opsWorld)) {
	t.Setenv(binaryEnv, "1") // the children of this process are monolith
	const batches = 160      // of each partition
	const portion = 16       // of them, written before each cut, between cut and kill, and so on
	born := time.Now()       // rows carry their records' time, which is part of the input
	train := func(t *testing.T, victims ...string) []string {
		cfg := opsConfig(filepath.Join(t.TempDir(), "data"))
		cfg.Processes, cfg.Deterministic, cfg.Replicas, cfg.Checkpoints = true, true, 1, 0 // cuts on request only
		w := opsStart(t, cfg, prepare)
		w.at = born
		batch := cfg.Batch * cfg.Partitions
		p := &played{dir: cfg.Dir}
		for _, task := range victims {
			// A cut; then something learnt that the kill takes back; and more to come.
			w.rate(portion * batch)
			w.learnt()
			_, err := w.job.Checkpoint(w.soon(), "before the kill")
			w.must("checkpoint", err)
			cut := int64(w.sent)
			w.rate(portion * batch)
			w.until("something learnt behind the cut", func() (bool, string) {
				least, err := w.job.Trained(w.ctx, cfg.Shards)
				var sum int64
				for _, next := range least {
					sum += next
				}
				return err == nil && sum > cut, fmt.Sprint(sum, err)
			})
			var pid int
			w.until(task+" to be up", func() (bool, string) { pid = p.pid(task, os.Getpid()); return pid != 0, "it is not" })
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatalf("kill %s: %v", task, err)
			}
		}
		w.rate(batches*batch - w.sent)
		w.learnt()
		var hashes []string
		for i := range cfg.Shards {
			var h struct {
				Hash string `json:"hash"`
				Turn uint64 `json:"turn"`
			}
			w.must("ask for the hash", w.job.Call(w.soon(), fmt.Sprintf("ps.%s.%d.hash", host.JobName, i), struct{}{}, &h))
			if h.Turn != uint64(batches*cfg.Partitions) {
				t.Errorf("shard %d stands at turn %d of %d", i, h.Turn, batches*cfg.Partitions)
			}
			hashes = append(hashes, h.Hash)
		}
		return hashes
	}
	var quiet, killed []string
	t.Run("undisturbed", func(t *testing.T) { quiet = train(t) })
	t.Run("killed", func(t *testing.T) { killed = train(t, "ps-0", "trainer-0", "ps-1", "ps-0") })
	if fmt.Sprint(quiet) != fmt.Sprint(killed) || len(quiet) != 2 {
		t.Errorf("the twins differ: %v and %v", quiet, killed)
	}
}
