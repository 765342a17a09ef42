package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/retry"
)

// ReaderConfig names one partition.
type ReaderConfig struct {
	Brokers   []string // host:port, any of the cluster
	Access    *Access  // how they are spoken to; default: in the clear
	Topic     string
	TopicID   string // of the topic that is meant; empty: whichever the first answer names
	Partition int32
	MaxWait   time.Duration // how long Fetch waits for a first record; default 500 ms
	MaxBytes  int           // of one Fetch; default 1 MiB. One larger record still arrives.
	Log       *slog.Logger  // told once when the broker goes away and comes back; default none
	// Away is told what keeps the broker from answering, after the first attempts of a
	// call, and nil once it answers again. Default: nobody is.
	Away func(error)
}

// Reader reads one partition from offsets its caller names, committed records only. It
// may be used by one goroutine at a time; Close may come from another.
type Reader struct {
	cfg ReaderConfig

	mu     sync.Mutex // guards client and closed
	client *kgo.Client
	closed bool

	// The reading goroutine's own.
	away    bool
	topicID string // cfg.TopicID, or what the first description said
	leader  *Partition
	read    place // where the last Fetch ended
	checked int32 // the leader epoch in which read was found to be still in the log
}

// place is an offset with a leader epoch after which nothing before it was written.
type place struct {
	next  int64
	epoch int32 // -1: not known
}

// NewReader returns a reader; it connects at the first call.
func NewReader(cfg ReaderConfig) *Reader {
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 500 * time.Millisecond
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 1 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Away == nil {
		cfg.Away = func(error) {}
	}
	return &Reader{cfg: cfg, topicID: cfg.TopicID, read: place{epoch: -1}}
}

// Fetch returns committed records from offset on, in order, and the offset to ask for
// next. That one may lie further than the last record, and rise without any: aborted
// records, transaction markers and what compaction removed leave holes. What retention
// removed is no hole but ErrOutOfRange. It answers as soon as there is progress, waits
// MaxWait for it, and returns offset itself after that. While no broker answers it tries
// again with growing pauses until ctx ends. Errors: ErrOutOfRange, ErrTruncated,
// ErrTopicChanged, ErrCorrupt, ErrClosed, ctx's, or what the broker refuses for good.
func (r *Reader) Fetch(ctx context.Context, offset int64) (recs []Record, next int64, err error) {
	if offset < 0 {
		return nil, offset, r.wrap(fmt.Errorf("%w: %d is negative", ErrOutOfRange, offset))
	}
	if offset != r.read.next {
		r.read = place{offset, -1}
	}
	f, err := again(ctx, r, func(c *kgo.Client, p Partition) (fetched, error) { return r.fetch(ctx, c, p, offset) })
	if err != nil {
		return nil, offset, err
	}
	if r.read.next = f.next; f.next > offset { // by records or holes, none of them written in a later epoch
		r.read.epoch, r.checked = r.leader.LeaderEpoch, r.leader.LeaderEpoch
	}
	return f.recs, f.next, nil
}

// Bounds returns the first offset the log holds and the one behind its last committed
// record: where the oldest open transaction begins, if there is one.
func (r *Reader) Bounds(ctx context.Context) (first, end int64, err error) {
	ask := func(at int64) (int64, error) {
		return again(ctx, r, func(c *kgo.Client, p Partition) (int64, error) { return r.bound(ctx, c, p, at, readCommitted) })
	}
	if first, err = ask(earliest); err != nil {
		return 0, 0, err
	}
	end, err = ask(latest)
	return first, end, err
}

// LeaderEpoch is that of the leader which answered the last call, -1 where it has none or
// no call was answered. Records that were fetched by then are of no later epoch.
func (r *Reader) LeaderEpoch() int32 {
	if r.leader == nil {
		return -1
	}
	return r.leader.LeaderEpoch
}

// Check returns ErrTruncated unless the log still holds what was below offset when the
// partition's leader epoch was epoch, as a [Partition] had it after these records were read.
// A Fetch from offset on then keeps it so through elections.
// Retention does not count. An epoch below 0, or a broker that keeps none, leaves only
// the end of the log to judge by.
func (r *Reader) Check(ctx context.Context, offset int64, epoch int32) error {
	r.read = place{offset, epoch}
	_, err := again(ctx, r, func(c *kgo.Client, p Partition) (struct{}, error) {
		return struct{}{}, r.check(ctx, c, p, r.read)
	})
	if err == nil {
		r.checked = r.leader.LeaderEpoch
	}
	return err
}

// Close breaks off a call under way.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.client != nil {
		r.client.Close()
	}
}

// again asks the leader of the partition until it is answered for good.
func again[T any](ctx context.Context, r *Reader, ask func(*kgo.Client, Partition) (T, error)) (T, error) {
	pauses := retry.New(minBackoff, maxBackoff)
	for attempt := 0; ; attempt++ {
		v, err := once(ctx, r, ask)
		if err == nil {
			if r.away {
				r.away = false
				r.cfg.Log.Info("kafka answers again", "topic", r.cfg.Topic, "partition", r.cfg.Partition)
				r.cfg.Away(nil)
			}
			return v, nil
		}
		r.leader = nil // the next attempt looks it up
		var zero T
		switch {
		case errors.Is(err, ErrClosed):
			return zero, r.wrap(err)
		case ctx.Err() != nil:
			return zero, r.wrap(errors.Join(ctx.Err(), err))
		case errors.Is(err, kerr.OffsetOutOfRange):
			return zero, r.wrap(fmt.Errorf("%w: %w", ErrOutOfRange, err))
		case !temporary(err):
			return zero, r.wrap(err)
		}
		if !r.away && attempt > 1 {
			r.away = true
			r.cfg.Log.Warn("kafka does not answer, trying on", "topic", r.cfg.Topic, "partition", r.cfg.Partition, "err", err)
			r.cfg.Away(err)
		}
		if werr := pauses.Wait(ctx); werr != nil {
			return zero, r.wrap(errors.Join(werr, err))
		}
	}
}

func once[T any](ctx context.Context, r *Reader, ask func(*kgo.Client, Partition) (T, error)) (v T, err error) {
	c, err := r.open()
	if err != nil {
		return v, err
	}
	defer func() {
		if errors.Is(err, kgo.ErrClientClosed) {
			err = ErrClosed
		}
	}()
	if r.leader == nil {
		if err := r.find(ctx, c); err != nil {
			return v, err
		}
	}
	return ask(c, *r.leader)
}

func (r *Reader) open() (*kgo.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if r.client == nil {
		c, err := newClient(r.cfg.Brokers, r.cfg.Access)
		if err != nil {
			return nil, err
		}
		r.client = c
	}
	return r.client, nil
}

// find looks the leader up. After an election it makes sure that the new leader's log
// holds what was read from the last one's.
func (r *Reader) find(ctx context.Context, c *kgo.Client) error {
	t, err := describe(ctx, c, r.cfg.Topic)
	if err != nil {
		return err
	}
	if r.topicID == "" {
		r.topicID = t.ID
	}
	if t.ID != r.topicID {
		return fmt.Errorf("%w: its id is %s, that of the topic that was read %s", ErrTopicChanged, t.ID, r.topicID)
	}
	p, err := t.led(r.cfg.Partition)
	if err != nil {
		return err
	}
	if r.read.epoch >= 0 && p.LeaderEpoch != r.checked {
		if err := r.check(ctx, c, p, r.read); err != nil {
			return err
		}
		r.checked = p.LeaderEpoch
	}
	r.leader = &p
	return nil
}

func (r *Reader) wrap(err error) error {
	return fmt.Errorf("read %s/%d: %w", r.cfg.Topic, r.cfg.Partition, err)
}
