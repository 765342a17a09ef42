package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// span is the offsets [from, to) of a partition and the records there, which one step learns.
type span struct {
	recs     []kafka.Record
	from, to int64
	when     at
}

// at is where in a deterministic timeline a batch is learnt.
type at struct{ turn, generation uint64 }

// order says what a partition's next step learns; errDone after the last one.
type order interface {
	next(ctx context.Context) (span, error)
	close()
}

// start is where to read: a partition of which nothing was ever learnt begins with what
// the topic still has, any other exactly where it stopped. A shard that is back at the
// beginning, while others have gone on, gets what they got: from where the job began.
func (l *learner) start(ctx context.Context, pos position) (int64, error) {
	if pos.from > 0 {
		return pos.from, nil
	}
	if len(pos.cuts) > 0 {
		return l.s.job().Started.V.GetBegins()[l.partition], nil
	}
	first, _, err := l.reader.Bounds(ctx)
	return first, err
}

// end is where a bounded job stops learning the partition.
func (l *learner) end() int64 {
	ends := endsOf(l.s.job().Started.V)
	if ends == nil {
		return math.MaxInt64
	}
	return ends[l.partition]
}

// asTheyCome takes what is there, at most a batch, and straddles none of the cuts.
type asTheyCome struct {
	l    *learner
	feed *feed
	from int64
	cuts []int64
}

func (l *learner) asTheyCome(ctx context.Context, pos position) (order, error) {
	read, err := l.start(ctx, pos)
	if err != nil {
		return nil, err
	}
	return &asTheyCome{l, newFeed(ctx, l.reader, read, l.reading), pos.from, pos.cuts}, nil
}

func (o *asTheyCome) next(ctx context.Context) (span, error) {
	for len(o.cuts) > 0 && o.cuts[0] <= o.from {
		o.cuts = o.cuts[1:]
	}
	limit := o.l.end()
	if o.from >= limit {
		return span{}, errDone
	}
	if len(o.cuts) > 0 {
		limit = min(limit, o.cuts[0])
	}
	recs, to, err := o.feed.batch(ctx, o.from, limit, o.l.s.cfg.Batch, o.l.s.cfg.Linger)
	if err != nil {
		return span{}, err
	}
	s := span{recs: recs, from: o.from, to: to}
	o.from = to
	return s, nil
}

func (o *asTheyCome) close() { o.feed.close() }

// inTurns takes whole batches of offsets, each at its turn.
type inTurns struct {
	l          *learner
	feed       *feed
	batch      int64 // the next
	generation uint64
}

func (l *learner) inTurns(ctx context.Context, pos position) (order, error) {
	if !pos.level {
		return nil, l.rollback(ctx, pos)
	}
	from, _ := l.turns.span(l.partition, (pos.from+l.turns.size-1)/l.turns.size)
	if pos.from != from && pos.from < l.end() {
		return nil, fmt.Errorf("the shards stand at offset %d of partition %d, which is no multiple of the batch size %d: start the trainers with the batch size the job was begun with", pos.from, l.partition, l.turns.size)
	}
	if pos.from >= l.end() {
		return nil, errDone
	}
	read, err := l.start(ctx, pos)
	if err != nil {
		return nil, err
	}
	return &inTurns{l, newFeed(ctx, l.reader, read, l.reading), pos.from / l.turns.size, pos.generation}, nil
}

func (o *inTurns) next(ctx context.Context) (span, error) {
	t, p := o.l.turns, o.l.partition
	if o.batch >= t.batches(p) {
		return span{}, errDone
	}
	s := span{when: at{t.turn(p, o.batch), o.generation}}
	s.from, s.to = t.span(p, o.batch)
	o.batch++
	var err error
	s.recs, err = o.feed.whole(ctx, s.to)
	return s, err
}

func (o *inTurns) close() { o.feed.close() }

// rollback sends every shard back to the newest checkpoint, because some of them have
// learnt what others have lost. Shards that already left the generation do nothing.
func (l *learner) rollback(ctx context.Context, pos position) error {
	l.s.log.Warn("the shards stand apart: rolling all of them back to the newest checkpoint",
		"partition", l.partition, "generation", pos.generation)
	body, err := json.Marshal(shardcmd.RollbackRequest{
		Generation: pos.generation,
		Reason:     "partition " + strconv.Itoa(int(l.partition)) + ": the shards stand apart",
	})
	if err != nil {
		return err
	}
	if err := l.s.shards.each(func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		_, err := l.s.env.Bus.Commands().Call(ctx, l.s.env.BZID, shardcmd.Command(l.s.cfg.Job, i, shardcmd.Rollback), body)
		if err != nil {
			return fmt.Errorf("roll back shard %d: %w", i, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return errMoved
}
