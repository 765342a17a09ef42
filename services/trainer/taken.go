package trainer

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// lastTaken is what was last said of who learns the partition, nil where nobody has.
func (l *learner) lastTaken(ctx context.Context) (t *training.PartitionTaken, err error) {
	if l.said != nil {
		return l.said, nil
	}
	last, err := l.s.env.Bus.Log().Last(ctx)
	if err == nil {
		err = l.s.lineage.Wait(ctx, last)
	}
	if err != nil {
		return nil, fmt.Errorf("find who has learnt the partition before: %w", err)
	}
	l.s.lineage.Read(func(st lineage.State) { t = st.Jobs[l.s.cfg.Job].Partitions[l.partition].V })
	return t, nil
}

// leaderOf is the leader epoch in which a partition was learnt, -1 where it is not known.
func leaderOf(t *training.PartitionTaken) int32 {
	if t == nil || t.LeaderEpoch == nil {
		return -1
	}
	return t.GetLeaderEpoch()
}

// takes says that this trainer learns the partition, before it learns any of it, and says so again
// before it learns what a later leader may have written: whoever comes next asks where the records
// of that leader's time ended.
func (l *learner) takes(ctx context.Context, from int64, leader int32) error {
	if l.said != nil && leader <= leaderOf(l.said) {
		return nil
	}
	t := &training.PartitionTaken{Partition: l.partition, Epoch: l.epoch, Trainer: l.s.cfg.Name, From: from}
	if leader >= 0 {
		t.LeaderEpoch = proto.Int32(leader)
	}
	if err := l.s.tell(ctx, &training.Event{Body: &training.Event_PartitionTaken{PartitionTaken: t}}); err != nil {
		return fmt.Errorf("say that the partition is taken: %w", err)
	}
	l.said = t
	return nil
}

// checkLog makes sure that the partition's log still holds what was learnt from it. Where it ends
// tells little, since a log that was cut and written anew may be the longer one: it is asked where the
// records ended that were written until a leader's epoch, of the newest cut that knows one, and of
// whoever learnt the partition last.
func (l *learner) checkLog(ctx context.Context, pos shards.Position, leader int32) error {
	cuts := l.s.job().Checkpoints
	for i := len(cuts) - 1; i >= 0; i-- {
		epoch, ok := cuts[i].V.GetLeaderEpochs()[l.partition]
		if !ok {
			continue
		}
		if err := l.reader.Check(ctx, cuts[i].V.GetOffsets()[l.partition], epoch); err != nil {
			return fmt.Errorf("checkpoint %d: %w", cuts[i].V.GetId(), err)
		}
		break
	}
	learnt := pos.From
	if n := len(pos.Cuts); n > 0 && !l.s.cfg.Deterministic { // there the shards go back to one cut
		learnt = pos.Cuts[n-1]
	}
	if learnt == 0 {
		leader = -1 // nothing is of anybody's time
	}
	if err := l.reader.Check(ctx, learnt, leader); err != nil {
		return fmt.Errorf("what was learnt since the newest checkpoint: %w", err)
	}
	_, end, err := l.reader.Bounds(ctx)
	switch {
	case err != nil:
		return err
	case end < pos.From:
		return fmt.Errorf("%w: offset %d was learnt, the log of %s/%d ends at %d", kafka.ErrTruncated, pos.From, l.s.cfg.Topic, l.partition, end)
	case end == pos.From:
		l.s.env.Health.OK(l.named("learning")) // nothing is left to learn
	}
	return nil
}
