package rows

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// maxAnswer bounds what one lookup may be answered with, below a frame's bound by more
// than the fields around the rows take.
const maxAnswer = rowwire.MaxFrame - 1<<20

// Want names the rows that the answers of an entry stand on.
type Want struct {
	Model string
	// Serves is the version that the entry answers as, for errors.
	Serves int64
	// Version is that of the rows, 0 where any of the job will do.
	Version int64
	Job     string
	// Own are all shards of the rows where the entry has them itself; nil: they are asked of replicas.
	Own []*Shard
}

func (w Want) export() exportID { return exportID{w.Version, w.Job} }

// Lookup is the memory of the look-ups of one batch, or of several at once, used again by the next.
type Lookup struct{ shards []shardScratch }

// NewLookup is for a model of so many serving shards.
func NewLookup(shards int) *Lookup { return &Lookup{make([]shardScratch, shards)} }

// Plan lays out what sealed batches ask of each shard.
func (l *Lookup) Plan(w Want, withSeqs bool, batches ...*runtime.Batch) {
	for k := range l.shards {
		h := &l.shards[k]
		h.reset()
		for _, b := range batches {
			h.begins = append(h.begins, len(h.segs))
			h.split(w, uint32(k), b.Blocks(k), withSeqs)
		}
	}
}

// Replica is the number of the replica that answered for id at of a block of a shard, of the batch that
// was planned as the nth.
func (l *Lookup) Replica(nth, shard, block, at int) int32 {
	h := &l.shards[shard]
	return h.asked(h.begins[nth]+block, at).from.replica
}

// shardScratch is what one serving shard is asked, and who answered.
type shardScratch struct {
	begins []int       // by batch: where its blocks begin
	segs   [][]segment // by block: where its ids went
	asks   []ask       // in as many requests as the protocol's bounds need
	err    error
}

// ask is one request of a shard. Its answer lands in the batch.
type ask struct {
	req    rowwire.LookupRequest
	answer rowwire.LookupResponse
	rows   [][]float32 // by table of req: where its answer goes
	seqs   [][]uint64  // likewise, if it is asked for them
	from   *endpoint   // that answered

	ids, bytes int // what the request and its answer come to
}

// segment says that the ids of a block from here on, up to the next segment, are in
// asks[ask].
type segment struct {
	from int32
	ask  int
}

// reset forgets what was asked before.
func (h *shardScratch) reset() {
	h.begins, h.segs, h.asks, h.err = h.begins[:0], h.segs[:0], h.asks[:0], nil
}

// open begins another request.
func (h *shardScratch) open(w Want, shard uint32, withSeqs bool) *ask {
	if len(h.asks) < cap(h.asks) {
		h.asks = h.asks[:len(h.asks)+1]
	} else {
		h.asks = append(h.asks, ask{})
	}
	a := &h.asks[len(h.asks)-1]
	a.req = rowwire.LookupRequest{Model: w.Model, Shard: shard, Tables: a.req.Tables[:0], WithSeqs: withSeqs, Version: w.Version, Job: w.Job}
	a.rows, a.seqs, a.from, a.ids, a.bytes = a.rows[:0], a.seqs[:0], nil, 0, 0
	return a
}

// split lays the ids of a batch out in requests, each within the protocol's bounds.
func (h *shardScratch) split(w Want, shard uint32, blocks []runtime.Block, withSeqs bool) {
	var a *ask
	if n := len(h.asks); n > 0 {
		a = &h.asks[n-1] // what it has room for goes along with the batch before
	}
	for i := range blocks {
		b := &blocks[i]
		row := 4*b.Dim + 8 // its values and its sequence
		k := len(h.segs)
		if h.segs = slices.Grow(h.segs, 1)[:k+1]; h.segs[k] != nil {
			h.segs[k] = h.segs[k][:0]
		}
		for at := 0; at < len(b.IDs); {
			if a == nil || len(a.req.Tables) == rowwire.MaxTables || a.ids == rowwire.MaxIDs || a.bytes+row > maxAnswer {
				a = h.open(w, shard, withSeqs)
			}
			n := min(len(b.IDs)-at, rowwire.MaxIDs-a.ids, (maxAnswer-a.bytes)/row, maxFloats/b.Dim)
			n = max(n, 1) // a row alone that is beyond every bound is refused by name
			h.segs[k] = append(h.segs[k], segment{from: int32(at), ask: len(h.asks) - 1})
			a.req.Tables = append(a.req.Tables, rowwire.TableIDs{Table: b.Table, IDs: b.IDs[at : at+n]})
			a.rows = append(a.rows, b.Rows[at*b.Dim:(at+n)*b.Dim])
			if withSeqs {
				a.seqs = append(a.seqs, b.Seqs[at:at+n])
			}
			a.ids, a.bytes = a.ids+n, a.bytes+n*row
			if at += n; at < len(b.IDs) {
				a = nil // this one has as much of the table as it can take
			}
		}
	}
}

// asked finds the request that asked for id i of a block.
func (h *shardScratch) asked(block, i int) *ask {
	segs := h.segs[block]
	k := len(segs) - 1
	for int(segs[k].from) > i { // nearly always there is one
		k--
	}
	return &h.asks[segs[k].ask]
}

// Lookup asks every shard that has something to answer, all at the same time.
func (s *Client) Lookup(ctx context.Context, w Want, sc *Lookup) error {
	last := -1
	var wg sync.WaitGroup
	for k := range sc.shards {
		if len(sc.shards[k].asks) == 0 {
			continue
		}
		if last >= 0 {
			h := &sc.shards[last]
			wg.Go(func() { s.askShard(ctx, w, h) })
		}
		last = k
	}
	if last >= 0 { // the last one here: a request to one shard needs no goroutine
		s.askShard(ctx, w, &sc.shards[last])
	}
	wg.Wait()
	for k := range sc.shards {
		if err := sc.shards[k].err; err != nil {
			return err
		}
	}
	return nil
}

func (s *Client) askShard(ctx context.Context, w Want, h *shardScratch) {
	for i := range h.asks {
		if h.err = s.ask(ctx, w, &h.asks[i]); h.err != nil {
			return
		}
	}
}

// ask gets one shard's rows from one of its replicas, the next one where one fails. A
// replica that lacks the version, or refuses the request, answers well: it is not left
// alone for that, and takes none of the retries.
func (s *Client) ask(ctx context.Context, w Want, a *ask) error {
	if w.Own != nil {
		return s.askOwn(w, a)
	}
	key := shardKey{w.Model, a.req.Shard}
	var tried [2 * (MaxRetries + 1)]*endpoint
	n, failures := 0, 0
	var last error
	for n < len(tried) && failures <= s.retries {
		e := s.routes.pick(key, w.export(), tried[:n])
		if e == nil && failures > 0 {
			e = s.routes.pick(key, w.export(), nil) // all have failed once: any may have been a moment's trouble
		}
		if e == nil {
			break
		}
		tried[n] = e
		n++
		from, err := s.askHedged(ctx, key, e, w, a)
		if err == nil {
			s.metrics.lookups.WithLabelValues("ok").Inc()
			a.from = from
			return nil
		}
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		outcome := "failed"
		switch rowwire.CodeOf(err) {
		case rowwire.NotFound:
			outcome = "missing"
			e.lacks(w.export())
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
		return status.Errorf(codes.Unavailable, "no replica of %s:ps_%d is available; see GetModelStatus of its servers", w.Model, a.req.Shard)
	}
	return status.Errorf(codes.Unavailable, "no replica of %s:ps_%d answered for version %d, last: %v", w.Model, a.req.Shard, w.Serves, last)
}

// here stands for the memory of the entry itself among replicas.
var here = &endpoint{}

// askOwn gets rows that the entry has itself.
func (s *Client) askOwn(w Want, a *ask) error {
	a.from = here
	a.answer.Into(a.rows, a.seqs)
	err := w.Own[a.req.Shard].lookup(&a.req, &a.answer)
	if err == nil {
		err = w.landed(a)
	}
	if err != nil {
		s.metrics.lookups.WithLabelValues("refused").Inc()
		return status.Errorf(codes.Internal, "%s:ps_%d of version %d: %v", w.Model, a.req.Shard, w.Serves, err)
	}
	s.metrics.lookups.WithLabelValues("ok").Inc()
	return nil
}

func (s *Client) askOne(ctx context.Context, e *endpoint, w Want, a *ask) error {
	e.outstanding.Add(1)
	defer e.outstanding.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	c, err := s.pool.Get(ctx, e.addr)
	if err != nil {
		return err
	}
	a.answer.Into(a.rows, a.seqs)
	began := time.Now()
	if err := c.LookupInto(ctx, &a.req, &a.answer); err != nil {
		return err
	}
	now := time.Now()
	e.latency.took(now.Sub(began), now)
	return w.landed(a)
}

// landed holds an answer against what was asked.
func (w Want) landed(a *ask) error {
	if want := w.Version; want != 0 && a.answer.Version != want {
		return rowwire.Errorf(rowwire.NotFound, "rows of version %d instead of %d", a.answer.Version, want)
	}
	return a.answer.Landed(a.rows, a.seqs)
}
