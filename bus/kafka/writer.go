package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	maxBatchBytes   = 768 << 10 // keys, values and headers of one request; Kafka takes 1 MiB
	maxBatchRecords = 4096
	laneBound       = 1024            // writes waiting for one partition
	idleProbe       = time.Second     // a connection unused for longer is tried out first
	deliverTimeout  = 2 * time.Minute // longest that a write waits for an absent broker
)

// WriterConfig names the cluster.
type WriterConfig struct {
	Brokers []string // host:port, any of the cluster
	Access  *Access  // how they are spoken to; default: in the clear
	// Linger is how long a first record waits for company. Default 0: what arrives
	// while a request is out goes together in the next one, which is enough under load.
	Linger time.Duration
}

// Writer appends records with acks=all. Calls are grouped by partition, one request of
// a partition is out at a time, so the order of a partition is the order of the calls;
// partitions go side by side. It is safe for concurrent use.
//
// It is no idempotent producer: it repeats a request only when the broker said that it
// was not stored, or when it was never sent. When an answer is lost, Write returns
// ErrUnknown and stores nothing more of that call for the partition; the caller reads
// the end of the partition, or gives records ids that its reader knows.
type Writer struct {
	cfg    WriterConfig
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	idle, patience time.Duration // idleProbe and deliverTimeout, but in tests

	mu     sync.Mutex
	lanes  map[lane]*laneQueue
	counts map[string]int32 // partitions by topic
	wg     sync.WaitGroup
}

type lane struct {
	topic     string
	partition int32
}

type laneQueue struct {
	lane
	in chan *piece
}

// piece is what one Write gave to one lane, at most one request's worth.
type piece struct {
	msgs  []kafkago.Message
	at    []int // index in the caller's records
	bytes int
	state atomic.Int32 // waiting, then taken by the lane or withdrawn by the caller
	done  chan struct{}
	base  int64
	err   error
}

const (
	waiting = iota
	taken
	withdrawn
)

// NewWriter returns a writer; it connects at the first write.
func NewWriter(cfg WriterConfig) *Writer {
	w := &Writer{cfg: cfg, idle: idleProbe, patience: deliverTimeout, lanes: map[lane]*laneQueue{}, counts: map[string]int32{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Close breaks off what is under way, with ErrUnknown for what was sent, and waits.
func (w *Writer) Close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.wg.Wait()
}

// Write stores recs and returns them with Partition, Offset and Time set once the
// broker has them on disk. A negative Partition is chosen by PartitionOf the key.
// Records of one partition stay in order; a call of more than 768 KiB for a partition
// takes several requests, so a failure can leave a prefix of it stored.
// Errors: ErrUnknown (it may be stored), and, with nothing stored of the records
// concerned, ErrTooLarge, ErrUnavailable, ErrClosed, ctx's. With an error the records
// that were stored for sure have an Offset of 0 or more, all others -1.
func (w *Writer) Write(ctx context.Context, recs ...Record) ([]Record, error) {
	out := slices.Clone(recs)
	pieces := map[lane][]*piece{}
	var order []lane
	now := time.Now().Truncate(time.Millisecond)
	for i := range out {
		r := &out[i]
		r.Offset = -1
		if r.Time.IsZero() {
			r.Time = now
		}
		r.Time = r.Time.Truncate(time.Millisecond)
		if r.Partition < 0 {
			n, err := w.partitions(ctx, r.Topic)
			if err != nil {
				return out, err
			}
			r.Partition = PartitionOf(r.Key, n)
		}
		m, size := message(r)
		if size > maxBatchBytes {
			return out, fmt.Errorf("%w: record %d of the call has %d bytes, the limit is %d", ErrTooLarge, i, size, maxBatchBytes)
		}
		l := lane{r.Topic, r.Partition}
		ps := pieces[l]
		if ps == nil {
			order = append(order, l)
		}
		if last := len(ps) - 1; last < 0 || ps[last].bytes+size > maxBatchBytes || len(ps[last].msgs) == maxBatchRecords {
			ps = append(ps, &piece{done: make(chan struct{})})
		}
		p := ps[len(ps)-1]
		p.msgs, p.at, p.bytes = append(p.msgs, m), append(p.at, i), p.bytes+size
		pieces[l] = ps
	}
	errs := make([]error, len(order))
	if len(order) == 1 {
		errs[0] = w.deliver(ctx, order[0], pieces[order[0]], out)
	} else {
		var wg sync.WaitGroup
		for i, l := range order {
			wg.Go(func() { errs[i] = w.deliver(ctx, l, pieces[l], out) })
		}
		wg.Wait()
	}
	return out, errors.Join(errs...)
}

// deliver hands pieces to their lane one after the other, so that a failed one leaves
// a prefix, and notes the offsets in out.
func (w *Writer) deliver(ctx context.Context, l lane, pieces []*piece, out []Record) error {
	q, err := w.queue(l)
	if err != nil {
		return l.wrap(err)
	}
	for _, p := range pieces {
		select {
		case q.in <- p:
		case <-ctx.Done():
			return l.wrap(ctx.Err())
		case <-w.ctx.Done():
			return l.wrap(ErrClosed)
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			if p.state.CompareAndSwap(waiting, withdrawn) {
				return l.wrap(ctx.Err())
			}
			select {
			case <-p.done: // answered just now
			default:
				return l.wrap(fmt.Errorf("%w: %w", ErrUnknown, ctx.Err()))
			}
		}
		if p.err != nil {
			return l.wrap(p.err)
		}
		for i, at := range p.at {
			out[at].Offset = p.base + int64(i)
		}
	}
	return nil
}

func (l lane) wrap(err error) error {
	return fmt.Errorf("write %s/%d: %w", l.topic, l.partition, err)
}

func (w *Writer) queue(l lane) (*laneQueue, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil, ErrClosed
	}
	q := w.lanes[l]
	if q == nil {
		q = &laneQueue{lane: l, in: make(chan *piece, laneBound)}
		w.lanes[l] = q
		w.wg.Go(func() { w.run(q) })
	}
	return q, nil
}

func (w *Writer) partitions(ctx context.Context, topic string) (int32, error) {
	w.mu.Lock()
	n := w.counts[topic]
	w.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	n, err := w.cfg.Access.Partitions(ctx, w.cfg.Brokers, topic)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	w.counts[topic] = n
	w.mu.Unlock()
	return n, nil
}

func message(r *Record) (kafkago.Message, int) {
	m := kafkago.Message{Key: r.Key, Value: r.Value, Time: r.Time}
	size := len(r.Key) + len(r.Value) + 32 // framing, generously
	for k, v := range r.Headers {
		m.Headers = append(m.Headers, kafkago.Header{Key: k, Value: []byte(v)})
		size += len(k) + len(v) + 10
	}
	slices.SortFunc(m.Headers, func(a, b kafkago.Header) int { return cmp.Compare(a.Key, b.Key) })
	return m, size
}
