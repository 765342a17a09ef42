// Package kafka is the training stream: partitions read by explicit offset, never
// through consumer groups, written with acks=all, and an embedded broker for one
// machine. Every fetched offset is checked; a log that does not hold the offset asked
// for is an error, never a jump.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

var (
	// ErrOutOfRange says that the log does not hold the offset: retention removed it,
	// or the log is shorter than the reader believes. Reading on would skip records.
	ErrOutOfRange = errors.New("offset out of range")
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

// pause waits before attempt n (0 is the first retry) and reports whether ctx lives.
func pause(ctx context.Context, n int) bool {
	d := min(minBackoff<<min(n, 10), maxBackoff)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lookup returns the partitions of topic as the first broker that answers knows them.
func lookup(ctx context.Context, brokers []string, topic string) ([]kafkago.Partition, error) {
	err := errors.New("no broker address given")
	for _, addr := range brokers {
		var ps []kafkago.Partition
		if ps, err = lookupAt(ctx, addr, topic); err == nil {
			return ps, nil
		}
		var refused kafkago.Error
		if errors.As(err, &refused) {
			return nil, fmt.Errorf("topic %q: %w", topic, err)
		}
	}
	return nil, fmt.Errorf("%w: brokers %v: %w", ErrUnavailable, brokers, err)
}

func lookupAt(ctx context.Context, addr, topic string) ([]kafkago.Partition, error) {
	c, err := dial(ctx, addr, kafkago.ConnConfig{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	c.SetDeadline(time.Now().Add(answerTimeout))
	return c.ReadPartitions(topic)
}

func dial(ctx context.Context, addr string, cfg kafkago.ConnConfig) (*kafkago.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	cfg.ClientID = "monolith"
	return kafkago.NewConnWith(c, cfg), nil
}

// dialLeader connects to the broker that leads the partition.
func dialLeader(ctx context.Context, brokers []string, topic string, partition int32) (*kafkago.Conn, error) {
	ps, err := lookup(ctx, brokers, topic)
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		if p.ID != int(partition) {
			continue
		}
		if p.Leader.Host == "" {
			return nil, fmt.Errorf("%w: partition %s/%d has no leader", ErrUnavailable, topic, partition)
		}
		addr := net.JoinHostPort(p.Leader.Host, strconv.Itoa(p.Leader.Port))
		c, err := dial(ctx, addr, kafkago.ConnConfig{Topic: topic, Partition: int(partition), Broker: p.Leader.ID})
		if err != nil {
			return nil, fmt.Errorf("%w: leader of %s/%d: %w", ErrUnavailable, topic, partition, err)
		}
		return c, nil
	}
	return nil, fmt.Errorf("topic %q has %d partitions, there is no %d", topic, len(ps), partition)
}

// temporary says whether the same request may succeed later without anybody's help.
func temporary(err error) bool {
	var refused kafkago.Error
	if errors.As(err, &refused) {
		return refused.Temporary() || refused.Timeout()
	}
	var op net.Error
	return errors.Is(err, ErrUnavailable) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// Partitions returns how many partitions topic has.
func Partitions(ctx context.Context, brokers []string, topic string) (int32, error) {
	ps, err := lookup(ctx, brokers, topic)
	if err != nil {
		return 0, err
	}
	return int32(len(ps)), nil
}

// EnsureTopics creates the topics that do not exist, with as many partitions as
// named, and returns once each has a leader. A topic with another number of partitions
// is an error: offsets and keys are bound to the number.
func EnsureTopics(ctx context.Context, brokers []string, topics map[string]int32) error {
	for attempt := 0; ; attempt++ {
		err := ensure(ctx, brokers, topics)
		if err == nil || !temporary(err) && !errors.Is(err, errSettling) {
			return err
		}
		if !pause(ctx, attempt) {
			return fmt.Errorf("ensure topics: %w", errors.Join(ctx.Err(), err))
		}
	}
}

var errSettling = errors.New("topic is being created")

func ensure(ctx context.Context, brokers []string, topics map[string]int32) error {
	var missing []kafkago.TopicConfig
	for topic, want := range topics {
		ps, err := lookup(ctx, brokers, topic)
		if errors.Is(err, kafkago.UnknownTopicOrPartition) || err == nil && len(ps) == 0 {
			missing = append(missing, kafkago.TopicConfig{Topic: topic, NumPartitions: int(want), ReplicationFactor: -1})
			continue
		}
		if err != nil {
			return err
		}
		if int32(len(ps)) != want {
			return fmt.Errorf("topic %q has %d partitions, not %d: name another topic or ask for %d", topic, len(ps), want, len(ps))
		}
		for _, p := range ps {
			if p.Leader.Host == "" {
				return fmt.Errorf("%w: partition %s/%d has no leader yet", errSettling, topic, p.ID)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := create(ctx, brokers, missing); err != nil {
		return err
	}
	return errSettling // look again until every partition has a leader
}

func create(ctx context.Context, brokers []string, topics []kafkago.TopicConfig) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	t := &kafkago.Transport{ClientID: "monolith", DialTimeout: dialTimeout}
	defer t.CloseIdleConnections()
	c := kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: t}
	res, err := c.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("%w: create topics: %w", ErrUnavailable, err)
	}
	for topic, err := range res.Errors {
		if err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) {
			return fmt.Errorf("create topic %q: %w", topic, err)
		}
	}
	return nil
}
