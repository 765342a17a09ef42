package rows

import (
	"context"
	"time"
)

// hedge is a lookup that was sent to another replica too.
type hedge struct {
	to  *endpoint // nil: nobody was asked
	ask ask       // in memory of its own: both may be answered
	err error
}

// askHedged asks e, and another replica too where e takes longer than the shard usually does: the
// first answer counts, and the other lookup is given up. from is who answered.
func (s *Client) askHedged(ctx context.Context, key shardKey, e *endpoint, w Want, a *ask) (from *endpoint, err error) {
	p := s.routes.pace(key)
	if p == nil { // the shard has just left
		return e, s.askOne(ctx, e, w, a)
	}
	began := time.Now()
	defer func() {
		if err == nil {
			p.answered(time.Since(began))
		}
	}()
	after := p.asked()
	if after == 0 {
		return e, s.askOne(ctx, e, w, a)
	}
	first, giveUpFirst := context.WithCancel(ctx)
	defer giveUpFirst()
	second, giveUpSecond := context.WithCancel(ctx)
	defer giveUpSecond()
	hedged := make(chan hedge, 1)
	timer := time.AfterFunc(after, func() { // what it does is waited for below
		h := s.hedge(second, key, p, e, w, a)
		if h.to != nil && h.err == nil {
			giveUpFirst()
		}
		hedged <- h
	})
	err = s.askOne(first, e, w, a)
	if timer.Stop() {
		return e, err
	}
	if err == nil {
		giveUpSecond()
	}
	h := <-hedged
	switch {
	case h.to == nil:
		return e, err
	case err == nil:
		s.metrics.hedges.WithLabelValues("lost").Inc()
		return e, nil
	case h.err != nil:
		s.metrics.hedges.WithLabelValues("failed").Inc()
		return e, err
	}
	s.metrics.hedges.WithLabelValues("won").Inc()
	now := time.Now()
	e.latency.took(now.Sub(began), now) // at least: it was given up
	for i := range a.rows {
		copy(a.rows[i], h.ask.rows[i])
	}
	for i := range a.seqs {
		copy(a.seqs[i], h.ask.seqs[i])
	}
	return h.to, nil
}

// hedge asks another replica than e, if there is one that is well and the shard's budget has room.
func (s *Client) hedge(ctx context.Context, key shardKey, p *pace, e *endpoint, w Want, a *ask) (h hedge) {
	other := s.routes.pick(key, w.export(), []*endpoint{e})
	if other == nil || other.down(w.export(), time.Now()) || !p.hedge() {
		return h
	}
	h = hedge{to: other, ask: ask{req: a.req}}
	for _, v := range a.rows {
		h.ask.rows = append(h.ask.rows, make([]float32, len(v)))
	}
	for _, v := range a.seqs {
		h.ask.seqs = append(h.ask.seqs, make([]uint64, len(v)))
	}
	h.err = s.askOne(ctx, other, w, &h.ask)
	return h
}
