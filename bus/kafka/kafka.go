// Package kafka is the training stream: partitions read by explicit offset, never
// through consumer groups and only what is committed, written with acks=all, and an
// embedded broker for one machine. Every fetched offset is checked; a log that does not
// hold the offset asked for, or is no longer the log that was read, is an error, never a
// jump.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/retry"
)

var (
	// ErrOutOfRange says that the log does not hold the offset: retention removed it,
	// or the log is shorter than the reader believes. Reading on would skip records.
	ErrOutOfRange = errors.New("offset out of range")
	// ErrTruncated says that the log no longer is what was read from it: its end fell
	// back below what was there, whatever it holds now.
	ErrTruncated = errors.New("the log was cut below what was read from it")
	// ErrTopicChanged says that the topic was deleted and made anew: its offsets name
	// other records.
	ErrTopicChanged = errors.New("the topic is another one under the same name")
	// ErrCorrupt says that the broker answered what no log holds.
	ErrCorrupt = errors.New("the log is damaged")
	// ErrUnknown says that a record may or may not be stored. Writing it again may
	// store it twice: read the end of the partition first.
	ErrUnknown = errors.New("outcome of the write is unknown")
	// ErrUnavailable says that the broker did not answer; nothing was stored or read.
	ErrUnavailable = errors.New("kafka unavailable")
	// ErrTooLarge says that the broker takes no record of that size; it was not stored.
	ErrTooLarge = errors.New("record too large")
	// ErrClosed says that the reader or writer was closed.
	ErrClosed = errors.New("kafka client is closed")
)

// Record is one record of a partition. Header values are text.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Time      time.Time // millisecond precision, as stored; zero when written: now
	Key       []byte
	Value     []byte
	Headers   map[string]string // a repeated key keeps its last value
}

// PartitionOf is the partition of a key: FNV-1a modulo partitions. A nil key is 0.
func PartitionOf(key []byte, partitions int32) int32 {
	h := fnv.New32a()
	h.Write(key)
	if len(key) == 0 || partitions < 1 {
		return 0
	}
	return int32(h.Sum32() % uint32(partitions))
}

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 10 * time.Second // on top of what a request may wait by itself
	minBackoff    = 20 * time.Millisecond
	maxBackoff    = time.Second
)

// temporary says whether the same request may succeed later without anybody's help.
func temporary(err error) bool {
	var refused kafkago.Error
	if errors.As(err, &refused) {
		return refused.Temporary() || refused.Timeout()
	}
	if code := (*kerr.Error)(nil); errors.As(err, &code) {
		return code.Retriable
	}
	var op net.Error
	return errors.Is(err, ErrUnavailable) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// retried calls until it succeeds, fails with what does not pass by itself, or ctx ends.
func retried(ctx context.Context, passes func(error) bool, call func() error) error {
	pauses := retry.New(minBackoff, maxBackoff)
	for {
		err := call()
		if err == nil || !passes(err) {
			return err
		}
		if werr := pauses.Wait(ctx); werr != nil {
			return errors.Join(werr, err)
		}
	}
}

// newClient returns a client that makes each request once: who asks paces himself.
func newClient(brokers []string, a *Access) (*kgo.Client, error) {
	c, err := kgo.NewClient(append(a.options(),
		kgo.SeedBrokers(brokers...), kgo.ClientID("monolith"), kgo.DialTimeout(dialTimeout), kgo.RequestTimeoutOverhead(answerTimeout),
		kgo.RequestRetries(len(brokers)-1), kgo.RetryBackoffFn(func(int) time.Duration { return minBackoff }), kgo.MetadataMinAge(minBackoff),
	)...)
	if err != nil {
		return nil, fmt.Errorf("brokers %v: %w", brokers, err)
	}
	return c, nil
}

// unanswered marks an error of a request that got no answer, unless ctx is its cause.
func unanswered(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
