package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetched is the answer to one fetch.
type fetched struct {
	recs []Record
	next int64 // behind the last offset that was answered for, record or hole
}

// fetch asks for the records from offset on, of the very topic that was described.
func (r *Reader) fetch(ctx context.Context, c *kgo.Client, p Partition, offset int64) (fetched, error) {
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = r.cfg.Partition, offset, int32(r.cfg.MaxBytes)
	part.CurrentLeaderEpoch = p.LeaderEpoch
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = r.cfg.Topic, idBytes(r.topicID)
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrFetchRequest()
	req.Topics = append(req.Topics, topic)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(r.cfg.MaxWait/time.Millisecond), 1, int32(r.cfg.MaxBytes)
	req.IsolationLevel = readCommitted
	req.SessionEpoch = -1 // no fetch session
	limited, cancel := context.WithTimeout(ctx, r.cfg.MaxWait+answerTimeout)
	defer cancel()
	answer, err := c.Broker(int(p.leader)).Request(limited, req)
	if err != nil {
		return fetched{}, unanswered(ctx, err)
	}
	res := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
		return fetched{}, err
	}
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return fetched{}, fmt.Errorf("%w: the broker answered for %d topics where one was asked for", ErrCorrupt, len(res.Topics))
	}
	return r.decode(&res.Topics[0].Partitions[0], offset)
}

func (r *Reader) decode(res *kmsg.FetchResponseTopicPartition, offset int64) (fetched, error) {
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: offset, IsolationLevel: kgo.ReadCommitted(), Topic: r.cfg.Topic, Partition: r.cfg.Partition,
	}, res, kgo.DefaultDecompressor(), nil)
	f := fetched{next: next, recs: make([]Record, len(got.Records))}
	if code := (*kerr.Error)(nil); errors.As(got.Err, &code) {
		return fetched{}, code
	}
	if got.Err != nil && len(got.Records) == 0 {
		return fetched{}, fmt.Errorf("%w: behind offset %d: %w", ErrCorrupt, next, got.Err)
	}
	for i, m := range got.Records {
		f.recs[i] = Record{
			Topic: r.cfg.Topic, Partition: r.cfg.Partition, Offset: m.Offset,
			Time: m.Timestamp, Key: m.Key, Value: m.Value, Headers: headers(m.Headers),
		}
	}
	// The high watermark of the answer is not compared: a broker notes it before it reads the
	// records, and a new leader's lags behind the log for a moment.
	if next == offset && len(res.RecordBatches) > 0 {
		return fetched{}, fmt.Errorf("%w: no whole record in the answer at offset %d of %d", ErrCorrupt, offset, res.HighWatermark)
	}
	return f, nil
}

const (
	earliest = -2 // as timestamps on the wire
	latest   = -1

	readUncommitted = 0
	readCommitted   = 1
)

// bound asks where the log begins, or where what isolation lets a reader see ends.
func (r *Reader) bound(ctx context.Context, c *kgo.Client, p Partition, at int64, isolation int8) (int64, error) {
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch, part.Timestamp = r.cfg.Partition, p.LeaderEpoch, at
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = r.cfg.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	req.Topics = append(req.Topics, topic)
	answer, err := c.Broker(int(p.leader)).Request(ctx, req)
	if err != nil {
		return 0, unanswered(ctx, err)
	}
	res := answer.(*kmsg.ListOffsetsResponse)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w: the broker answered for %d topics where one was asked for", ErrCorrupt, len(res.Topics))
	}
	return res.Topics[0].Partitions[0].Offset, kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode)
}

// check is ErrTruncated unless the leader's log holds everything below was, or did
// before retention removed it.
func (r *Reader) check(ctx context.Context, c *kgo.Client, p Partition, was place) error {
	end, err := int64(-1), error(nil)
	if was.epoch >= 0 && p.LeaderEpoch >= 0 {
		if p.LeaderEpoch < was.epoch {
			return fmt.Errorf("%w: offset %d was read in leader epoch %d, it is now %d", ErrTruncated, was.next, was.epoch, p.LeaderEpoch)
		}
		if end, err = r.endOfEpoch(ctx, c, p, was.epoch); err != nil {
			return err
		}
	}
	if end < 0 { // the leader cannot tell
		if end, err = r.bound(ctx, c, p, latest, readUncommitted); err != nil {
			return err
		}
	}
	if end < was.next {
		return fmt.Errorf("%w: offset %d was read, what is left of that log ends at %d", ErrTruncated, was.next, end)
	}
	return nil
}

// endOfEpoch is where the records end that were written in epoch or before, -1 where
// the leader cannot tell.
func (r *Reader) endOfEpoch(ctx context.Context, c *kgo.Client, p Partition, epoch int32) (int64, error) {
	part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch, part.LeaderEpoch = r.cfg.Partition, p.LeaderEpoch, epoch
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = r.cfg.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, topic)
	answer, err := c.Broker(int(p.leader)).Request(ctx, req)
	if err != nil {
		return -1, unanswered(ctx, err)
	}
	res := answer.(*kmsg.OffsetForLeaderEpochResponse)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return -1, fmt.Errorf("%w: the broker answered for %d topics where one was asked for", ErrCorrupt, len(res.Topics))
	}
	at := res.Topics[0].Partitions[0]
	return at.EndOffset, kerr.ErrorForCode(at.ErrorCode)
}

func headers(hs []kgo.RecordHeader) map[string]string {
	if len(hs) == 0 {
		return nil
	}
	m := make(map[string]string, len(hs))
	for _, h := range hs {
		m[h.Key] = string(h.Value)
	}
	return m
}
