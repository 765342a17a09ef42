package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// ReaderConfig names one partition.
type ReaderConfig struct {
	Brokers   []string // host:port, any of the cluster
	Topic     string
	Partition int32
	MaxWait   time.Duration // how long Fetch waits for a first record; default 500 ms
	MaxBytes  int           // of one Fetch; default 1 MiB. One larger record still arrives.
	Log       *slog.Logger  // told once when the broker goes away and comes back; default none
}

// Reader reads one partition from offsets its caller names. It may be used by one
// goroutine at a time; Close may come from another.
type Reader struct {
	cfg ReaderConfig

	mu     sync.Mutex // guards conn and closed; not held while a request is out
	conn   *kafkago.Conn
	closed bool
	away   bool // used by the fetching goroutine only
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
	return &Reader{cfg: cfg}
}

// Fetch returns records from offset on, in order; the first is the first that exists at
// or above offset (transaction markers and compaction leave holes, retention does not:
// that is ErrOutOfRange). It answers as soon as there is one record, waits MaxWait for
// it, and returns none after that. While no broker answers it tries again with growing
// pauses until ctx ends. Errors: ErrOutOfRange, ErrClosed, ctx's, or what the broker
// refuses for good.
func (r *Reader) Fetch(ctx context.Context, offset int64) ([]Record, error) {
	if offset < 0 {
		return nil, r.wrap(fmt.Errorf("%w: %d is negative", ErrOutOfRange, offset))
	}
	return again(ctx, r, func(c *kafkago.Conn) ([]Record, error) { return r.fetch(c, offset) })
}

// Bounds returns the first offset the log holds and the one behind its last record.
func (r *Reader) Bounds(ctx context.Context) (first, end int64, err error) {
	b, err := again(ctx, r, func(c *kafkago.Conn) (b [2]int64, err error) {
		if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
			return b, err
		}
		b[0], b[1], err = c.ReadOffsets()
		return b, err
	})
	return b[0], b[1], err
}

// Close breaks off a Fetch under way.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.drop()
}

// again runs ask on a connection to the leader until it is answered for good.
func again[T any](ctx context.Context, r *Reader, ask func(*kafkago.Conn) (T, error)) (T, error) {
	for attempt := 0; ; attempt++ {
		v, err := once(ctx, r, ask)
		if err == nil {
			if r.away {
				r.away = false
				r.cfg.Log.Info("kafka answers again", "topic", r.cfg.Topic, "partition", r.cfg.Partition)
			}
			return v, nil
		}
		var zero T
		switch {
		case errors.Is(err, ErrClosed):
			return zero, r.wrap(err)
		case ctx.Err() != nil:
			return zero, r.wrap(errors.Join(ctx.Err(), err))
		case errors.Is(err, kafkago.OffsetOutOfRange):
			return zero, r.wrap(fmt.Errorf("%w: %w", ErrOutOfRange, err))
		case !temporary(err):
			return zero, r.wrap(err)
		}
		if !r.away && attempt > 0 {
			r.away = true
			r.cfg.Log.Warn("kafka does not answer, trying on", "topic", r.cfg.Topic, "partition", r.cfg.Partition, "error", err)
		}
		if !pause(ctx, attempt) {
			return zero, r.wrap(errors.Join(ctx.Err(), err))
		}
	}
}

func once[T any](ctx context.Context, r *Reader, ask func(*kafkago.Conn) (T, error)) (T, error) {
	var zero T
	c, err := r.connect(ctx)
	if err != nil {
		return zero, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	v, err := ask(c)
	if !stop() || err != nil {
		// After an error the rest of the answer may still be on the wire.
		r.mu.Lock()
		r.drop()
		closed := r.closed
		r.mu.Unlock()
		if closed {
			return zero, ErrClosed
		}
	}
	return v, err
}

func (r *Reader) connect(ctx context.Context) (*kafkago.Conn, error) {
	r.mu.Lock()
	c, closed := r.conn, r.closed
	r.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if c != nil {
		return c, nil
	}
	c, err := dialLeader(ctx, r.cfg.Brokers, r.cfg.Topic, r.cfg.Partition)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		c.Close()
		return nil, ErrClosed
	}
	r.conn = c
	return c, nil
}

func (r *Reader) drop() {
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

func (r *Reader) fetch(c *kafkago.Conn, offset int64) ([]Record, error) {
	if err := c.SetReadDeadline(time.Now().Add(r.cfg.MaxWait + answerTimeout)); err != nil {
		return nil, err
	}
	if err := c.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.Seek(offset, kafkago.SeekAbsolute|kafkago.SeekDontCheck); err != nil {
		return nil, err
	}
	b := c.ReadBatchWith(kafkago.ReadBatchConfig{MinBytes: 1, MaxBytes: r.cfg.MaxBytes, MaxWait: r.cfg.MaxWait})
	var recs []Record
	next := offset
	for {
		m, err := b.ReadMessage()
		if err != nil {
			// The empty answer is a RequestTimedOut of the library, its end an EOF.
			if cerr := b.Close(); cerr != nil && !(len(recs) == 0 && errors.Is(cerr, kafkago.RequestTimedOut)) {
				return nil, cerr
			}
			switch {
			case len(recs) > 0 || b.HighWaterMark() <= offset:
				return recs, nil
			case b.Offset() > offset: // everything in the batch had been compacted away
				return r.fetch(c, b.Offset())
			}
			return nil, fmt.Errorf("offset %d of %d: no whole record in the answer: %w", offset, b.HighWaterMark(), io.ErrUnexpectedEOF)
		}
		if m.Offset < next {
			b.Close()
			return nil, fmt.Errorf("broker answered offset %d where %d or later was due", m.Offset, next)
		}
		next = m.Offset + 1
		recs = append(recs, Record{
			Topic: r.cfg.Topic, Partition: r.cfg.Partition, Offset: m.Offset,
			Time: m.Time, Key: m.Key, Value: m.Value, Headers: headers(m.Headers),
		})
	}
}

func (r *Reader) wrap(err error) error {
	return fmt.Errorf("read %s/%d: %w", r.cfg.Topic, r.cfg.Partition, err)
}

func headers(hs []kafkago.Header) map[string]string {
	if len(hs) == 0 {
		return nil
	}
	m := make(map[string]string, len(hs))
	for _, h := range hs {
		m[h.Key] = string(h.Value)
	}
	return m
}
