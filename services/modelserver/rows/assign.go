package rows

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// TableRows are rows of one table, as somebody outside of this system pushes them.
type TableRows struct {
	Table  string
	IDs    []int64
	Values []float32 // Dim for each id
}

// Tables are the names of the tables, sorted, which is their order in raw requests.
func (m *Shard) Tables() []string { return m.order }

// Dim is the length of a table's rows, 0 where there is no such table.
func (m *Shard) Dim(name string) int {
	if t := m.tables[name]; t != nil {
		return t.Dim()
	}
	return 0
}

// Find looks ids up by table, zeros for those that have no row; the error is a status.
func (m *Shard) Find(tables []rowwire.TableIDs) ([][]float32, error) {
	m.Ask(time.Now())
	var res rowwire.LookupResponse
	if err := m.lookup(&rowwire.LookupRequest{Model: m.Model, Shard: uint32(m.Shard), Tables: tables}, &res); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return res.Values, nil
}

// Assign writes rows over those of the shard, all of them or, where one cannot be taken, none; the error
// is a status. A shard that follows a job's deltas takes none: the next delta would know nothing of them.
func (m *Shard) Assign(tables []TableRows, now time.Time) error {
	if m.followed.Load() {
		return status.Errorf(codes.FailedPrecondition, "the rows of %s:ps_%d follow the deltas of job %s; push to a server by itself, or to one with --frozen", m.Model, m.Shard, m.Job)
	}
	for _, r := range tables {
		t := m.tables[r.Table]
		if t == nil {
			return status.Errorf(codes.InvalidArgument, "there is no table %q; the export has %v", r.Table, m.order)
		}
		if len(r.Values) != len(r.IDs)*t.Dim() {
			return status.Errorf(codes.InvalidArgument, "table %s: %d ids came with %d numbers, and its rows have %d", r.Table, len(r.IDs), len(r.Values), t.Dim())
		}
		if !finite(r.Values) {
			return status.Errorf(codes.InvalidArgument, "table %s: a value is infinite or no number; nothing was assigned", r.Table)
		}
		if i := slices.IndexFunc(r.IDs, func(id int64) bool { return !m.mine(id) }); i >= 0 {
			return status.Errorf(codes.InvalidArgument, "table %s: id %d belongs to shard %d of %d, not to %d", r.Table, r.IDs[i], modelspec.ShardOf(r.IDs[i], m.Shards), m.Shards, m.Shard)
		}
	}
	for _, r := range tables {
		if err := m.tables[r.Table].Assign(r.IDs, r.Values, uint32(now.Unix()), 0); err != nil {
			return status.Error(codes.Internal, fmt.Sprintf("table %s: %v", r.Table, err))
		}
	}
	return nil
}

// Follow notes whether a job's deltas are written over the rows.
func (m *Shard) Follow(yes bool) { m.followed.Store(yes) }
