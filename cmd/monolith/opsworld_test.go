package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/projections/lineage"
)

// opsWithin bounds any one wait of these tests, on a loaded machine, and opsLife all waits
// of one stack.
const (
	opsWithin = wait.Patience
	opsLife   = 15 * time.Minute
)

// opsWorld is everything running in this process, with a model that learns and serves.
type opsWorld struct {
	*host.Stack
	t     testing.TB
	ctx   context.Context
	job   *demo.Job
	log   *opsLines
	spec  *model.ModelSpec // what is declared
	entry string           // gRPC address
	sent  int
	at    time.Time          // of every record; zero: when it is written
	value func(i int) []byte // of record i; nil: a rating of a user and a movie
	halt  func()
}

func opsConfig(dir string) host.Config {
	return host.Config{
		Logs: connect.Config{BZID: "demo", Level: "info"}, Dir: dir, Shards: 2, Replicas: 2, Trainers: 2, Partitions: 2, Batch: 32,
		Linger: 5 * time.Millisecond, Sync: 20 * time.Millisecond, Spans: true,
	}
}

// opsStart runs the stack until the test ends or halt is called, and waits for its first
// export. prepare may change the world before a role runs.
func opsStart(t testing.TB, cfg host.Config, prepare ...func(*opsWorld)) *opsWorld {
	t.Helper()
	w := &opsWorld{t: t, log: new(opsLines), spec: modelspec.MovieRanking()}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(context.Background(), opsLife)
	t.Cleanup(cancel)
	cfg.Logs.To = w.log
	var err error
	if w.Stack, err = host.Start(w.ctx, cfg); err != nil {
		t.Fatal(err)
	}
	for _, change := range prepare {
		change(w)
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := w.Run(run, func() {})
		if err != nil {
			cancel() // nothing that is waited for comes
		}
		done <- err
	}()
	w.halt = sync.OnceFunc(func() {
		if w.job != nil {
			if err := w.job.Close(); err != nil {
				t.Errorf("close the job's connection: %v", err)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("the roles ended with %v", err)
		}
		if err := w.Stack.Close(); err != nil {
			t.Errorf("close the logs: %v", err)
		}
	})
	t.Cleanup(func() {
		w.halt()
		if t.Failed() {
			t.Logf("the roles' log:\n%s", w.log.tail(60))
		}
	})
	if w.job, err = demo.OpenJob(w.ctx, w.Config.Logs); err != nil {
		t.Fatal(err)
	}
	w.must("declare the model", w.job.Declare(w.ctx, w.spec))
	_, err = w.job.AwaitExport(w.soon())
	w.must("wait for the first export", err)
	return w
}

// opsServe is opsStart with the model loaded on every replica.
func opsServe(t testing.TB, cfg host.Config, prepare ...func(*opsWorld)) *opsWorld {
	t.Helper()
	w := opsStart(t, cfg, prepare...)
	w.load()
	return w
}

func (w *opsWorld) load() {
	w.t.Helper()
	_, err := w.job.Load(w.soon(), &model.Load{ModelName: host.ModelName, ModelDir: w.Exports(), Job: host.JobName, Replicas: uint32(w.Config.Replicas)})
	w.must("load the model", err)
	entry, err := w.job.AwaitServing(w.soon(), host.ModelName, w.Config.Shards, w.Config.Replicas)
	w.must("wait for every replica", err)
	w.entry = entry.GetGrpcAddress()
}

// soon ends with the test or after opsWithin.
func (w *opsWorld) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.ctx, opsWithin)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *opsWorld) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// until asks again and again for the condition; say names what it still lacks.
func (w *opsWorld) until(what string, cond func() (ok bool, say string)) {
	w.t.Helper()
	wait.Seen(w.t, what, func() (string, bool) { ok, say := cond(); return say, ok })
}

// rating is the i-th of a stream that never ends.
func opsRating(i int) rating.Rating {
	return rating.Rating{User: int64(1 + i%37), Movie: int64(1 + i*7%211), Rating: float64(1 + i%5), Timestamp: int64(1_600_000_000 + i)}
}

// rate writes n more ratings, spread over the partitions, and returns when all are acked.
func (w *opsWorld) rate(n int) {
	w.t.Helper()
	recs := make([]kafka.Record, n)
	for i := range recs {
		recs[i] = w.record(w.sent + i)
	}
	w.sent += n
	w.write(recs...)
}

// write returns when all records are acked.
func (w *opsWorld) write(recs ...kafka.Record) {
	w.t.Helper()
	writer := kafka.NewWriter(kafka.WriterConfig{Brokers: w.Brokers()})
	defer writer.Close()
	_, err := writer.Write(w.soon(), recs...)
	w.must("write records", err)
}

func (w *opsWorld) record(i int) kafka.Record {
	value := w.value
	if value == nil {
		value = func(i int) []byte { return opsRating(i).AppendJSON(nil) }
	}
	return kafka.Record{Topic: w.Config.Topics.Ratings, Time: w.at, Partition: int32(i % w.Config.Partitions), Value: value(i),
		Headers: map[string]string{rating.HeaderStream: "ops", rating.HeaderIndex: fmt.Sprint(i)}}
}

// put writes one raw record to partition 0 and returns its offset.
func (w *opsWorld) put(value string, headers map[string]string) int64 {
	w.t.Helper()
	writer := kafka.NewWriter(kafka.WriterConfig{Brokers: w.Brokers()})
	defer writer.Close()
	out, err := writer.Write(w.soon(), kafka.Record{Topic: w.Config.Topics.Ratings, Value: []byte(value), Headers: headers})
	w.must("write a record", err)
	return out[0].Offset
}

// learnt waits until every shard has everything the topic holds.
func (w *opsWorld) learnt() map[int32]int64 {
	w.t.Helper()
	_, ends, err := kafka.Plain.Bounds(w.soon(), w.Brokers(), w.Config.Topics.Ratings)
	w.must("find the ends of the topic", err)
	ctx, cancel := context.WithTimeout(w.ctx, workEnds) // tens of thousands of records are work, not a wait
	defer cancel()
	w.must("wait for the trainers", w.job.AwaitTrained(ctx, w.Config.Shards, ends, func(int64) {}))
	return ends
}

// agree makes a checkpoint and waits until every replica holds exactly its rows.
func (w *opsWorld) agree() *training.Checkpoint {
	w.t.Helper()
	_, err := w.job.Checkpoint(w.soon(), "compare")
	w.must("checkpoint", err)
	var saved *training.Checkpoint
	w.job.Lineage.Read(func(s lineage.State) {
		all := s.Jobs[host.JobName].Checkpoints
		saved = all[len(all)-1].V
	})
	truth, err := audit.Truth(nil, saved)
	w.must("read the checkpoint", err)
	w.until("the replicas to agree with the checkpoint", func() (bool, string) {
		checks, err := w.job.Agree(w.ctx, host.ModelName, truth, w.Config.Shards)
		return err == nil && len(checks) == w.Config.Shards*w.Config.Replicas && audit.Passed(checks), fmt.Sprint(err, audit.Failed(checks))
	})
	return saved
}

// once checks, by the deltas of each shard, that every offset below ends was learnt once:
// the ranges cover all of it and no two overlap.
func (w *opsWorld) once(ends map[int32]int64) {
	w.t.Helper()
	deltas, err := audit.ReadDeltas(w.soon(), w.job.Bus.Deltas(), w.Config.Logs.BZID, host.JobName, 0)
	w.must("read the deltas", err)
	if deltas.First != 1 || deltas.Missing != 0 {
		w.t.Fatalf("the stream has discarded deltas up to %d and lost %d", deltas.First, deltas.Missing)
	}
	next := map[[2]int64]int64{}
	for _, d := range deltas.All {
		for _, r := range d.GetRanges() {
			key := [2]int64{int64(d.GetShard()), int64(r.GetPartition())}
			if r.GetFrom() != next[key] {
				w.t.Fatalf("shard %d, partition %d: delta %d learnt %d to %d, %d was due", key[0], key[1], d.Seq, r.GetFrom(), r.GetTo(), next[key])
			}
			next[key] = r.GetTo()
		}
	}
	for shard := range w.Config.Shards {
		for p, end := range ends {
			if got := next[[2]int64{int64(shard), int64(p)}]; got != end {
				w.t.Errorf("shard %d published what it learnt of partition %d up to %d of %d", shard, p, got, end)
			}
		}
	}
}

// replayed checks that the log folds to the state that the roles hold.
func (w *opsWorld) replayed() {
	w.t.Helper()
	hashes, err := w.job.LiveHashes(w.soon())
	w.must("ask for hashes", err)
	equal, sentence, err := audit.ReplayEqual(w.soon(), w.job.Bus.Log(), w.job.Conn.BZID, hashes)
	w.must("replay", err)
	if !equal {
		w.t.Error(sentence)
	}
}

func (w *opsWorld) letters() []bus.Parked {
	w.t.Helper()
	all, err := w.job.Bus.DeadLetters().List(w.soon())
	w.must("list the letters", err)
	return all
}

// plain is a NATS connection that knows nothing of this project.
func (w *opsWorld) plain() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.Config.Logs.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	w.must("connect plainly", err)
	w.t.Cleanup(nc.Close)
	return nc
}

// publish stores a raw message and returns its sequence.
func (w *opsWorld) publish(nc *nats.Conn, subject string, body []byte) uint64 {
	w.t.Helper()
	m, err := nc.Request(subject, body, opsWithin)
	w.must("publish on "+subject, err)
	var ack struct {
		Seq   uint64          `json:"seq"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Seq == 0 {
		w.t.Fatalf("publish on %s: %s, %v", subject, m.Data, err)
	}
	return ack.Seq
}

// tool runs one command of the binary against the stack.
func (w *opsWorld) tool(args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	return opsTool(append(args, "--nats", w.Config.Logs.NATS, "--bzid", w.Config.Logs.BZID)...)
}

func opsTool(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// restartNATS takes the embedded server away; the function returned brings it back on
// the same port and folder.
func (w *opsWorld) stopNATS() (start func()) {
	w.t.Helper()
	w.must("stop NATS", w.NATS.Close())
	return func() {
		w.t.Helper()
		var err error
		w.NATS, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(w.Config.Dir, "nats"), Port: w.Config.NATSPort})
		w.must("start NATS again", err)
	}
}

func (w *opsWorld) stopKafka() (start func()) {
	w.t.Helper()
	w.must("stop Kafka", w.Broker.Close())
	return func() {
		w.t.Helper()
		var err error
		w.Broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(w.Config.Dir, "kafka"), Addr: w.Config.Kafka, Topics: w.Topics()})
		w.must("start Kafka again", err)
	}
}

// opsGet is one HTTP GET.
func opsGet(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), errors.Join(err, res.Body.Close())
}

// opsLines is a log in memory.
type opsLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *opsLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *opsLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *opsLines) tail(n int) string {
	all := strings.Split(strings.TrimSpace(l.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

func asRefusal(err error, to **bus.CommandError) bool { return errors.As(err, to) }
