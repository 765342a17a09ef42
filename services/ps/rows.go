package ps

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/state"
)

// Rows answers the row protocol in this process. Responses must be handed back by Done
// once they have been read, or left to the collector.
func (s *Server) Rows() rowwire.Handler { return &rowServer{st: s.st, m: s.m, tracer: s.tracer} }

var (
	_ rowwire.Filler      = (*rowServer)(nil)
	_ rowwire.DenseFiller = (*rowServer)(nil)
)

// rowServer answers the row protocol from the state, and measures.
type rowServer struct {
	st     *state.Shard
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
	err := h.st.Lookup(ctx, r, res)
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
	res, err := h.st.Apply(ctx, r, mark)
	rows := 0
	for i := range r.Tables {
		rows += len(r.Tables[i].IDs)
	}
	h.m.apply(time.Since(began), rows, r.Part+1 < r.Parts, res, err)
	return res, err
}

func (h *rowServer) Dense(ctx context.Context, r *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	res := new(rowwire.DenseResponse)
	if err := h.DenseInto(ctx, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// DenseInto implements [rowwire.DenseFiller].
func (h *rowServer) DenseInto(ctx context.Context, r *rowwire.DenseRequest, res *rowwire.DenseResponse) error {
	began := time.Now()
	err := h.st.Dense(ctx, r, res)
	h.m.fetch(time.Since(began), err)
	return err
}

func (h *rowServer) Offsets(_ context.Context, r *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	return h.st.Offsets(r.Job, r.Shard)
}

func (h *rowServer) Scan(_ context.Context, r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	return h.st.Scan(r)
}
