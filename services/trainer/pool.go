package trainer

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// fill reads the records before those that are to be learnt, as far back as negatives are drawn from, and
// learns none: the pool is then what it was for whoever learnt up to here.
func (l *learner) fill(ctx context.Context, pos shards.Position) error {
	l.ring.pool.Reset()
	reach := samplerule.PoolRecords(l.s.engine.Spec())
	if reach == 0 || pos.From == 0 || pos.From >= l.end() { // nothing is drawn
		return nil
	}
	first, _, err := l.reader.Bounds(ctx)
	if err != nil {
		return err
	}
	at := max(l.s.job().Started.V.GetBegins()[l.partition], pos.From-reach)
	if first > at {
		if l.s.cfg.Deterministic {
			return fmt.Errorf("negatives of offset %d are drawn from records back to %d, and the log of %s/%d begins at %d: keep records longer, or declare negatives of fewer records",
				pos.From, at, l.s.cfg.Topic, l.partition, first)
		}
		l.s.log.Warn("the log begins behind the first records of the pool of items, which has fewer for a while", "partition", l.partition, "pool", at, "log", first)
		at = first
	}
	for at < pos.From {
		recs, next, err := l.reader.Fetch(ctx, at)
		if err != nil {
			return err
		}
		for len(recs) > 0 && recs[len(recs)-1].Offset >= pos.From {
			recs = recs[:len(recs)-1]
		}
		l.ring.steps[0].Remember(recs)
		l.ring.pool.Trim(min(next, pos.From))
		at = next
	}
	return nil
}
