package modelserver

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// maxAnswer bounds what one lookup may be answered with, below a frame's bound by more
// than the fields around the rows take.
const maxAnswer = rowwire.MaxFrame - 1<<20

// shardScratch is what one serving shard is asked, and what it answered.
type shardScratch struct {
	ids  [][]int64   // per table, without repetition
	segs [][]segment // per table: where its ids went
	asks []ask       // in as many requests as the protocol's bounds need
	err  error
}

// ask is one request of a shard, and its answer.
type ask struct {
	req    rowwire.LookupRequest
	answer rowwire.LookupResponse
	from   *endpoint // that answered

	ids, bytes int // what the request and its answer come to
}

// segment says that the ids of a table from here on, up to the next segment, are table
// of asks[ask].
type segment struct {
	from       int32
	ask, table int
}

// reset empties h for a Predict over so many tables. Its memory stays.
func (h *shardScratch) reset(tables int) {
	for len(h.ids) < tables {
		h.ids, h.segs = append(h.ids, nil), append(h.segs, nil)
	}
	for t := range h.ids {
		h.ids[t], h.segs[t] = h.ids[t][:0], h.segs[t][:0]
	}
	h.asks, h.err = h.asks[:0], nil
}

// open begins another request.
func (h *shardScratch) open(m *entryModel, shard uint32, withSeqs bool) *ask {
	if len(h.asks) < cap(h.asks) {
		h.asks = h.asks[:len(h.asks)+1]
	} else {
		h.asks = append(h.asks, ask{})
	}
	a := &h.asks[len(h.asks)-1]
	a.req = rowwire.LookupRequest{Model: m.model, Shard: shard, Tables: a.req.Tables[:0], WithSeqs: withSeqs, Version: m.rows.version, Job: m.rows.job}
	a.from, a.ids, a.bytes = nil, 0, 0
	return a
}

// split lays the ids out in requests, each within the protocol's bounds.
func (h *shardScratch) split(m *entryModel, shard uint32, withSeqs bool) {
	var a *ask
	for t := range m.tables {
		dim := m.tables[t].dim
		row := 4*dim + 8 // its values and its sequence
		for at := 0; at < len(h.ids[t]); {
			if a == nil || len(a.req.Tables) == rowwire.MaxTables || a.ids == rowwire.MaxIDs || a.bytes+row > maxAnswer {
				a = h.open(m, shard, withSeqs)
			}
			n := min(len(h.ids[t])-at, rowwire.MaxIDs-a.ids, (maxAnswer-a.bytes)/row, maxFloats/dim)
			n = max(n, 1) // a row alone that is beyond every bound is refused by name
			h.segs[t] = append(h.segs[t], segment{from: int32(at), ask: len(h.asks) - 1, table: len(a.req.Tables)})
			a.req.Tables = append(a.req.Tables, rowwire.TableIDs{Table: m.tables[t].name, IDs: h.ids[t][at : at+n]})
			a.ids, a.bytes = a.ids+n, a.bytes+n*row
			if at += n; at < len(h.ids[t]) {
				a = nil // this one has as much of the table as it can take
			}
		}
	}
}

// place finds the id at of table t: the request that asked for it, and where it stands.
func (h *shardScratch) place(t int, at int32) (a *ask, table, i int) {
	segs := h.segs[t]
	k := len(segs) - 1
	for segs[k].from > at { // nearly always there is one
		k--
	}
	return &h.asks[segs[k].ask], segs[k].table, int(at - segs[k].from)
}

// group sorts the distinct ids by shard and table.
func (sc *scratch) group(m *entryModel, n int, withSeqs bool) {
	for len(sc.seen) < len(m.tables) {
		sc.seen = append(sc.seen, map[int64]int32{})
	}
	for t := range m.tables {
		clear(sc.seen[t])
	}
	sc.shards = append(sc.shards[:cap(sc.shards)], make([]shardScratch, max(0, m.shards-cap(sc.shards)))...)[:m.shards]
	for k := range sc.shards {
		sc.shards[k].reset(len(m.tables))
	}
	sc.at = slices.Grow(sc.at[:0], len(sc.fids))[:len(sc.fids)]
	for i, fid := range sc.fids {
		t := m.features[i/n].table
		at, ok := sc.seen[t][fid]
		if !ok {
			h := &sc.shards[modelspec.ShardOf(fid, m.shards)]
			at = int32(len(h.ids[t]))
			h.ids[t] = append(h.ids[t], fid)
			sc.seen[t][fid] = at
		}
		sc.at[i] = at
	}
	for k := range sc.shards {
		sc.shards[k].split(m, uint32(k), withSeqs)
	}
}

// lookup asks every shard that has something to answer, all at the same time.
func (s *Server) lookup(ctx context.Context, m *entryModel, sc *scratch) error {
	last := -1
	var wg sync.WaitGroup
	for k := range sc.shards {
		if len(sc.shards[k].asks) == 0 {
			continue
		}
		if last >= 0 {
			h := &sc.shards[last]
			wg.Go(func() { s.askShard(ctx, m, h) })
		}
		last = k
	}
	if last >= 0 { // the last one here: a request to one shard needs no goroutine
		s.askShard(ctx, m, &sc.shards[last])
	}
	wg.Wait()
	for k := range sc.shards {
		if err := sc.shards[k].err; err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) askShard(ctx context.Context, m *entryModel, h *shardScratch) {
	for i := range h.asks {
		if h.err = s.ask(ctx, m, &h.asks[i]); h.err != nil {
			return
		}
	}
}

// ask gets one shard's rows from one of its replicas, the next one where one fails. A
// replica that lacks the version, or refuses the request, answers well: it is not left
// alone for that, and takes none of the retries.
func (s *Server) ask(ctx context.Context, m *entryModel, a *ask) error {
	key := shardKey{m.model, a.req.Shard}
	var tried [2 * (maxRetries + 1)]*endpoint
	n, failures := 0, 0
	var last error
	for n < len(tried) && failures <= s.cfg.LookupRetries {
		e := s.routes.pick(key, m.rows, tried[:n])
		if e == nil && failures > 0 {
			e = s.routes.pick(key, m.rows, nil) // all have failed once: any may have been a moment's trouble
		}
		if e == nil {
			break
		}
		tried[n] = e
		n++
		err := s.askOne(ctx, e, m, a)
		if err == nil {
			s.metrics.lookups.WithLabelValues("ok").Inc()
			a.from = e
			return nil
		}
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		outcome := "failed"
		switch rowwire.CodeOf(err) {
		case rowwire.NotFound:
			outcome = "missing"
			e.lacks(m.rows)
			if last == nil {
				last = err // anything else says more
			}
		case rowwire.Invalid:
			outcome, last = "refused", err
		default:
			failures, last = failures+1, err
			e.failed()
		}
		s.metrics.lookups.WithLabelValues(outcome).Inc()
	}
	if last == nil {
		return status.Errorf(codes.Unavailable, "no replica of %s:ps_%d is available; see GetModelStatus of its servers", m.model, a.req.Shard)
	}
	return status.Errorf(codes.Unavailable, "no replica of %s:ps_%d answered for version %d, last: %v", m.model, a.req.Shard, m.version, last)
}

func (s *Server) askOne(ctx context.Context, e *endpoint, m *entryModel, a *ask) error {
	e.outstanding.Add(1)
	defer e.outstanding.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
	defer cancel()
	c, err := s.pool.Get(ctx, e.addr)
	if err != nil {
		return err
	}
	if err := c.LookupInto(ctx, &a.req, &a.answer); err != nil {
		return err
	}
	return m.check(a)
}

// check holds an answer against what was asked.
func (m *entryModel) check(a *ask) error {
	res := &a.answer
	if want := m.rows.version; want != 0 && res.Version != want {
		return rowwire.Errorf(rowwire.NotFound, "rows of version %d instead of %d", res.Version, want)
	}
	if len(res.Values) != len(a.req.Tables) || a.req.WithSeqs && len(res.Seqs) != len(a.req.Tables) {
		return rowwire.Errorf(rowwire.Invalid, "an answer of %d tables to a question of %d", len(res.Values), len(a.req.Tables))
	}
	for i := range a.req.Tables {
		q := &a.req.Tables[i]
		dim := m.dims[q.Table]
		if len(res.Values[i]) != len(q.IDs)*dim || a.req.WithSeqs && len(res.Seqs[i]) != len(q.IDs) {
			return rowwire.Errorf(rowwire.Invalid, "table %s: %d floats for %d rows of dim %d", q.Table, len(res.Values[i]), len(q.IDs), dim)
		}
	}
	return nil
}

// gather lays the rows out as the tower's input, feature behind feature.
func (sc *scratch) gather(m *entryModel, n int) {
	sc.x = slices.Grow(sc.x[:0], n*m.width)[:n*m.width]
	for i, fid := range sc.fids {
		f := &m.features[i/n]
		a, table, at := sc.shards[modelspec.ShardOf(fid, m.shards)].place(f.table, sc.at[i])
		dim := m.tables[f.table].dim
		copy(sc.x[(i%n)*m.width+f.offset:], a.answer.Values[table][at*dim:][:dim])
	}
}
