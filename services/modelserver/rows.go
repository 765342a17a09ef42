package modelserver

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// rows is the row protocol on a Server: lookups and scans of the shards it serves.
type rows struct{ servables *servables }

// find returns the newest rows that are of the version and the job, where those are named.
func (r rows) find(model string, shard uint32, want exportID) (*psModel, error) {
	served := r.servables.index.Load().rows[shardKey{model, shard}]
	for _, m := range served {
		if (want.version == 0 || m.version == want.version) && (want.job == "" || m.job == want.job) {
			return m, nil
		}
	}
	if len(served) == 0 {
		return nil, rowwire.Errorf(rowwire.NotFound, "%s:ps_%d is not served here", model, shard)
	}
	return nil, rowwire.Errorf(rowwire.NotFound, "version %d of job %q of %s:ps_%d is not served here, but %d of %q is", want.version, want.job, model, shard, served[0].version, served[0].job)
}

func (r rows) Lookup(ctx context.Context, q *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	res := rowwire.NewLookupResponse(len(q.Tables), q.WithSeqs)
	if err := r.LookupInto(ctx, q, res); err != nil {
		res.Done()
		return nil, err
	}
	return res, nil
}

var _ rowwire.Filler = rows{}

// LookupInto implements [rowwire.Filler].
func (r rows) LookupInto(_ context.Context, q *rowwire.LookupRequest, res *rowwire.LookupResponse) error {
	want := exportID{q.Version, q.Job}
	m, err := r.find(q.Model, q.Shard, want)
	if err != nil {
		return err
	}
	if want != (exportID{}) {
		m.asked.Store(time.Now().UnixNano())
	}
	return m.lookup(q, res)
}

func (r rows) Scan(_ context.Context, q *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	m, err := r.find(q.Model, q.Shard, exportID{})
	if err != nil {
		return nil, err
	}
	return m.scan(q)
}

func trainingOnly(what string) error {
	return rowwire.Errorf(rowwire.Invalid, "a serving shard takes no %s; ask the training parameter server", what)
}

func (rows) Apply(context.Context, *rowwire.ApplyRequest) (*rowwire.ApplyResponse, error) {
	return nil, trainingOnly("apply")
}

func (rows) Dense(context.Context, *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	return nil, trainingOnly("dense request")
}

func (rows) Offsets(context.Context, *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	return nil, trainingOnly("offsets request")
}
