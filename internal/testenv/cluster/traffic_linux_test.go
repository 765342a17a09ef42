package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/loadtest/openloop"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

const (
	// firstMovie is that of the first rating. Each has one of its own, whose row says whether it was learnt.
	firstMovie = 1_000_000
	stream     = "cluster" // names the ratings in their headers

	// attempt is how long a person's client waits for a prediction before it asks the other entry, and
	// patience how long it goes on with that.
	attempt  = 500 * time.Millisecond
	patience = 5 * time.Second
	// commandPatience is how long a person waits for a command before it is sent again.
	commandPatience = time.Second
)

// traffic is what people do all the time: they rate, ask for predictions, and change what is served.
type traffic struct {
	w       *world
	job     *demo.Job
	ratings *kgo.Client
	entries []*scenario.Client
	soak    bool // whether it is held how long everything takes
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	next     int                      // rating
	acked    map[int]place            // ratings that Kafka has acked
	failed   []error                  // of ratings and commands, of which there must be none
	commands map[uint64]string        // what was done, by the sequence that it was acked with
	acks     map[string]time.Time     // the newest, by what was written to
	gaps     map[string]time.Duration // longest time between two of them
	answers  map[string]int           // by code, "" for a prediction
	took     *openloop.Recorder
	lately   *openloop.Recorder // since the last fault began
}

// place is where a record stands.
type place struct {
	partition int32
	offset    int64
}

// producer writes as a careful producer does: idempotent, acked by all that are in sync, and sent to
// the next leader soon after the one before falls silent.
func producer(brokers []string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(10*time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.ProduceRequestTimeout(2*time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.MetadataMinAge(200*time.Millisecond))
}

func newTraffic(w *world, job *demo.Job, entries ...string) *traffic {
	w.t.Helper()
	f := &traffic{w: w, job: job, acked: map[int]place{}, commands: map[uint64]string{}, acks: map[string]time.Time{}, gaps: map[string]time.Duration{}, answers: map[string]int{}}
	var err error
	f.ratings, err = producer(w.kafka.Bootstrap)
	w.must("make a producer", err)
	w.t.Cleanup(f.ratings.Close)
	for _, addr := range entries {
		c, err := scenario.Dial(addr, grpc.WithTransportCredentials(credentials.NewTLS(w.client())))
		w.must("dial an entry", err)
		w.t.Cleanup(func() { _ = c.Close() })
		f.entries = append(f.entries, c)
	}
	return f
}

// client is the TLS of a person's programs.
func (w *world) client() *tls.Config {
	w.t.Helper()
	conf, err := w.files("operator").Client()
	w.must("read the operator's keys", err)
	return conf
}

// flow begins it all, at so many a second.
func (f *traffic) flow(ratings, predictions float64) {
	ctx, cancel := context.WithCancel(context.Background())
	f.end = cancel
	f.w.t.Cleanup(f.stop)
	f.mu.Lock()
	f.took, f.lately = openloop.NewRecorder(time.Now(), nil), openloop.NewRecorder(time.Now(), nil)
	f.mu.Unlock()
	f.running.Go(func() { f.rate(ctx, ratings) })
	f.running.Go(func() { f.command(ctx) })
	f.running.Go(func() {
		err := openloop.Run(ctx, openloop.Config{Rate: predictions, MaxInFlight: 4096, Timeout: patience}, f.ask, func(a openloop.Answer) {
			f.note(func() {
				f.answers[a.Code]++
				f.took.Observe(a)
				f.lately.Observe(a)
			})
		})
		f.fail(err)
	})
}

// stop ends it, and returns once everything that was begun is over.
func (f *traffic) stop() {
	f.end()
	f.running.Wait()
}

func (f *traffic) note(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *traffic) fail(err error) {
	if err != nil {
		f.note(func() { f.failed = append(f.failed, fmt.Errorf("at %s: %w", time.Now().Format(time.TimeOnly), err)) })
	}
}

// ack notes that something was written, and how long nothing was before.
func (f *traffic) ack(what string) {
	now := time.Now()
	if last, ok := f.acks[what]; ok {
		f.gaps[what] = max(f.gaps[what], now.Sub(last))
	}
	f.acks[what] = now
}

// worst hands out the longest times without an ack since it was asked last, those that still go on
// included, and how predictions went meanwhile.
func (f *traffic) worst() (gaps map[string]time.Duration, predictions openloop.Result) {
	f.note(func() {
		predictions, _ = f.lately.Result() // its seconds are written nowhere
		f.lately = openloop.NewRecorder(time.Now(), nil)
		gaps = f.gaps
		f.gaps = map[string]time.Duration{}
		for what, last := range f.acks {
			gaps[what] = max(gaps[what], time.Since(last))
		}
	})
	return gaps, predictions
}

// write sends one rating.
func (f *traffic) write() {
	var i int
	f.note(func() { i = f.next; f.next++ })
	r := rating.Rating{User: int64(1 + i%997), Movie: int64(firstMovie + i), Rating: float64(1 + i%5), Timestamp: time.Now().Unix()}
	rec := &kgo.Record{Topic: host.RatingsTopic, Partition: int32(i % partitions), Value: r.AppendJSON(nil),
		Headers: []kgo.RecordHeader{{Key: rating.HeaderStream, Value: []byte(stream)}, {Key: rating.HeaderIndex, Value: []byte(strconv.Itoa(i))}}}
	f.ratings.Produce(context.Background(), rec, func(rec *kgo.Record, err error) {
		if err != nil {
			f.fail(fmt.Errorf("write rating %d: %w", i, err))
			return
		}
		f.note(func() {
			f.acked[i] = place{rec.Partition, rec.Offset}
			f.ack(fmt.Sprint("partition ", rec.Partition))
		})
	})
}

// rate writes so many ratings a second.
func (f *traffic) rate(ctx context.Context, rate float64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			f.fail(f.ratings.Flush(context.Background()))
			return
		case <-tick.C:
			for ; float64(n) < rate*time.Since(began).Seconds(); n++ {
				f.write()
			}
		}
	}
}

// ask is a prediction, which goes to the other entry when one does not answer soon or says that it
// cannot.
func (f *traffic) ask(n int) openloop.Call {
	return func(ctx context.Context) error {
		recs := []rating.Record{{Rating: rating.Rating{User: 1 + rand.Int64N(997), Movie: firstMovie + rand.Int64N(1000)}}, {Rating: rating.Rating{User: 2, Movie: firstMovie}}}
		for i := n; ; i++ {
			one, cancel := context.WithTimeout(ctx, attempt)
			_, err := f.entries[i%len(f.entries)].Score(one, nil, host.ModelName, "", recs)
			cancel()
			if err == nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// command changes what is served, again and again: a layout gets an entry and loses it.
func (f *traffic) command(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		entry := fmt.Sprintf("probe:ps_%d", n)
		for _, name := range []string{"portal.addLayoutEntry", "portal.removeLayoutEntry"} {
			seq, err := f.call(ctx, name, entry)
			if err != nil && ctx.Err() == nil {
				f.fail(fmt.Errorf("%s: %w", name, err))
			}
			if err == nil {
				f.note(func() {
					if seq != 0 {
						f.commands[seq] = name + " " + entry
					}
					f.ack("commands")
				})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// call sends one until it is answered. One that was done already, whose answer was lost, has no
// sequence.
func (f *traffic) call(ctx context.Context, name, entry string) (uint64, error) {
	body, err := json.Marshal(map[string]string{"layout": "probes", "entry": entry})
	if err != nil {
		return 0, err
	}
	raw, err := connect.Call(ctx, f.job.Bus, f.job.Conn.BZID, name, body, commandPatience)
	var refused *bus.CommandError
	if errors.As(err, &refused) && refused.Code == bus.CodeNotFound { // removed already
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var reply struct {
		Seq     uint64   `json:"seq"`
		Entries []string `json:"entries"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Entries) == 0 {
		return 0, err
	}
	return reply.Seq, nil
}

// warm waits until everything has been written and asked for some time, which the first calls take
// longer for than those later.
func (f *traffic) warm() {
	f.w.t.Helper()
	wait.Until(f.w.t, "ratings, commands and predictions to flow", func() (err error) {
		f.note(func() {
			if len(f.acks) != partitions+1 || f.answers[""] < 200 || len(f.acked) < 2000 {
				err = fmt.Errorf("%d ratings are acked, %d predictions answered, acks of %v", len(f.acked), f.answers[""], f.acks)
			}
		})
		return err
	})
	f.note(func() {
		clear(f.answers)
		f.took = openloop.NewRecorder(time.Now(), nil)
	})
}

// told says how predictions went, of which at least 999 of 1,000 must be answered in a soak.
func (f *traffic) told(over time.Duration) {
	f.w.t.Helper()
	var res openloop.Result
	var err error
	asked, ratings, commands := 0, 0, 0
	f.note(func() {
		res, err = f.took.Result()
		for _, n := range f.answers {
			asked += n
		}
		ratings, commands = len(f.acked), len(f.commands)
	})
	f.w.must("sum up the predictions", err)
	answered := f.answers[""]
	f.w.t.Logf("%d of %d predictions answered in %v, %v; median %v ms, p99 %v, p99.9 %v, slowest %v; %d ratings and %d commands acked", answered, asked, over.Round(time.Second),
		f.answers, res.P50, res.P99, res.P999, res.Max, ratings, commands)
	if f.soak && float64(answered) < 0.999*float64(asked) || answered == 0 {
		f.w.t.Errorf("%d of %d predictions were answered", answered, asked)
	}
}

func (f *traffic) errors() (err error) {
	f.note(func() { err = errors.Join(f.failed...) })
	return err
}
