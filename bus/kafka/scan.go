package kafka

import (
	"context"
	"fmt"
)

// Scan hands every record of the topic, up to where it ends now, to handle, partition
// by partition, and returns the first and end offsets.
func (a *Access) Scan(ctx context.Context, brokers []string, topic string, handle func(Record) error) (first, ends map[int32]int64, err error) {
	return a.eachPartition(ctx, brokers, topic, func(r *Reader, begin, end int64) error { return r.scan(ctx, begin, end, handle) })
}

// ScanPartition hands the records of one partition, from an offset on and up to where it
// ends now, to handle.
func (a *Access) ScanPartition(ctx context.Context, brokers []string, topic string, partition int32, from int64, handle func(Record) error) error {
	r := NewReader(ReaderConfig{Brokers: brokers, Access: a, Topic: topic, Partition: partition})
	defer r.Close()
	begin, end, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	return r.scan(ctx, max(from, begin), end, handle)
}

// ScanRange hands the records of one partition at the offsets [from, end) to handle.
func (a *Access) ScanRange(ctx context.Context, brokers []string, topic string, partition int32, from, end int64, handle func(Record) error) error {
	r := NewReader(ReaderConfig{Brokers: brokers, Access: a, Topic: topic, Partition: partition})
	defer r.Close()
	return r.scan(ctx, from, end, handle)
}

// scan hands the records of [from, end) to handle.
func (r *Reader) scan(ctx context.Context, from, end int64, handle func(Record) error) error {
	for at := from; at < end; {
		recs, next, err := r.Fetch(ctx, at)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			if rec.Offset >= end {
				return nil
			}
			if err := handle(rec); err != nil {
				return err
			}
		}
		at = next
	}
	return nil
}

// Bounds are the first and end offsets of the topic's partitions.
func (a *Access) Bounds(ctx context.Context, brokers []string, topic string) (first, ends map[int32]int64, err error) {
	return a.eachPartition(ctx, brokers, topic, func(*Reader, int64, int64) error { return nil })
}

// eachPartition hands a reader of each partition, with its bounds, to read.
func (a *Access) eachPartition(ctx context.Context, brokers []string, topic string, read func(r *Reader, begin, end int64) error) (first, ends map[int32]int64, err error) {
	n, err := a.Partitions(ctx, brokers, topic)
	if err != nil {
		return nil, nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	first, ends = map[int32]int64{}, map[int32]int64{}
	for p := range n {
		err := func() error {
			r := NewReader(ReaderConfig{Brokers: brokers, Access: a, Topic: topic, Partition: p, MaxBytes: 4 << 20})
			defer r.Close()
			begin, end, err := r.Bounds(ctx)
			if err != nil {
				return err
			}
			first[p], ends[p] = begin, end
			return read(r, begin, end)
		}()
		if err != nil {
			return nil, nil, fmt.Errorf("read topic %s/%d: %w", topic, p, err)
		}
	}
	return first, ends, nil
}
