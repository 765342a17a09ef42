package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	expireEvery   = 10 * time.Minute
	expireTimeout = time.Minute
)

// expire deletes what is older than its topic's retention, now and every few minutes,
// until the function that it returns is called.
func expire(addr string, retention map[string]time.Duration, log *slog.Logger) (stop func()) {
	return repeat(log, func(ctx context.Context) error { return expireOnce(ctx, addr, retention, time.Now()) })
}

func repeat(log *slog.Logger, once func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(expireEvery)
		defer t.Stop()
		for {
			if err := once(ctx); err != nil && ctx.Err() == nil {
				log.Error("records beyond their retention could not be deleted, trying again later", "err", err)
			}
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

func expireOnce(ctx context.Context, addr string, retention map[string]time.Duration, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, expireTimeout)
	defer cancel()
	c, err := newClient([]string{addr}, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for topic, age := range retention {
		if age <= 0 {
			continue
		}
		t, err := describe(ctx, c, topic)
		if errors.Is(err, ErrNoTopic) {
			continue
		}
		errs = append(errs, err)
		for p := range t.Partitions {
			r := NewReader(ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: int32(p)})
			errs = append(errs, expirePartition(ctx, c, r, now.Add(-age)))
			r.Close()
		}
	}
	return errors.Join(errs...)
}

// expirePartition deletes the records before the first one that is not older than
// oldest. The last one stays, so that a broker that crashes still knows the log's end.
func expirePartition(ctx context.Context, c *kgo.Client, r *Reader, oldest time.Time) error {
	first, end, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	until, err := again(ctx, r, func(c *kgo.Client, p Partition) (int64, error) {
		return r.bound(ctx, c, p, max(oldest.UnixMilli(), 0), readCommitted)
	})
	if err != nil {
		return err
	}
	if until < 0 { // all are older
		until = end
	}
	until = min(until, end-1)
	if until <= first {
		return nil
	}
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Partition, part.Offset = r.cfg.Partition, until
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = r.cfg.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(answerTimeout / time.Millisecond)
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("delete records of %s/%d: %w", r.cfg.Topic, r.cfg.Partition, err)
	}
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return fmt.Errorf("delete records of %s/%d: %w: the broker answered for %d topics where one was asked for", r.cfg.Topic, r.cfg.Partition, ErrCorrupt, len(res.Topics))
	}
	if err := kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode); err != nil {
		return fmt.Errorf("delete records of %s/%d: %w", r.cfg.Topic, r.cfg.Partition, err)
	}
	return nil
}
