package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/scenario"
	"github.com/monolith-go/monolith/projections/fleet"
)

// ackedWrites is what the logs have promised to keep: every write whose ack arrived.
type ackedWrites struct {
	mu      sync.Mutex
	next    int               // number of the next write, so that no two are alike
	facts   map[uint64]string // sequence -> event id
	ratings map[[2]int64]string
	odd     []error // what no kill explains
}

func (a *ackedWrites) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	return a.next
}

func (a *ackedWrites) count() (facts, ratings int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.facts), len(a.ratings)
}

func (a *ackedWrites) note(record func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	record()
}

// fact appends events until ctx ends.
func (a *ackedWrites) fact(ctx context.Context, log bus.Log) {
	for ctx.Err() == nil {
		n := a.number()
		id := "acked-" + strconv.Itoa(n)
		seqs, err := log.Append(ctx, bus.Draft{Subject: events.Join("demo", "training", "acked"), Expect: bus.Any, Header: events.Header{ID: id, Source: "test"},
			Event: &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{Name: "acked", Value: float64(n), Samples: 1}}}})
		switch {
		case err == nil:
			a.note(func() { a.facts[seqs[0]] = id })
		case !bus.Retryable(err) && ctx.Err() == nil:
			a.note(func() { a.odd = append(a.odd, err) })
			return
		}
	}
}

// rate writes ratings until ctx ends.
func (a *ackedWrites) rate(ctx context.Context, brokers []string, partition int32) {
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: brokers})
	defer w.Close()
	for ctx.Err() == nil {
		recs := make([]kafka.Record, 5)
		for i := range recs {
			recs[i] = kafka.Record{Topic: host.RatingsTopic, Partition: partition, Value: opsRating(a.number()).AppendJSON(nil)}
		}
		out, err := w.Write(ctx, recs...)
		if err != nil {
			if !errors.Is(err, kafka.ErrUnavailable) && !errors.Is(err, kafka.ErrUnknown) && ctx.Err() == nil {
				a.note(func() { a.odd = append(a.odd, err) })
				return
			}
			continue
		}
		a.note(func() {
			for _, r := range out {
				a.ratings[[2]int64{int64(r.Partition), r.Offset}] = string(r.Value)
			}
		})
	}
}

// write starts strangers that write facts and ratings to what runs at `at`. stop returns
// once the last of them has given up.
func (a *ackedWrites) write(t testing.TB, at host.Running, partitions int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	conn := connect.Config{NATS: at.NATS, BZID: "demo"}
	b, err := conn.Dial(ctx, "monolith test")
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for range 3 {
		writing.Go(func() { a.fact(ctx, b.Log()) })
	}
	for p := range partitions {
		writing.Go(func() { a.rate(ctx, flags.List(at.Kafka), int32(p)) })
	}
	return func() {
		cancel()
		writing.Wait()
		_ = b.Close() // its server is gone
	}
}

// kept checks that everything acked is in the logs as it was, and that no shard learnt a
// rating twice or not at all.
func (a *ackedWrites) kept(t testing.TB, w *opsWorld) {
	t.Helper()
	if err := errors.Join(a.odd...); err != nil {
		t.Errorf("refused writes: %v", err)
	}
	ends := w.learnt()
	w.agree()
	w.replayed()
	facts, ratings := a.count()
	t.Logf("%d facts and %d ratings were acked, the topic ends at %v", facts, ratings, ends)
	last, err := w.job.Bus.Log().Last(w.soon())
	w.must("find the end", err)
	w.must("read the log", w.job.Bus.Log().Follow(w.soon(), 1, last, func(r events.Recorded) error {
		if id, ok := a.facts[r.Seq]; ok && id == r.Header.ID && r.Err == nil {
			delete(a.facts, r.Seq)
		}
		return nil
	}))
	_, _, err = kafka.Plain.Scan(w.soon(), w.Brokers(), host.RatingsTopic, func(r kafka.Record) error {
		if key := [2]int64{int64(r.Partition), r.Offset}; a.ratings[key] == string(r.Value) {
			delete(a.ratings, key)
		}
		return nil
	})
	w.must("read the topic", err)
	if len(a.facts) > 0 || len(a.ratings) > 0 {
		t.Errorf("lost or changed although acked: %d facts %v, %d ratings %v", len(a.facts), a.facts, len(a.ratings), a.ratings)
	}
	deltas, err := audit.ReadDeltas(w.soon(), w.job.Bus.Deltas(), "demo", host.JobName, 0)
	w.must("read the deltas", err)
	h, err := audit.ReadHistory(w.soon(), w.job.Bus.Log(), "demo", host.JobName, 0)
	w.must("read the history", err)
	if deltas.Missing > 0 {
		t.Errorf("%d deltas are missing within their stream", deltas.Missing)
	}
	for shard := range uint32(w.Config.Shards) {
		if c := audit.Tiles(deltas.All, shard, h.Ready[shard], ends, deltas.First); !c.OK {
			t.Error(c)
		}
	}
}

// upArgs starts everything in a folder on free ports.
func upArgs(cfg host.Config, more ...string) []string {
	args := []string{"up", "--dir", cfg.Dir, "--partitions", strconv.Itoa(cfg.Partitions), "--replicas", strconv.Itoa(cfg.Replicas),
		"--batch", strconv.Itoa(cfg.Batch), "--checkpoint-interval", "1s"}
	for _, p := range []string{"nats", "kafka", "zk", "grpc", "rest"} {
		args = append(args, "--"+p+"-port", "0")
	}
	return append(args, more...)
}

// announced waits until c holds the folder and says where it is.
func announced(t testing.TB, c *child, dir string) (at host.Running) {
	t.Helper()
	if !until(t, c, "running.json", func() bool {
		r, err := host.ReadRunning(dir)
		at = r
		return err == nil && r.PID == c.cmd.Process.Pid
	}) {
		t.Fatalf("it ended at once: %v\n%s", c.state, tail(c.err.String()))
	}
	return at
}

// TestAckedOutlivesKill kills everything -9 while strangers write facts and ratings.
// Whatever was acked is there afterwards as it was, and each rating is learnt once.
func TestAckedOutlivesKill(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cfg := opsConfig(filepath.Join(t.TempDir(), "data"))
	cfg.Checkpoints, cfg.Spans = time.Second, false
	acked := &ackedWrites{facts: map[uint64]string{}, ratings: map[[2]int64]string{}}
	for life, mode := range []string{"--processes=false", "--processes=true"} {
		c := startChild(t, upArgs(cfg, mode)...)
		stop := acked.write(t, announced(t, c, cfg.Dir), cfg.Partitions)
		until(t, c, "acks", func() bool {
			facts, ratings := acked.count()
			return facts >= 100*(life+1) && ratings >= 200*(life+1)
		})
		timer := time.NewTimer(time.Duration(rng.IntN(2500)) * time.Millisecond)
		select {
		case <-timer.C:
		case <-c.done:
			t.Errorf("it ended by itself: %v\n%s", c.state, tail(c.err.String()))
		}
		c.kill()
		stop()
	}
	acked.kept(t, opsServe(t, cfg))
}

// TestNoOrphans kills the parent of many processes: all of them follow it, also the
// model servers, which are its grandchildren, and the next start has the same folder and
// the same ports.
func TestNoOrphans(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"up", "--processes", "--dir", dir, "--replicas", "1"}
	for _, p := range []string{"nats", "kafka", "zk", "grpc", "rest"} {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--"+p+"-port", strconv.Itoa(port))
	}
	const expected = 11 + 3 // roles and model servers
	var before host.Running
	c := startChild(t, args...)
	for life := range 3 {
		at := announced(t, c, dir)
		if life > 0 && (at.NATS != before.NATS || at.Kafka != before.Kafka) {
			t.Errorf("the second start is at %s and %s, the first was at %s and %s", at.NATS, at.Kafka, before.NATS, before.Kafka)
		}
		before = at
		var all []procID
		until(t, c, "every process to be ready", func() bool {
			all = descendants(c.cmd.Process.Pid)
			code, _, err := opsGet(t.Context(), "http://"+at.Status+"/readyz")
			return err == nil && code == http.StatusOK && len(all) >= expected
		})
		c.kill()
		if note := c.err.String(); strings.Contains(note, "is taken") {
			t.Errorf("life %d did not get its ports:\n%s", life, tail(note))
		}
		if life < 2 {
			c = startChild(t, args...) // at once, as a person would
		}
		var left []procID
		gone := make(chan struct{})
		until(t, &child{cmd: c.cmd, done: gone}, "the children to follow their parent", func() bool {
			left = left[:0]
			for _, p := range all {
				if p.alive() {
					left = append(left, p)
				}
			}
			return len(left) == 0
		})
		if len(all) != expected || len(left) > 0 {
			t.Errorf("life %d: %d processes, want %d; left behind: %v\n%s", life, len(all), expected, left, tail(c.err.String()))
		}
	}
}

// TestWithheldLoad trains without a load request: Predict answers NOT_FOUND to the end,
// and the first load is all that it takes to serve.
func TestWithheldLoad(t *testing.T) {
	cfg := opsConfig(filepath.Join(t.TempDir(), "data"))
	cfg.Replicas, cfg.Spans = 1, false
	w := opsStart(t, cfg)
	client, err := scenario.Dial(net.JoinHostPort("127.0.0.1", strconv.Itoa(w.Config.GRPCPort)))
	w.must("dial", err)
	defer client.Close()
	predict := func() error {
		ctx, cancel := context.WithTimeout(w.ctx, wait.Patience)
		defer cancel()
		_, err := predictPairs(client, ctx, host.ModelName, "", []int64{1}, []int64{1})
		return err
	}
	w.until("the entry to answer", func() (bool, string) {
		err := predict()
		return status.Code(err) == codes.NotFound, fmt.Sprint(err)
	})
	for range 3 {
		w.rate(300)
		w.learnt()
		if _, err := w.job.Checkpoint(w.soon(), "nothing is served"); err != nil {
			t.Fatal(err)
		}
		if err := predict(); status.Code(err) != codes.NotFound {
			t.Fatalf("Predict without a load request: %v", err)
		}
	}
	w.job.Fleet.Read(func(s fleet.State) {
		if len(s.Replicas) > 0 {
			t.Errorf("nobody asked for replicas: %v", s.Replicas)
		}
	})
	w.load()
	w.until("a prediction", func() (bool, string) {
		err := predict()
		return err == nil, fmt.Sprint(err)
	})
}
