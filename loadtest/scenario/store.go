package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// write stores recs, each exactly once, however often the broker goes away meanwhile. A
// write whose answer was lost is looked up in the log before anything is repeated.
func (s *stream) write(recs []kafka.Record) ([]kafka.Record, error) {
	out, err := s.cfg.Writer.Write(s.work, recs...)
	for wait := 20 * time.Millisecond; err != nil; wait = min(2*wait, time.Second) {
		unknown := errors.Is(err, kafka.ErrUnknown)
		if s.work.Err() != nil {
			return nil, errors.Join(context.Cause(s.work), err)
		}
		if !unknown && !errors.Is(err, kafka.ErrUnavailable) || unknown && len(s.cfg.Brokers) == 0 {
			return nil, err
		}
		s.cfg.Log.Warn("kafka took no ratings, trying again", "err", err, "pause", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.work.Done():
			timer.Stop()
			return nil, errors.Join(context.Cause(s.work), err)
		}
		if unknown {
			if err := s.settle(out); err != nil {
				return nil, err
			}
		}
		var again []kafka.Record
		var at []int
		for i, r := range out {
			if r.Offset < 0 {
				again, at = append(again, r), append(at, i)
			}
		}
		if len(again) == 0 {
			return out, nil
		}
		var part []kafka.Record
		part, err = s.cfg.Writer.Write(s.work, again...)
		for j, i := range at {
			out[i] = part[j]
		}
		s.count(func(res *StreamResult) { res.Rewritten += int64(len(again)) })
	}
	return out, nil
}

// settle gives those of recs that are in the log after all their offsets.
func (s *stream) settle(recs []kafka.Record) error {
	missing := map[int32]map[string]*kafka.Record{}
	for i := range recs {
		r := &recs[i]
		if r.Offset >= 0 || r.Partition < 0 {
			continue
		}
		if missing[r.Partition] == nil {
			missing[r.Partition] = map[string]*kafka.Record{}
		}
		missing[r.Partition][r.Headers[rating.HeaderIndex]] = r
	}
	for p, byIndex := range missing {
		err := s.cfg.Access.ScanPartition(s.work, s.cfg.Brokers, s.cfg.Topic, p, s.next[p], func(found kafka.Record) error {
			if r := byIndex[found.Headers[rating.HeaderIndex]]; r != nil && found.Headers[rating.HeaderStream] == s.cfg.Name {
				r.Offset, r.Time = found.Offset, found.Time
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("look up an unanswered write: %w", err)
		}
	}
	return nil
}

// Stored is what of a source is in the topic already.
type Stored struct {
	index map[int]struct{}
}

// FindStored reads the whole topic for records of the source called stream, so that a
// restarted stream skips them: StreamConfig.Skip is its Has.
func FindStored(ctx context.Context, access *kafka.Access, brokers []string, topic, stream string) (*Stored, error) {
	n, err := access.Partitions(ctx, brokers, topic)
	if err != nil {
		return nil, fmt.Errorf("find stored ratings: %w", err)
	}
	s := &Stored{index: map[int]struct{}{}}
	for p := range n {
		err := access.ScanPartition(ctx, brokers, topic, p, 0, func(r kafka.Record) error {
			if r.Headers[rating.HeaderStream] != stream {
				return nil
			}
			i, err := strconv.Atoi(r.Headers[rating.HeaderIndex])
			if err != nil || i < 0 {
				return fmt.Errorf("%s/%d offset %d: index header %q is not a number from 0: it was not written by this tool; use another topic or stream name",
					topic, p, r.Offset, r.Headers[rating.HeaderIndex])
			}
			s.index[i] = struct{}{}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find stored ratings: %w", err)
		}
	}
	return s, nil
}

// Has tells whether rating index of the source is stored.
func (s *Stored) Has(index int) bool {
	_, ok := s.index[index]
	return ok
}

// Len is how many ratings of the source are stored.
func (s *Stored) Len() int { return len(s.index) }
