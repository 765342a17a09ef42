package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// Cluster is the running whole: logs, training and serving.
type Cluster interface {
	PredictAddr() string // gRPC, host:port
	RESTAddr() string    // host:port
	Model() string
	Brokers() []string
	Topic() string // what the trainers learn from
	// Served returns once all training shards have learnt the topic up to ends and
	// every serving replica holds the rows that came of it.
	Served(ctx context.Context, ends map[int32]int64) error
	// Rewrite publishes new values of the rows of some movies as the training shards do, which must be at rest.
	Rewrite(ctx context.Context, movies []int64) error
	// Rewritten returns once every serving replica has applied what Rewrite published.
	Rewritten(ctx context.Context) error
	Close() error
}

// Start makes a Cluster that serves a first model and has learnt nothing.
type Start func(context.Context) (Cluster, error)

// EndToEndCase is one number of ratings.
type EndToEndCase struct {
	N, Rounds int
	Target    float64
}

// EndToEndCases are the sizes of a full run. The target is the share of what the broker
// alone carries.
var EndToEndCases = []EndToEndCase{
	{N: 1000, Rounds: 5, Target: 0.02},
	{N: 10_000, Rounds: 3, Target: 0.03},
	{N: 100_000, Rounds: 1, Target: 0.03},
}

const (
	users0, movies0 = 610, 9000 // ids are drawn below these, as in a small MovieLens
	chunk           = 2000      // ratings of one write
	rawTopic        = "bench-raw"
)

// EndToEnd measures ratings from the first write to Kafka until every replica holds
// what all of them taught, against the same records written to a topic of their own and
// fetched again by a reader per partition, with nothing learnt.
func EndToEnd(start Start, cases []EndToEndCase) bench.Benchmark {
	return bench.Benchmark{Name: "end-to-end", About: "ratings produced, learnt and held by every serving replica, against Kafka alone", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		c, err := start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		partitions, err := kafka.Plain.Partitions(ctx, c.Brokers(), c.Topic())
		if err != nil {
			return err
		}
		if err := kafka.Plain.EnsureTopics(ctx, c.Brokers(), map[string]int32{rawTopic: partitions}); err != nil {
			return err
		}
		at := make([]int64, partitions)
		for _, ec := range cases {
			records := ratings(ec.N)
			err := r.Compare(ctx, bench.Comparison{
				Name: fmt.Sprintf("end-to-end/n=%d", ec.N), Baseline: "Kafka produce and fetch alone",
				Figures: []bench.Figure{{Unit: "ratings/s", Better: bench.Higher, Target: ec.Target}}, Rounds: ec.Rounds, Warm: ec.Rounds > 1,
				Ours: bench.PerSecond(ec.N, func(ctx context.Context) error {
					ends, err := produce(ctx, c.Brokers(), c.Topic(), records)
					if err != nil {
						return err
					}
					return c.Served(ctx, ends)
				}),
				Peer: bench.PerSecond(ec.N, func(ctx context.Context) error { return roundTrip(ctx, c.Brokers(), at, records) }),
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// ratings are n records in which some users and movies come up far more often than
// others.
func ratings(n int) []kafka.Record {
	rng := rand.New(rand.NewPCG(11, uint64(n)))
	users, movies := rand.NewZipf(rng, 1.1, 20, users0-1), rand.NewZipf(rng, 1.1, 20, movies0-1)
	out := make([]kafka.Record, n)
	for i := range out {
		r := rating.Rating{User: 1 + int64(users.Uint64()), Movie: 1 + int64(movies.Uint64()), Rating: float64(1+rng.IntN(10)) / 2, Timestamp: 1_600_000_000 + int64(i)}
		out[i] = kafka.Record{Partition: -1, Key: strconv.AppendInt(nil, r.User, 10), Value: r.AppendJSON(nil),
			Headers: map[string]string{rating.HeaderStream: "bench", rating.HeaderIndex: strconv.Itoa(i)}}
	}
	return out
}

// produce writes the records as fast as the broker takes them and returns, for each
// partition that got any, the offset behind its last one.
func produce(ctx context.Context, brokers []string, topic string, records []kafka.Record) (map[int32]int64, error) {
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: brokers})
	defer w.Close()
	ends := map[int32]int64{}
	batch := make([]kafka.Record, 0, chunk)
	for len(records) > 0 {
		n := min(chunk, len(records))
		batch = append(batch[:0], records[:n]...)
		records = records[n:]
		for i := range batch {
			batch[i].Topic = topic
		}
		stored, err := w.Write(ctx, batch...)
		if err != nil {
			return nil, fmt.Errorf("produce ratings: %w", err)
		}
		for _, r := range stored {
			ends[r.Partition] = max(ends[r.Partition], r.Offset+1)
		}
	}
	return ends, nil
}

// roundTrip produces the records to the raw topic while a reader per partition fetches
// from at on, which it moves.
func roundTrip(ctx context.Context, brokers []string, at []int64, records []kafka.Record) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ends := make([]int64, len(at))
	copy(ends, at)
	for _, r := range records {
		ends[kafka.PartitionOf(r.Key, int32(len(at)))]++
	}
	var wg sync.WaitGroup
	errs := make([]error, len(at))
	for p := range at {
		wg.Go(func() {
			if errs[p] = fetchAll(ctx, brokers, int32(p), at[p], ends[p]); errs[p] != nil {
				cancel()
			}
		})
	}
	_, err := produce(ctx, brokers, rawTopic, records)
	if err != nil {
		cancel()
	}
	wg.Wait()
	copy(at, ends)
	return errors.Join(append(errs, err)...)
}

// fetchAll reads a partition of the raw topic from at to end.
func fetchAll(ctx context.Context, brokers []string, partition int32, at, end int64) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: rawTopic, Partition: partition})
	defer r.Close()
	for at < end {
		_, next, err := r.Fetch(ctx, at)
		if err != nil {
			return err
		}
		at = next
	}
	return nil
}
