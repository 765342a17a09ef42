package syncbytes

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/loadtest/bench/psrole"
	"github.com/monolith-go/monolith/services/ps"
)

// trainingShard is the ps role of a job of one shard, which publishes when it is told to. What it
// publishes is read from the log once, and then trimmed.
type trainingShard struct {
	*psrole.Shard
	rows   rowwire.Handler
	clock  chan time.Time
	now    time.Time
	next   uint64 // sequence of the log to read from
	bytes  int    // of the log's messages that were read
	offset int64  // to learn next
}

// interval is the time from one publication of the shard to the next.
const interval = time.Second

// startShard starts the role with an untrained model.
func startShard(ctx context.Context, spec *model.ModelSpec) (*trainingShard, error) {
	clock := make(chan time.Time)
	role, err := psrole.Start(ctx, spec, ps.Config{Clock: clock, DenseEvery: 1, DenseRate: 1 << 40})
	if err != nil {
		return nil, err
	}
	return &trainingShard{Shard: role, rows: role.Server.Rows(), clock: clock, now: time.Unix(1_700_000_000, 0), next: 1}, nil
}

// learn has the shard learn a record's gradients.
func (s *trainingShard) learn(ctx context.Context, r *rowwire.ApplyRequest) error {
	r.Job, r.Epoch, r.From, r.To, r.RecordUnix = psrole.Job, 1, s.offset, s.offset+1, 1
	s.offset++
	_, err := s.rows.Apply(ctx, r)
	return err
}

// tick ends an interval, and hands over what landed on the log. It returns how long the shard took.
func (s *trainingShard) tick(ctx context.Context, follow func(subject string, d *delta.Delta, seq uint64) error) (time.Duration, error) {
	s.now = s.now.Add(interval)
	var began time.Time
	for range 2 { // the second is taken once the first has been dealt with
		began = time.Now()
		select {
		case s.clock <- s.now:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	took := time.Since(began)
	last, err := s.Bus.Deltas().Last(ctx)
	if err != nil || last < s.next {
		return took, err
	}
	err = s.Bus.Deltas().Follow(ctx, s.next, last, nil, func(m bus.StoredDelta) error {
		d := new(delta.Delta)
		if err := proto.Unmarshal(m.Data, d); err != nil {
			return err
		}
		if len(d.GetRows()) > 0 || len(d.GetRanges()) > 0 {
			s.bytes += len(m.Data)
		}
		return follow(m.Subject, d, m.Seq)
	})
	if err != nil {
		return took, err
	}
	s.next = last + 1
	return took, s.Bus.Deltas().(trimmer).Trim(ctx, s.next)
}

// left is how many rows wait to be published.
func (s *trainingShard) left(ctx context.Context) (uint64, error) {
	answer, err := s.Bus.Commands().Call(ctx, psrole.BZID, shardcmd.Command(psrole.Job, 0, shardcmd.Stats), []byte("{}"))
	if err != nil {
		return 0, err
	}
	var stats shardcmd.StatsResponse
	err = json.Unmarshal(answer, &stats)
	return stats.Touched, err
}

// trimmer is the log in memory, which forgets nothing by itself.
type trimmer interface {
	Trim(ctx context.Context, before uint64) error
}
