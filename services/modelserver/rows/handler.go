package rows

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/versions"
)

// Handler is the row protocol on the shards that a server has: lookups and scans. It
// implements [rowwire.Filler].
type Handler struct {
	served func(model string, shard uint32) []*Shard
}

// NewHandler answers from what served returns for a shard of a model: its versions, newest first.
func NewHandler(served func(model string, shard uint32) []*Shard) Handler { return Handler{served} }

// find returns the newest rows that are of the version and the job, where those are named.
func (r Handler) find(model string, shard uint32, want exportID) (*Shard, error) {
	served := r.served(model, shard)
	for _, m := range served {
		if (want.version == 0 || m.Version == want.version) && (want.job == "" || m.Job == want.job) {
			return m, nil
		}
	}
	if len(served) == 0 {
		return nil, rowwire.Errorf(rowwire.NotFound, "%s:ps_%d is not served here", model, shard)
	}
	return nil, rowwire.Errorf(rowwire.NotFound, "version %d of job %q of %s:ps_%d is not served here, but %d of %q is", want.version, want.job, model, shard, served[0].Version, served[0].Job)
}

// Lookup answers a lookup.
func (r Handler) Lookup(ctx context.Context, q *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	res := rowwire.NewLookupResponse(len(q.Tables), q.WithSeqs)
	if err := r.LookupInto(ctx, q, res); err != nil {
		res.Done()
		return nil, err
	}
	return res, nil
}

var _ rowwire.Filler = Handler{}

// LookupInto answers a lookup into the memory of res.
func (r Handler) LookupInto(_ context.Context, q *rowwire.LookupRequest, res *rowwire.LookupResponse) error {
	want := exportID{q.Version, q.Job}
	for tries := 1; ; tries++ {
		m, err := r.find(q.Model, q.Shard, want)
		if err != nil {
			return err
		}
		if want != (exportID{}) {
			m.Ask(time.Now())
		}
		if err = m.lookup(q, res); tries < 3 && errors.Is(err, versions.ErrDropped) {
			continue // another reading of the version has taken its place
		}
		return err
	}
}

// Scan lists rows of a table.
func (r Handler) Scan(_ context.Context, q *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	m, err := r.find(q.Model, q.Shard, exportID{})
	if err != nil {
		return nil, err
	}
	return m.scan(q)
}

func trainingOnly(what string) error {
	return rowwire.Errorf(rowwire.Invalid, "a serving shard takes no %s; ask the training parameter server", what)
}

// Apply refuses: deltas alone change serving rows.
func (Handler) Apply(context.Context, *rowwire.ApplyRequest) (*rowwire.ApplyResponse, error) {
	return nil, trainingOnly("apply")
}

// Dense refuses: entries hold the dense variables.
func (Handler) Dense(context.Context, *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	return nil, trainingOnly("dense request")
}

// Offsets refuses: training shards alone know them.
func (Handler) Offsets(context.Context, *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	return nil, trainingOnly("offsets request")
}
