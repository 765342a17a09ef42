package state

import (
	"context"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// atTurn waits, in deterministic mode, until the shard has learnt exactly turn batches
// of generation, and then calls read with mu held for reading.
func (s *Shard) atTurn(ctx context.Context, turn, generation uint64, read func() error) error {
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

// Lookup answers r into the memory of res.
func (s *Shard) Lookup(ctx context.Context, r *rowwire.LookupRequest, res *rowwire.LookupResponse) error {
	if err := s.checkAddressee(r.Model, r.Shard); err != nil {
		return err
	}
	size := 0
	for i := range r.Tables {
		t := &r.Tables[i]
		dim, err := s.Dim(t.Table)
		if err != nil {
			return err
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

// Dense answers r with copies of the dense variables, in the memory of res.
func (s *Shard) Dense(ctx context.Context, r *rowwire.DenseRequest, res *rowwire.DenseResponse) error {
	if err := s.checkAddressee(r.Job, r.Shard); err != nil {
		return err
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
			return s.noVariable(id)
		}
		size += 4 * b.Size
	}
	if size > rowwire.MaxFrame/2 {
		return rowwire.Errorf(rowwire.Invalid, "the variables asked for take %d bytes, %d are answered at once: ask for fewer", size, rowwire.MaxFrame/2)
	}
	res.Fill(len(ids))
	return s.atTurn(ctx, r.Turn, r.Generation, func() error {
		res.Step = s.step
		for i, id := range ids {
			t := &res.Tensors[i]
			t.Name, t.At, t.BF16 = id.name, uint32(id.at), r.MayRound(i)
			t.Values = append(t.Values[:0], s.dense[id].values...)
		}
		return nil
	})
}

// Offsets says how far each partition has been learnt.
func (s *Shard) Offsets(job string, shard uint32) (*rowwire.OffsetsResponse, error) {
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

// Scan answers a page of a table.
func (s *Shard) Scan(r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
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
