package cluster

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// chunk is how many ratings are written at once.
const chunk = 2000

// ratings are those of a simulated audience, on their way to the topic.
type ratings struct {
	topic  string
	writer *kafka.Writer

	mu       sync.Mutex // one write at a time
	audience *gen.Simulator
	past     *rating.History
	ends     map[int32]int64 // by partition, behind the last rating
	n        int
}

func newRatings(brokers, topic string, seed uint64) (*ratings, error) {
	audience, err := gen.NewSimulator(gen.SimulatorConfig{Seed: seed})
	if err != nil {
		return nil, err
	}
	return &ratings{topic: topic, writer: kafka.NewWriter(kafka.WriterConfig{Brokers: flags.List(brokers)}), audience: audience, past: rating.NewHistory(audience.Catalog()), ends: map[int32]int64{}}, nil
}

func (r *ratings) close() { r.writer.Close() }

// write has n more ratings stored, and returns where each partition ends.
func (r *ratings) write(ctx context.Context, n int) (map[int32]int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n > 0 {
		batch := make([]kafka.Record, min(n, chunk))
		for i := range batch {
			x, _ := r.audience.Next() // without end
			rec := r.past.Add(x)
			batch[i] = kafka.Record{Topic: r.topic, Partition: -1, Key: strconv.AppendInt(nil, x.User, 10), Value: rec.AppendJSON(nil),
				Headers: map[string]string{rating.HeaderStream: "loadtest", rating.HeaderIndex: strconv.Itoa(r.n)}}
			r.n++
		}
		stored, err := r.writer.Write(ctx, batch...)
		if err != nil {
			return nil, fmt.Errorf("write ratings: %w", err)
		}
		for _, x := range stored {
			r.ends[x.Partition] = max(r.ends[x.Partition], x.Offset+1)
		}
		n -= len(batch)
	}
	return r.ends, nil
}

// pour writes so many ratings a second until ctx ends.
func (r *ratings) pour(ctx context.Context, perSecond int) error {
	const ticks = 10 // of a second
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if _, err := r.write(ctx, perSecond/ticks); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}
