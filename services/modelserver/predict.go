package modelserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/modelspec"
	"github.com/monolith-go/monolith/internal/rowwire"
	"github.com/monolith-go/monolith/internal/tfserving"
	"github.com/monolith-go/monolith/kernels/dense"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const outputName = "score"

// scratch is the memory of one Predict, used again by the next.
type scratch struct {
	ws     dense.Workspace
	x      []float32
	column []int64
	fids   []int64           // feature-major: feature f, row r at f*n+r
	at     []int32           // of the same element: place in its shard's id list of its table
	seen   []map[int64]int32 // per table: feature id -> at
	shards []shardScratch
}

// shardScratch is what one serving shard is asked, and what it answered.
type shardScratch struct {
	ids    [][]int64 // per table
	reply  []int     // per table: index in request and answer, -1: nothing asked
	req    rowwire.LookupRequest
	answer rowwire.LookupResponse  // memory of res
	res    *rowwire.LookupResponse // nil: none yet
	from   *endpoint
	err    error
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// find resolves a model spec to what is served, in the original's words where it is not.
func (x *index) find(spec *apis.ModelSpec) (*generation, error) {
	if spec.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "Missing ModelSpec: name the model")
	}
	if _, ok := spec.GetVersionChoice().(*apis.ModelSpec_VersionLabel); ok {
		return nil, status.Errorf(codes.InvalidArgument, "Unrecognized servable version label: %s", spec.GetVersionLabel())
	}
	want := spec.GetVersion().GetValue()
	versions, _ := alias(x.models, spec.GetName())
	for _, g := range versions {
		if want == 0 || g.number() == want {
			return g, nil
		}
	}
	return nil, status.Error(codes.NotFound, notFound(spec.GetName(), want))
}

func (g *generation) number() int64 {
	if g.entry != nil {
		return g.entry.version
	}
	return g.ps.version
}

// entry is find for what can predict.
func (x *index) entry(spec *apis.ModelSpec) (*entryModel, error) {
	g, err := x.find(spec)
	if err != nil {
		return nil, err
	}
	if g.entry == nil {
		return nil, status.Errorf(codes.Unimplemented, "model %s holds embedding rows, which the row protocol serves; send Predict to %s:entry", spec.GetName(), g.ps.model)
	}
	if sig := spec.GetSignatureName(); sig != "" && sig != tfserving.DefaultSignature {
		return nil, status.Errorf(codes.InvalidArgument, "Serving signature name: %q not found in signature def; it has %q", sig, tfserving.DefaultSignature)
	}
	return g.entry, nil
}

// score answers a batch: ids to rows to tower to sigmoid. The scores are a fresh slice.
// With rec, what the answer stood on is handed to it before the scratch is given back.
func (s *Server) score(ctx context.Context, m *entryModel, inputs map[string]*tfserving.TensorProto, rec *recorder) ([]float32, error) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	n, err := sc.read(m, inputs, s.cfg.MaxBatch)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	sc.group(m, n, rec != nil)
	if err := s.lookup(ctx, m, sc); err != nil {
		return nil, err
	}
	sc.gather(m, n)
	p := m.params.Load()
	logits, err := m.tower.Forward(p.tensors, sc.x, n, &sc.ws)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.model, err)
	}
	scores := make([]float32, n)
	for i, z := range logits {
		scores[i] = dense.Sigmoid(z)
	}
	if rec != nil {
		rec.take(m, sc, n, p.seq, scores)
	}
	return scores, nil
}

// read turns the input tensors into feature ids; all must have the same number of rows.
func (sc *scratch) read(m *entryModel, inputs map[string]*tfserving.TensorProto, limit int) (n int, err error) {
	if len(inputs) != len(m.features) {
		return 0, fmt.Errorf("input size does not match signature: %d inputs {%s}, the signature has %d: {%s}",
			len(inputs), strings.Join(slices.Sorted(maps.Keys(inputs)), ", "), len(m.features), m.inputNames())
	}
	n = -1
	sc.fids = sc.fids[:0]
	for i := range m.features {
		f := &m.features[i]
		t, ok := inputs[f.name]
		if !ok {
			return 0, fmt.Errorf("input %q is missing; the signature has {%s}", f.name, m.inputNames())
		}
		rows, err := tfserving.Rows(t, limit)
		if err != nil {
			return 0, fmt.Errorf("input %q: %w", f.name, err)
		}
		if n < 0 {
			n = rows
		}
		if sc.column, err = tfserving.Int64s(sc.column[:0], t, limit); err != nil {
			return 0, fmt.Errorf("input %q: %w", f.name, err)
		}
		if rows != n || len(sc.column) != n {
			return 0, fmt.Errorf("input %q has %d rows of %d ids in all, want one id for each of %d rows: shape [n] or [n, 1]", f.name, rows, len(sc.column), n)
		}
		for row, id := range sc.column {
			if id < 0 || id > modelspec.MaxID {
				return 0, fmt.Errorf("input %q, row %d: id %d is outside 0 to 2^48-1; hash ids to 48 bits as the training records do", f.name, row, id)
			}
			sc.fids = append(sc.fids, modelspec.FID(f.slot, id))
		}
	}
	if n == 0 {
		return 0, errors.New("the batch is empty; send at least one row")
	}
	return n, nil
}

func (m *entryModel) inputNames() string {
	names := make([]string, len(m.features))
	for i, f := range m.features {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// group sorts the distinct ids by shard and table.
func (sc *scratch) group(m *entryModel, n int, withSeqs bool) {
	for len(sc.seen) < len(m.tables) {
		sc.seen = append(sc.seen, map[int64]int32{})
	}
	for t := range m.tables {
		clear(sc.seen[t])
	}
	if cap(sc.shards) < m.shards {
		sc.shards = append(sc.shards[:cap(sc.shards)], make([]shardScratch, m.shards-cap(sc.shards))...)
	}
	sc.shards = sc.shards[:m.shards]
	for k := range sc.shards {
		h := &sc.shards[k]
		for len(h.ids) < len(m.tables) {
			h.ids, h.reply = append(h.ids, nil), append(h.reply, -1)
		}
		for t := range h.ids {
			h.ids[t], h.reply[t] = h.ids[t][:0], -1
		}
		h.res, h.from, h.err = nil, nil, nil
		h.req = rowwire.LookupRequest{Model: m.model, Shard: uint32(k), Tables: h.req.Tables[:0], WithSeqs: withSeqs}
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
		h := &sc.shards[k]
		for t := range m.tables {
			if len(h.ids[t]) > 0 {
				h.reply[t] = len(h.req.Tables)
				h.req.Tables = append(h.req.Tables, rowwire.TableIDs{Table: m.tables[t].name, IDs: h.ids[t]})
			}
		}
	}
}

// lookup asks every shard that has something to answer, all at the same time.
func (s *Server) lookup(ctx context.Context, m *entryModel, sc *scratch) error {
	last := -1
	var wg sync.WaitGroup
	for k := range sc.shards {
		if len(sc.shards[k].req.Tables) == 0 {
			continue
		}
		if last >= 0 {
			h := &sc.shards[last]
			wg.Go(func() { s.ask(ctx, m, h) })
		}
		last = k
	}
	if last >= 0 { // the last one here: a request to one shard needs no goroutine
		s.ask(ctx, m, &sc.shards[last])
	}
	wg.Wait()
	for k := range sc.shards {
		if err := sc.shards[k].err; err != nil {
			return err
		}
	}
	return nil
}

// ask gets one shard's rows from one of its replicas, the next one where one fails.
func (s *Server) ask(ctx context.Context, m *entryModel, h *shardScratch) {
	key := shardKey{m.model, h.req.Shard}
	var tried [maxRetries + 1]*endpoint
	n := 0
	var last error
	for n <= s.cfg.LookupRetries {
		e := s.routes.pick(key, tried[:n])
		if e == nil && n > 0 {
			e = s.routes.pick(key, nil) // all have failed once: any may have been a moment's trouble
		}
		if e == nil {
			break
		}
		tried[n] = e
		n++
		res, err := s.askOne(ctx, e, m, h)
		if err == nil {
			s.metrics.lookups.WithLabelValues("ok").Inc()
			h.res, h.from = res, e
			return
		}
		last = err
		if ctx.Err() != nil {
			h.err = status.FromContextError(ctx.Err()).Err()
			return
		}
		e.failed()
		s.metrics.lookups.WithLabelValues("failed").Inc()
	}
	if last == nil {
		h.err = status.Errorf(codes.Unavailable, "no replica of %s:ps_%d is available; see GetModelStatus of its servers", m.model, h.req.Shard)
		return
	}
	h.err = status.Errorf(codes.Unavailable, "no replica of %s:ps_%d answered, last: %v", m.model, h.req.Shard, last)
}

func (s *Server) askOne(ctx context.Context, e *endpoint, m *entryModel, h *shardScratch) (*rowwire.LookupResponse, error) {
	e.outstanding.Add(1)
	defer e.outstanding.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
	defer cancel()
	c, err := s.pool.Get(ctx, e.addr)
	if err != nil {
		return nil, err
	}
	if err := c.LookupInto(ctx, &h.req, &h.answer); err != nil {
		return nil, err
	}
	return &h.answer, m.check(h, &h.answer)
}

// check holds an answer against what was asked; a replica that answers something else
// is of another version, and another one may do better.
func (m *entryModel) check(h *shardScratch, res *rowwire.LookupResponse) error {
	if len(res.Values) != len(h.req.Tables) || h.req.WithSeqs && len(res.Seqs) != len(h.req.Tables) {
		return fmt.Errorf("an answer of %d tables to a question of %d", len(res.Values), len(h.req.Tables))
	}
	for t, i := range h.reply {
		if i < 0 || t >= len(m.tables) {
			continue
		}
		if len(res.Values[i]) != len(h.ids[t])*m.tables[t].dim || h.req.WithSeqs && len(res.Seqs[i]) != len(h.ids[t]) {
			return fmt.Errorf("table %s: %d floats for %d rows of dim %d", m.tables[t].name, len(res.Values[i]), len(h.ids[t]), m.tables[t].dim)
		}
	}
	return nil
}

// gather lays the rows out as the tower's input, feature behind feature.
func (sc *scratch) gather(m *entryModel, n int) {
	sc.x = slices.Grow(sc.x[:0], n*m.width)[:n*m.width]
	for i, fid := range sc.fids {
		f := &m.features[i/n]
		h := &sc.shards[modelspec.ShardOf(fid, m.shards)]
		dim := m.tables[f.table].dim
		row := h.res.Values[h.reply[f.table]][int(sc.at[i])*dim:][:dim]
		copy(sc.x[(i%n)*m.width+f.offset:], row)
	}
}
