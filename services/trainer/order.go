package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/trainer/feed"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// errDone says that a bounded partition is learnt to its end.
var errDone = errors.New("the partition is learnt to its end")

// order says what a partition's next step learns; errDone after the last one.
type order interface {
	next(ctx context.Context) (step.Span, error)
	close()
}

// start is where to read: a partition of which nothing was ever learnt begins with what
// the topic still has, any other exactly where it stopped. A shard that is back at the
// beginning, while others have gone on, gets what they got: from where the job began.
func (l *learner) start(ctx context.Context, pos shards.Position) (int64, error) {
	if pos.From > 0 {
		return pos.From, nil
	}
	if len(pos.Cuts) > 0 {
		return l.s.job().Started.V.GetBegins()[l.partition], nil
	}
	first, _, err := l.reader.Bounds(ctx)
	return first, err
}

// end is where a bounded job stops learning the partition.
func (l *learner) end() int64 {
	ends := chief.Ends(l.s.job().Started.V)
	if ends == nil {
		return feed.NoLimit
	}
	return ends[l.partition]
}

// unordered takes what is there, at most a batch, and straddles none of the cuts.
type unordered struct {
	l    *learner
	feed *feed.Feed
	from int64
	cuts []int64
	last int64 // of a paused job: where the furthest shard stands, at which partitions come to rest
}

func (l *learner) unordered(ctx context.Context, pos shards.Position) (order, error) {
	read, err := l.start(ctx, pos)
	if err != nil {
		return nil, err
	}
	l.lag.Begin(pos.From, read)
	o := &unordered{l: l, feed: feed.New(ctx, l.reader, read, l.reading, &l.lag), from: pos.From, cuts: pos.Cuts, last: pos.From}
	if n := len(pos.Cuts); n > 0 {
		o.last = pos.Cuts[n-1]
	}
	return o, nil
}

func (o *unordered) next(ctx context.Context) (step.Span, error) {
	for len(o.cuts) > 0 && o.cuts[0] <= o.from {
		o.cuts = o.cuts[1:]
	}
	limit, over := o.l.end(), errDone
	if o.l.paused && o.last < limit {
		limit, over = o.last, errPaused
	}
	if o.from >= limit {
		return step.Span{}, over
	}
	if len(o.cuts) > 0 {
		limit = min(limit, o.cuts[0])
	}
	recs, to, err := o.feed.Batch(ctx, o.from, limit, o.l.s.cfg.Batch, o.l.s.cfg.Linger)
	if err != nil {
		return step.Span{}, err
	}
	s := step.Span{Recs: recs, From: o.from, To: to, Leader: o.feed.Leader()}
	o.from = to
	return s, nil
}

func (o *unordered) close() { o.feed.Close() }

// inTurns takes whole batches of offsets, each at its turn.
type inTurns struct {
	l          *learner
	feed       *feed.Feed
	batch      int64 // the next
	generation uint64
}

func (l *learner) inTurns(ctx context.Context, pos shards.Position) (order, error) {
	if !pos.Level {
		return nil, l.rollback(ctx, pos)
	}
	from, _ := l.turns.Span(l.partition, (pos.From+l.turns.Size-1)/l.turns.Size)
	if pos.From != from && pos.From < l.end() {
		return nil, fmt.Errorf("the shards stand at offset %d of partition %d, which is no multiple of the batch size %d: start the trainers with the batch size the job was begun with", pos.From, l.partition, l.turns.Size)
	}
	if pos.From >= l.end() {
		return nil, errDone
	}
	read, err := l.start(ctx, pos)
	if err != nil {
		return nil, err
	}
	l.lag.Begin(pos.From, read)
	return &inTurns{l, feed.New(ctx, l.reader, read, l.reading, &l.lag), pos.From / l.turns.Size, pos.Generation}, nil
}

func (o *inTurns) next(ctx context.Context) (step.Span, error) {
	t, p := o.l.turns, o.l.partition
	if o.batch >= t.Batches(p) {
		return step.Span{}, errDone
	}
	s := step.Span{When: step.At{Turn: t.Turn(p, o.batch), Generation: o.generation}}
	s.From, s.To = t.Span(p, o.batch)
	o.batch++
	var err error
	s.Recs, err = o.feed.Whole(ctx, s.To)
	s.Leader = o.feed.Leader()
	return s, err
}

func (o *inTurns) close() { o.feed.Close() }

const rollbackTimeout = 5 * time.Second // of one shard

// rollback sends every shard back to the newest checkpoint, because some of them have
// learnt what others have lost. Shards that already left the generation do nothing.
func (l *learner) rollback(ctx context.Context, pos shards.Position) error {
	l.s.log.Warn("the shards stand apart: rolling all of them back to the newest checkpoint",
		"partition", l.partition, "generation", pos.Generation)
	body, err := json.Marshal(shardcmd.RollbackRequest{
		Generation: pos.Generation,
		Reason:     "partition " + strconv.Itoa(int(l.partition)) + ": the shards stand apart",
	})
	if err != nil {
		return err
	}
	if err := l.s.shards.Each(func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
		defer cancel()
		_, err := l.s.env.Bus.Commands().Call(ctx, l.s.env.BZID, shardcmd.Command(l.s.cfg.Job, i, shardcmd.Rollback), body)
		if err != nil {
			return fmt.Errorf("roll back shard %d: %w", i, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return shards.ErrMoved
}
