package ps

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
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

// assign sets rows past the stream of training records, and answers once a delta with
// them is on disk:
//
//	set the rows, which lists them     | not acked; a crash may lose it
//	publish a delta that says so       | a restarted shard reads it and sets them again
//	answer
//
// The leading goroutine does both, so no other publication comes between, and both wait
// until no cut holds the shard.
// After a restore the assignment comes before the records that are learnt again, even
// those it once came behind.
func (s *Server) assign(ctx context.Context, r shardcmd.AssignRequest) (shardcmd.AssignResponse, error) {
	none := shardcmd.AssignResponse{}
	if err := s.st.checkAssign(r); err != nil {
		return none, err
	}
	for {
		seq, err := s.assignNow(ctx, r)
		if !errors.Is(err, errHeld) {
			return shardcmd.AssignResponse{SyncSeq: seq}, err
		}
		if err := s.st.unheld(ctx); err != nil {
			return none, err
		}
	}
}

// errHeld is an assignment that came while a cut holds the shard: it would be in neither
// the checkpoint nor the deltas that a follower of its export reads.
var errHeld = errors.New("a checkpoint cut holds the shard")

func (s *Server) assignNow(ctx context.Context, r shardcmd.AssignRequest) (seq uint64, _ error) {
	err := s.do(ctx, func(ctx context.Context) error {
		if err := s.pub.send(ctx); err != nil {
			return err
		}
		d, err := s.st.assign(r, time.Now())
		if err != nil || d == nil {
			return err
		}
		s.pub.count++
		groups, err := drafts(s.pub.rows, fmt.Sprintf("%s/e%d/%d", s.pub.rows, s.pub.epoch, s.pub.count), "", []*delta.Delta{d})
		if err != nil {
			return err
		}
		s.pub.queue = append(s.pub.queue, groups...)
		if err := s.pub.send(ctx); err != nil {
			return err
		}
		seq = s.pub.at[s.pub.rows]
		return nil
	})
	return seq, err
}

// unheld waits until no cut holds the shard.
func (s *state) unheld(ctx context.Context) error {
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
			return bus.Refuse(bus.CodeUnavailable, "%v: ask again, a repeat changes nothing", errHeld)
		}
	}
}

// checkAssign finds everything wrong with r that does not depend on the rows.
func (s *state) checkAssign(r shardcmd.AssignRequest) error {
	invalid := func(format string, args ...any) error { return bus.Refuse(bus.CodeInvalid, format, args...) }
	dim, ok := s.dims[r.Table]
	switch {
	case s.deterministic:
		return bus.Refuse(bus.CodeConflict, "job %q is deterministic and learns from its stream alone: put what it should know there", s.job)
	case r.RequestID == "" || len(r.RequestID) > 256:
		return invalid("an assignment needs a requestId of 1 to 256 bytes, so that a repeat changes nothing")
	case !ok:
		return bus.Refuse(bus.CodeNotFound, "model %q has no table %q", s.spec.GetName(), r.Table)
	case len(r.IDs) == 0 || len(r.IDs) > maxAssigned || 4*len(r.Values) > chunkBytes/2:
		return invalid("%d rows of dimension %d at once: give 1 to %d, and %d values at most", len(r.IDs), dim, maxAssigned, chunkBytes/8)
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

// assign sets the rows and returns the delta that says so, nil when it knew the request.
func (s *state) assign(r shardcmd.AssignRequest, now time.Time) (*delta.Delta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	if s.assigned.has(r.RequestID) {
		return nil, nil
	}
	if s.cuts.now != nil {
		return nil, errHeld
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
			rows.Values = append(rows.Values, floats(entries[i].Values)...)
		}
	}
	return &delta.Delta{
		Job: s.job, Shard: s.shard, Shards: s.shards, Epoch: s.epoch, Step: s.step, Chunks: 1, Rows: []*delta.Rows{rows},
		Assigned: &delta.Assigned{RequestId: r.RequestID, UnixSec: int64(at)},
	}, nil
}

// errMisfit is an assignment that no shard of this model can have made.
var errMisfit = errors.New("it does not fit the model")

// assignAgain sets what d says was set by hand, all of it or, as errMisfit, nothing. The
// shard does not answer yet.
func (s *state) assignAgain(d *delta.Delta) error {
	a := d.GetAssigned()
	if a == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	type part struct {
		table  string
		ids    []int64
		values []float32
	}
	var parts []part
	for _, r := range d.GetRows() {
		t := s.tables[r.GetTable()]
		if t == nil || int(r.GetDim()) != t.Dim() || r.GetEncoding() != delta.Encoding_FP32 || len(r.GetValues()) != 4*len(r.GetIds())*t.Dim() {
			return fmt.Errorf("assignment %q to table %q: %w", a.GetRequestId(), r.GetTable(), errMisfit)
		}
		p := part{r.GetTable(), make([]int64, len(r.GetIds())), make([]float32, len(r.GetValues())/4)}
		for i, id := range r.GetIds() {
			p.ids[i] = int64(id)
		}
		for i := range p.values {
			p.values[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.GetValues()[4*i:]))
		}
		if err := s.checkIDs(p.table, p.ids); err != nil || !(vec.MaxAbs(p.values) <= math.MaxFloat32) {
			return fmt.Errorf("assignment %q to table %q: %w", a.GetRequestId(), r.GetTable(), errMisfit)
		}
		parts = append(parts, p)
	}
	at := uint32(min(max(a.GetUnixSec(), 0), math.MaxUint32))
	for _, p := range parts {
		if err := s.set(p.table, p.ids, p.values, at, false); err != nil {
			return fmt.Errorf("assignment %q: %w", a.GetRequestId(), err)
		}
	}
	s.assigned.add(a.GetRequestId())
	return nil
}
