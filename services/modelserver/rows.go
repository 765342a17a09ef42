package modelserver

import (
	"context"

	"github.com/monolith-go/monolith/internal/rowwire"
)

// rows is the row protocol on a Server: lookups and scans of the shards it serves.
type rows struct{ shelf *shelf }

func (r rows) find(model string, shard uint32) (*psModel, error) {
	m := r.shelf.index.Load().rows[shardKey{model, shard}]
	if m == nil {
		return nil, rowwire.Errorf(rowwire.NotFound, "%s:ps_%d is not served here", model, shard)
	}
	return m, nil
}

func (r rows) Lookup(_ context.Context, q *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	m, err := r.find(q.Model, q.Shard)
	if err != nil {
		return nil, err
	}
	return m.lookup(q)
}

func (r rows) Scan(_ context.Context, q *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	m, err := r.find(q.Model, q.Shard)
	if err != nil {
		return nil, err
	}
	return m.scan(q)
}

func training(what string) error {
	return rowwire.Errorf(rowwire.Invalid, "a serving shard takes no %s; ask the training parameter server", what)
}

func (rows) Apply(context.Context, *rowwire.ApplyRequest) (*rowwire.ApplyResponse, error) {
	return nil, training("apply")
}

func (rows) Dense(context.Context, *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	return nil, training("dense request")
}

func (rows) Offsets(context.Context, *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	return nil, training("offsets request")
}
