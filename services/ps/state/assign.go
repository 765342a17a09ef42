package state

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
	"github.com/monolith-go/monolith/services/ps/publish"
)

const (
	maxAssigned  = 4096 // rows of one request
	keptRequests = 4096 // requests remembered
)

// requests are the latest ids of assignments.
type requests struct {
	known map[string]struct{}
	order []string
}

func (r *requests) has(id string) bool {
	_, ok := r.known[id]
	return ok
}

func (r *requests) add(id string) {
	if r.has(id) {
		return
	}
	if r.known == nil {
		r.known = map[string]struct{}{}
	}
	if len(r.order) == keptRequests {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
	r.known[id] = struct{}{}
	r.order = append(r.order, id)
}

// ErrHeld is an assignment that came while a cut holds the shard: it would be in neither
// the checkpoint nor the deltas that a follower of its export reads.
var ErrHeld = errors.New("a checkpoint cut holds the shard")

// Unheld waits until no cut holds the shard.
func (s *Shard) Unheld(ctx context.Context) error {
	for {
		s.mu.RLock()
		held, refuse, changed := s.cuts.now != nil, s.refuse, s.changed
		s.mu.RUnlock()
		switch {
		case refuse != nil:
			return refuse
		case !held:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return bus.Refuse(bus.CodeUnavailable, "%v: ask again, a repeat changes nothing", ErrHeld)
		}
	}
}

// CheckAssign finds everything wrong with r that does not depend on the rows.
func (s *Shard) CheckAssign(r shardcmd.AssignRequest) error {
	invalid := func(format string, args ...any) error { return bus.Refuse(bus.CodeInvalid, format, args...) }
	dim, ok := s.dims[r.Table]
	switch {
	case s.deterministic:
		return bus.Refuse(bus.CodeConflict, "job %q is deterministic and learns from its stream alone: put what it should know there", s.job)
	case r.RequestID == "" || len(r.RequestID) > 256:
		return invalid("an assignment needs a requestId of 1 to 256 bytes, so that a repeat changes nothing")
	case !ok:
		return bus.Refuse(bus.CodeNotFound, "model %q has no table %q", s.spec.GetName(), r.Table)
	case len(r.IDs) == 0 || len(r.IDs) > maxAssigned || 4*len(r.Values) > publish.MaxAssigned:
		return invalid("%d rows of dimension %d at once: give 1 to %d, and %d values at most", len(r.IDs), dim, maxAssigned, publish.MaxAssigned/4)
	case len(r.Values) != len(r.IDs)*dim:
		return invalid("%d values for %d rows of table %q: it needs %d", len(r.Values), len(r.IDs), r.Table, len(r.IDs)*dim)
	}
	if err := s.checkIDs(r.Table, r.IDs); err != nil {
		return invalid("%v", err)
	}
	seen := make(map[int64]struct{}, len(r.IDs))
	for _, id := range r.IDs {
		if _, twice := seen[id]; twice {
			return invalid("id %d stands twice: name each row once", id)
		}
		seen[id] = struct{}{}
	}
	if most := vec.MaxAbs(r.Values); !(most <= table.MaxGradient) {
		return invalid("a value is %g: give finite ones up to %g", most, float32(table.MaxGradient))
	}
	return nil
}

// Assign sets the rows and returns the delta that says so, nil when it knew the request.
func (s *Shard) Assign(r shardcmd.AssignRequest, now time.Time) (*delta.Delta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	if s.assigned.has(r.RequestID) {
		return nil, nil
	}
	if s.cuts.now != nil {
		return nil, ErrHeld
	}
	at := s.assignTime(r.Table, now)
	switch err := s.set(r.Table, r.IDs, r.Values, at, r.Add); {
	case errors.Is(err, table.ErrFull):
		return nil, bus.Refuse(bus.CodeUnavailable, "%v", err)
	case err != nil:
		return nil, bus.Refuse(bus.CodeInvalid, "%v", err)
	}
	s.assigned.add(r.RequestID)
	t := s.tables[r.Table]
	rows := &delta.Rows{Table: r.Table, Dim: uint32(t.Dim())}
	entries, there := t.LookupEntries(r.IDs)
	for i := range entries {
		if there[i] {
			rows.Ids = append(rows.Ids, uint64(entries[i].ID))
			rows.Values = append(rows.Values, publish.Floats(entries[i].Values)...)
		}
	}
	return &delta.Delta{
		Job: s.job, Shard: s.shard, Shards: s.shards, Epoch: s.epoch, Step: s.step, Chunks: 1, Rows: []*delta.Rows{rows},
		Assigned: &delta.Assigned{RequestId: r.RequestID, UnixSec: int64(at)},
	}, nil
}
