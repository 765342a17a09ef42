package ps

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// atTurn waits, in deterministic mode, until the shard has learnt exactly turn batches
// of generation, and then calls read with mu held for reading.
func (s *state) atTurn(ctx context.Context, turn, generation uint64, read func() error) error {
	for {
		s.mu.RLock()
		changed, refuse, now := s.changed, s.refuse, s.turn
		if refuse == nil {
			refuse = s.checkGeneration(generation)
		}
		switch {
		case refuse != nil:
			s.mu.RUnlock()
			return refuse
		case s.deterministic && turn < now:
			s.mu.RUnlock()
			return turnPassed(turn, now)
		case !s.deterministic || turn == now:
			err := read()
			s.mu.RUnlock()
			return err
		}
		s.mu.RUnlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return rowwire.Errorf(rowwire.Unavailable, "turn %d did not come in time, the shard is at %d: %w", turn, now, ctx.Err())
		}
	}
}

// lookup answers r into the memory of res.
func (s *state) lookup(ctx context.Context, r *rowwire.LookupRequest, res *rowwire.LookupResponse) error {
	if err := s.checkAddressee(r.Model, r.Shard); err != nil {
		return err
	}
	size := 0
	for i := range r.Tables {
		t := &r.Tables[i]
		dim, ok := s.dims[t.Table]
		if !ok {
			return rowwire.Errorf(rowwire.NotFound, "model %q has no table %q", s.spec.GetName(), t.Table)
		}
		if err := s.checkIDs(t.Table, t.IDs); err != nil {
			return err
		}
		size += 4 * dim * len(t.IDs)
	}
	if size > rowwire.MaxFrame/2 {
		return rowwire.Errorf(rowwire.Invalid, "the rows asked for take %d bytes, %d are answered at once: ask for fewer", size, rowwire.MaxFrame/2)
	}
	res.Fill(r)
	return s.atTurn(ctx, r.Turn, r.Generation, func() error {
		res.Step = s.step
		for i := range r.Tables {
			t := &r.Tables[i]
			values, tags := res.ValuesOf(i, len(t.IDs)*s.dims[t.Table]), res.SeqsOf(i, len(t.IDs))
			if _, err := s.tables[t.Table].Lookup(t.IDs, values, tags); err != nil {
				return rowwire.Errorf(rowwire.Invalid, "%w", err)
			}
		}
		return nil
	})
}

func (s *state) denseOf(ctx context.Context, r *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	if err := s.checkAddressee(r.Job, r.Shard); err != nil {
		return nil, err
	}
	ids := s.bandIDs
	if len(r.Names) > 0 {
		ids = make([]bandID, len(r.Names))
		for i, n := range r.Names {
			ids[i] = bandIDOf(n, r.BandAt(i))
		}
	}
	size := 0
	for _, id := range ids {
		b, ok := s.bands[id]
		if !ok {
			return nil, s.noVariable(id)
		}
		size += 4 * b.Size
	}
	if size > rowwire.MaxFrame/2 {
		return nil, rowwire.Errorf(rowwire.Invalid, "the variables asked for take %d bytes, %d are answered at once: ask for fewer", size, rowwire.MaxFrame/2)
	}
	res := &rowwire.DenseResponse{Tensors: make([]rowwire.NamedTensor, 0, len(ids))}
	err := s.atTurn(ctx, r.Turn, r.Generation, func() error {
		res.Step = s.step
		for i, id := range ids {
			res.Tensors = append(res.Tensors, rowwire.NamedTensor{Name: id.name, At: uint32(id.at), BF16: r.MayRound(i), Values: append([]float32(nil), s.dense[id].values...)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (s *state) recorded(job string, shard uint32) (*rowwire.OffsetsResponse, error) {
	if err := s.checkAddressee(job, shard); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	return &rowwire.OffsetsResponse{Epoch: s.epoch, Step: s.step, Turn: s.turn, Generation: s.generation, Next: s.offsets()}, nil
}

func (s *state) scan(r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	if err := s.checkAddressee(r.Model, r.Shard); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	t := s.tables[r.Table]
	if t == nil {
		return nil, rowwire.Errorf(rowwire.NotFound, "model %q has no table %q", s.spec.GetName(), r.Table)
	}
	rows, more := t.Rows(r.After, pageSize(r, t.Dim(), t.SlotSize()))
	res := &rowwire.ScanResponse{Dim: uint32(t.Dim()), More: more}
	for _, x := range rows {
		res.IDs = append(res.IDs, x.ID)
		res.Values = append(res.Values, x.Values...)
		if r.Slots {
			res.Slots = append(res.Slots, x.Slots...)
		}
		res.UnixSec = append(res.UnixSec, x.UnixSec)
		res.Seqs = append(res.Seqs, x.Tag)
	}
	return res, nil
}

// pageSize is how many rows of a table answer r: what a quarter of a frame holds of ids,
// times, sequences, values and slots, and no more than were asked for.
func pageSize(r *rowwire.ScanRequest, dim, slots int) int {
	row := 8 + 4 + 8 + 4*dim
	if r.Slots {
		row += 4 * slots
	}
	limit := min(rowwire.MaxFrame/4/row, rowwire.MaxIDs)
	if r.Limit > 0 {
		limit = min(limit, int(r.Limit))
	}
	return limit
}

// Rows answers the row protocol in this process. Responses must be handed back by Done
// once they have been read, or left to the collector.
func (s *Server) Rows() rowwire.Handler { return &rowServer{st: s.st, m: s.m, tracer: s.tracer} }

var _ rowwire.Filler = (*rowServer)(nil)

// rowServer answers the row protocol from the state, and measures.
type rowServer struct {
	st     *state
	m      *metrics
	tracer trace.Tracer
}

func (h *rowServer) Lookup(ctx context.Context, r *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	res := rowwire.NewLookupResponse(len(r.Tables), r.WithSeqs)
	if err := h.LookupInto(ctx, r, res); err != nil {
		res.Done()
		return nil, err
	}
	return res, nil
}

// LookupInto implements [rowwire.Filler].
func (h *rowServer) LookupInto(ctx context.Context, r *rowwire.LookupRequest, res *rowwire.LookupResponse) error {
	began := time.Now()
	err := h.st.lookup(ctx, r, res)
	ids := 0
	if err == nil {
		for i := range r.Tables {
			ids += len(r.Tables[i].IDs)
		}
	}
	h.m.lookup(time.Since(began), ids, err)
	return err
}

func (h *rowServer) Apply(ctx context.Context, r *rowwire.ApplyRequest) (*rowwire.ApplyResponse, error) {
	began := time.Now()
	mark := ""
	if r.Traceparent != "" {
		tctx, span := h.tracer.Start(tracectx.With(ctx, r.Traceparent), "ps.apply", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if span.SpanContext().IsSampled() {
			mark = tracectx.Of(tctx)
			span.SetAttributes(attribute.Int("partition", int(r.Partition)), attribute.Int64("from", r.From), attribute.Int64("to", r.To))
		}
	}
	res, err := h.st.apply(ctx, r, mark)
	rows := 0
	for i := range r.Tables {
		rows += len(r.Tables[i].IDs)
	}
	h.m.apply(time.Since(began), rows, r.Part+1 < r.Parts, res, err)
	return res, err
}

func (h *rowServer) Dense(ctx context.Context, r *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	began := time.Now()
	res, err := h.st.denseOf(ctx, r)
	h.m.fetch(time.Since(began), err)
	return res, err
}

func (h *rowServer) Offsets(_ context.Context, r *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	return h.st.recorded(r.Job, r.Shard)
}

func (h *rowServer) Scan(_ context.Context, r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	return h.st.scan(r)
}
