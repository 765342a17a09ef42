package trainer

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// world is everything around the trainers.
type world struct {
	t      *testing.T
	b      *mem.Bus
	broker *kafka.Broker
	writer *kafka.Writer
	dir    string
	logDir string // the broker's
	shards []*fakeShard
	mu     sync.Mutex // guards all below
	ends   []int64
	fids   [][][]int64 // partition, offset: fids of the record; nil: it is broken
	broken map[string]bool
}

func newWorld(t *testing.T, partitions, shards int) *world {
	w := &world{
		t: t, b: mem.New(), dir: t.TempDir(), broken: map[string]bool{},
		ends: make([]int64, partitions), fids: make([][][]int64, partitions),
	}
	t.Cleanup(func() { w.b.Close() })
	w.logDir = t.TempDir()
	port, err := freeport.Find() // the broker comes back there
	if err != nil {
		t.Fatal(err)
	}
	w.broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: w.logDir, Addr: fmt.Sprint("127.0.0.1:", port), Topics: map[string]int32{"ratings": int32(partitions)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.broker.Close() })
	w.writer = kafka.NewWriter(kafka.WriterConfig{Brokers: []string{w.broker.Addr()}})
	t.Cleanup(func() { w.writer.Close() })
	startRegistry(t, w.b)
	spec := trainertest.SmallSpec()
	w.append(events.Join(bzid, "model", spec.GetName()), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	for i := range shards {
		w.shards = append(w.shards, newFakeShard(t, w.b, i, shards, w.truth))
	}
	return w
}

func (w *world) append(s events.Subject, e proto.Message) uint64 {
	w.t.Helper()
	seqs, err := w.b.Log().Append(w.t.Context(), bus.Draft{Subject: s, Event: e, Expect: bus.Any})
	if err != nil {
		w.t.Fatal(err)
	}
	return seqs[0]
}

// write puts n records into every partition, every tenth of them broken.
func (w *world) write(n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := []string{`{"userId":1}`, `not json`, `{"userId":1.5,"movieId":2,"rating":3}`, `{"userId":-1,"movieId":2,"rating":3}`, `[]`, `{"userId":1,"movieId":281474976710656,"rating":3}`}
	var recs []kafka.Record
	for p := range w.ends {
		for range n {
			i := len(w.fids[p])
			user, movie := int64(1000*p+i%37), int64(i%53)
			v, fids := fmt.Sprintf(`{"userId":%d,"movieId":"%d","rating":%d}`, user, movie, i%6), []int64{modelspec.FID(1, user), modelspec.FID(2, movie)}
			if i%10 == 7 {
				v, fids = bad[i/10%len(bad)], nil
				w.broken[fmt.Sprintf("kafka:ratings/%d %d", p, i)] = true
			}
			w.fids[p] = append(w.fids[p], fids)
			recs = append(recs, kafka.Record{Topic: "ratings", Partition: int32(p), Value: []byte(v)})
		}
		w.ends[p] += int64(n)
	}
	if _, err := w.writer.Write(w.t.Context(), recs...); err != nil {
		w.t.Fatal(err)
	}
}

// loseBatches takes the last n writes from the log of partition 0 while the broker is
// down, as an older copy of its folder would.
func (w *world) loseBatches(n int) {
	w.t.Helper()
	addr := w.broker.Addr()
	if err := w.broker.Close(); err != nil {
		w.t.Fatal(err)
	}
	segment := filepath.Join(w.logDir, "partitions", "ratings-0", "0.dat")
	raw, err := os.ReadFile(segment)
	if err != nil {
		w.t.Fatal(err)
	}
	var at []int
	for pos := 0; pos < len(raw); pos += 12 + int(binary.BigEndian.Uint32(raw[pos+8:])) {
		at = append(at, pos)
	}
	cut := at[len(at)-n]
	w.mu.Lock()
	w.ends[0] = int64(binary.BigEndian.Uint64(raw[cut:]))
	w.fids[0] = w.fids[0][:w.ends[0]]
	w.mu.Unlock()
	if err := os.WriteFile(segment, raw[:cut], 0o644); err != nil {
		w.t.Fatal(err)
	}
	if w.broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: w.logDir, Addr: addr}); err != nil {
		w.t.Fatal(err)
	}
	w.writer.Close()
	w.writer = kafka.NewWriter(kafka.WriterConfig{Brokers: []string{addr}})
}

// bounce takes the broker down and up again: it leads anew.
func (w *world) bounce() {
	w.t.Helper()
	addr := w.broker.Addr()
	err := w.broker.Close()
	if err == nil {
		w.broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: w.logDir, Addr: addr})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.writer.Close()
	w.writer = kafka.NewWriter(kafka.WriterConfig{Brokers: []string{addr}})
}

func (w *world) truth(r learntRange) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[int64]bool{}
	var fids []int64
	for _, rec := range w.fids[r.Partition][r.From:r.To] {
		for _, fid := range rec {
			if !seen[fid] {
				seen[fid] = true
				fids = append(fids, fid)
			}
		}
	}
	slices.Sort(fids)
	return fids
}

func (w *world) config(name string, index int) Config {
	return Config{
		Job: theJob, Model: "movies", Name: name, Index: index, Brokers: []string{w.broker.Addr()}, Topic: "ratings",
		Shards: len(w.shards), Batch: 16, Linger: time.Millisecond, Dir: w.dir, LeaseTTL: time.Second,
	}
}

// running is a trainer with its end.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

func (w *world) run(cfg Config) *running {
	w.t.Helper()
	return w.start(cfg, func(*services.Env) {}, func(*Server) {})
}

func (w *world) start(cfg Config, given func(*services.Env), made func(*Server)) *running {
	w.t.Helper()
	level := slog.LevelError
	if os.Getenv("VERBOSE") != "" {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: level}))
	env := services.Env{BZID: bzid, Bus: w.b, Log: log}
	given(&env)
	s, err := New(cfg, env)
	if err != nil {
		w.t.Fatal(err)
	}
	made(s)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	w.t.Cleanup(r.cancel)
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	r.wait(t)
}

func (r *running) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(wait.Patience):
		t.Fatal("the trainer does not end")
	}
}

// lineage follows the log, until end.
func (w *world) lineage() (ctx context.Context, f *follow.Follower[lineage.State], end func()) {
	ctx, cancel := context.WithTimeout(w.t.Context(), wait.Patience)
	f = follow.New(w.b.Log(), registry.Lineage, follow.Options{})
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	return ctx, f, func() { cancel(); <-ran }
}

// until waits for the lineage to be as wanted.
func (w *world) until(what string, ok func(lineage.Job) bool) lineage.Job {
	w.t.Helper()
	ctx, f, end := w.lineage()
	defer end()
	for {
		changed := f.Changed()
		var j lineage.Job
		var good bool
		f.Read(func(s lineage.State) { j = s.Jobs[theJob]; good = ok(j) })
		if good {
			return j
		}
		select {
		case <-changed:
		case <-time.After(25 * time.Millisecond): // ok may look at more than the lineage
		case <-ctx.Done():
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// now is the job as the end of the log has it.
func (w *world) now() lineage.Job {
	w.t.Helper()
	ctx, f, end := w.lineage()
	defer end()
	select {
	case <-f.Ready():
	case <-ctx.Done():
		w.t.Fatal("the log is not read to its end")
	}
	var j lineage.Job
	f.Read(func(s lineage.State) { j = s.Jobs[theJob] })
	return j
}

// command calls the job's chief, and waits for its answer for as long as a disk may stand still.
func (w *world) command(endpoint, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), wait.Patience)
	defer cancel()
	return w.b.Commands().Call(ctx, bzid, "trainer."+theJob+"."+endpoint, []byte(body))
}

// learnt waits until shard i has recorded n offsets in all.
func (w *world) learnt(i int, n int64) {
	w.t.Helper()
	s := w.shards[i]
	late := time.After(wait.Patience)
	for {
		s.mu.Lock()
		var sum int64
		for _, next := range s.now.next {
			sum += next
		}
		changed := s.changed
		s.mu.Unlock()
		if sum >= n {
			return
		}
		select {
		case <-changed:
		case <-late:
			w.t.Fatalf("shard %d has learnt %d offsets, waited for %d", i, sum, n)
		}
	}
}

func (w *world) checkLetters() {
	w.t.Helper()
	letters, err := w.b.DeadLetters().List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range letters {
		at := fmt.Sprintf("%s %d", l.Stream, l.StreamSeq)
		if seen[at] || !w.broken[at] {
			w.t.Errorf("parked %s (again: %v): %s", at, seen[at], l.Reason)
		}
		if l.Reason == "" || l.By != author || l.Subject != "ratings" {
			w.t.Errorf("letter %+v", l)
		}
		seen[at] = true
	}
	if len(seen) != len(w.broken) {
		w.t.Errorf("%d broken records were parked, there are %d", len(seen), len(w.broken))
	}
}

func (w *world) facts(subject events.Subject) (all []*training.Event, headers []events.Header) {
	w.t.Helper()
	last, err := w.b.Log().Last(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if last == 0 {
		return nil, nil
	}
	err = w.b.Log().Follow(w.t.Context(), 1, last, func(r events.Recorded) error {
		if e, ok := r.Event.(*training.Event); ok && (r.Subject == subject || subject == "") {
			all, headers = append(all, e), append(headers, r.Header)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all, headers
}

func jobSubject() events.Subject { return events.Join(bzid, "training", theJob) }

// remove deletes the topic.
func (w *world) remove() {
	w.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = 5000, []string{"ratings"}
	name := "ratings"
	req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &name})
	if _, err := req.RequestWith(w.t.Context(), w.kafka()); err != nil {
		w.t.Fatal(err)
	}
}
