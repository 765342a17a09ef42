package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
)

// decision is what becomes of a range.
type decision int

const (
	learn decision = iota
	known          // learnt before
)

// judge decides about the range [from, to) under a lease epoch, given what is recorded.
func judge(p partition, epoch uint64, from, to int64) (decision, *rowwire.Error) {
	refuse := func(code rowwire.Code, format string, args ...any) (decision, *rowwire.Error) {
		e := rowwire.Errorf(code, format, args...)
		e.Next = p.next
		return 0, e
	}
	switch {
	case epoch < p.epoch:
		return refuse(rowwire.Fenced, "lease epoch %d has been followed by %d: stop, another trainer has the partition", epoch, p.epoch)
	case to <= p.next:
		return known, nil
	case from == p.next:
		return learn, nil
	case from > p.next:
		return refuse(rowwire.Gap, "the range starts at %d, the next offset to learn is %d: rewind to it", from, p.next)
	}
	return refuse(rowwire.Overlap, "the range %d to %d straddles the next offset to learn, %d: cut it there", from, to, p.next)
}

// Apply learns the range of r, or says that it was known. It waits while a cut holds
// the shard, and in deterministic mode for its turn. trace is what the publication that
// follows may refer to.
func (s *Shard) Apply(ctx context.Context, r *rowwire.ApplyRequest, trace string) (*rowwire.ApplyResponse, error) {
	if err := s.check(r); err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		res, wait, err := s.tryApply(r, trace)
		changed := s.changed
		s.mu.Unlock()
		if wait == "" {
			if err != nil {
				return nil, err
			}
			return res, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, rowwire.Errorf(rowwire.Unavailable, "partition %d, %d to %d was not learnt: %s; send it again: %w", r.Partition, r.From, r.To, wait, ctx.Err())
		}
	}
}

// tryApply applies r, refuses it, or says what it has to wait for. The caller holds mu.
func (s *Shard) tryApply(r *rowwire.ApplyRequest, trace string) (res *rowwire.ApplyResponse, wait string, err *rowwire.Error) {
	if s.refuse != nil {
		return nil, "", s.refuse
	}
	if err := s.checkGeneration(r.Generation); err != nil {
		return nil, "", err
	}
	if s.deterministic && r.Turn > s.turn {
		return nil, fmt.Sprintf("turn %d came before turn %d was learnt", r.Turn, s.turn), nil
	}
	p := s.parts[r.Partition]
	if p == nil {
		if len(s.parts) >= rowwire.MaxOffsets {
			return nil, "", rowwire.Errorf(rowwire.Invalid, "partition %d would be one more than the %d allowed", r.Partition, rowwire.MaxOffsets)
		}
		p = new(partition)
	}
	v, err := judge(*p, r.Epoch, r.From, r.To)
	if err == nil || err.Code != rowwire.Fenced {
		p.epoch = r.Epoch
		s.parts[r.Partition] = p
	}
	if a := s.staged.of[r.Partition]; a != nil && a.apply.Epoch < p.epoch {
		s.staged.forget(r.Partition) // its trainer has lost the lease
	}
	if err != nil {
		return nil, "", err
	}
	if v == known {
		return &rowwire.ApplyResponse{Next: p.next}, "", nil
	}
	if s.deterministic && r.Turn < s.turn {
		return nil, "", turnPassed(r.Turn, s.turn)
	}
	if r.Part+1 < r.Parts {
		if err := s.staged.keep(r, time.Now()); err != nil {
			return nil, "", err
		}
		return &rowwire.ApplyResponse{Next: p.next}, "", nil
	}
	if why := s.cuts.bars(r.Partition, r.To); why != "" {
		return nil, why, nil
	}
	if r, err = s.staged.whole(r); err != nil {
		return nil, "", err
	}
	defer s.staged.forget(r.Partition)
	if err := s.room(r); err != nil {
		return nil, "", err
	}
	s.learn(r)
	p.next = r.To
	s.step++
	if s.deterministic {
		s.turn++
	}
	s.applies++
	if trace != "" {
		s.trace = trace
	}
	s.ranges = join(s.ranges, &delta.Range{Partition: r.Partition, From: r.From, To: r.To, Epoch: r.Epoch})
	s.tell()
	return &rowwire.ApplyResponse{Applied: true, Next: p.next}, "", nil
}

// learn applies gradients that check and room have passed.
func (s *Shard) learn(r *rowwire.ApplyRequest) {
	for i := range r.Tables {
		t := &r.Tables[i]
		at := s.recordTime(t.Table, uint32(r.RecordUnix))
		s.remember(t.Table, t.IDs)
		err := s.tables[t.Table].OptimizeAt(t.IDs, t.Grads, at, table.Rates{GlobalStep: int64(s.step)})
		if err != nil && !errors.Is(err, table.ErrCrowded) { // which drops gradients, as a filter does
			// Half an apply must not go on: the process ends, and the shard restarts
			// from its checkpoint.
			panic("ps: gradients were checked and yet refused: " + err.Error())
		}
		s.aged(t.Table, at)
	}
	s.reached(int64(s.step))
	for i := range r.Dense {
		v := s.dense[bandIDOf(r.Dense[i].Name, r.Dense[i].At)]
		s.optimizers[r.Dense[i].Name].Update(v.values, v.slots, r.Dense[i].Values, optim.Step{GlobalStep: int64(s.step)})
		s.denseTouched = true
	}
}

// check finds everything wrong with r that does not depend on what is recorded, so
// that an apply which has begun cannot fail.
func (s *Shard) check(r *rowwire.ApplyRequest) error {
	if err := s.checkAddressee(r.Job, r.Shard); err != nil {
		return err
	}
	switch {
	case r.Partition < 0:
		return rowwire.Errorf(rowwire.Invalid, "partition %d does not exist", r.Partition)
	case r.From < 0 || r.To <= r.From:
		return rowwire.Errorf(rowwire.Invalid, "offsets %d to %d are no range", r.From, r.To)
	case r.Parts > 0 && r.Part >= r.Parts || r.Parts == 0 && r.Part > 0:
		return rowwire.Errorf(rowwire.Invalid, "part %d of %d does not exist", r.Part, r.Parts)
	case r.RecordUnix < 0 || r.RecordUnix > math.MaxUint32:
		return rowwire.Errorf(rowwire.Invalid, "record time %d is not in seconds since 1970", r.RecordUnix)
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		for j := range i {
			if r.Tables[j].Table == t.Table {
				return rowwire.Errorf(rowwire.Invalid, "table %q stands twice in one apply: put its ids together", t.Table)
			}
		}
		dim, err := s.Dim(t.Table)
		if err != nil {
			return err
		}
		if len(t.Grads) != len(t.IDs)*dim {
			return rowwire.Errorf(rowwire.Invalid, "table %q: %d gradient values for %d ids of dimension %d", t.Table, len(t.Grads), len(t.IDs), dim)
		}
		if err := s.checkIDs(t.Table, t.IDs); err != nil {
			return err
		}
		if err := checkGradients(t, dim); err != nil {
			return err
		}
	}
	for i := range r.Dense {
		g := &r.Dense[i]
		for j := range i {
			if r.Dense[j].Name == g.Name && r.Dense[j].At == g.At {
				return rowwire.Errorf(rowwire.Invalid, "variable %q stands twice in one apply: sum its gradients", g.Name)
			}
		}
		id := bandIDOf(g.Name, g.At)
		b, ok := s.bands[id]
		if !ok {
			return s.noVariable(id)
		}
		if len(g.Values) != b.Size {
			return rowwire.Errorf(rowwire.Invalid, "variable %q: %d gradient values at %d, it has %d there", g.Name, len(g.Values), g.At, b.Size)
		}
		if !(vec.MaxAbs(g.Values) <= table.MaxGradient) {
			return rowwire.Errorf(rowwire.Invalid, "variable %q: a gradient is not finite, or beyond %g; nothing was applied", g.Name, float32(table.MaxGradient))
		}
	}
	return nil
}

// checkGradients makes sure that no sum over equal ids is beyond what a table takes.
func checkGradients(t *rowwire.TableGrads, dim int) error {
	most := vec.MaxAbs(t.Grads)
	if most*float32(len(t.IDs)) <= table.MaxGradient/2 { // room for the rounding of a sum
		return nil
	}
	sums := map[int64][]float32{}
	for i, id := range t.IDs {
		g := t.Grads[i*dim : (i+1)*dim]
		sum := sums[id]
		if sum == nil {
			sum = make([]float32, dim)
			sums[id] = sum
		}
		for j, x := range g {
			sum[j] += x
			if !(sum[j] >= -table.MaxGradient && sum[j] <= table.MaxGradient) {
				return rowwire.Errorf(rowwire.Invalid, "table %q: gradient %g of id %d at position %d is not finite, or its sum beyond %g; nothing was applied", t.Table, x, id, j, float32(table.MaxGradient))
			}
		}
	}
	return nil
}

func (s *Shard) checkIDs(name string, ids []int64) error {
	for _, id := range ids {
		if id == table.NoID || modelspec.ShardOf(id, int(s.shards)) != int(s.shard) {
			return rowwire.Errorf(rowwire.Invalid, "table %q: id %d does not belong to shard %d of %d", name, id, s.shard, s.shards)
		}
	}
	return nil
}

func (s *Shard) checkAddressee(job string, shard uint32) error {
	if job != s.job || shard != s.shard {
		return rowwire.Errorf(rowwire.NotFound, "this is shard %d of job %q, not shard %d of %q: look the address up again", s.shard, s.job, shard, job)
	}
	return nil
}

func (s *Shard) checkGeneration(g uint64) *rowwire.Error {
	if !s.deterministic || g == s.generation {
		return nil
	}
	e := rowwire.Errorf(rowwire.WrongGeneration, "generation %d was asked for, the shard is in %d: start again at its recorded offsets", g, s.generation)
	e.Next = int64(s.generation)
	return e
}

func turnPassed(asked, turn uint64) *rowwire.Error {
	e := rowwire.Errorf(rowwire.Overlap, "turn %d has been learnt, the shard is at %d: what it held before is gone, roll back to the newest checkpoint", asked, turn)
	e.Next = int64(turn)
	return e
}

func (s *Shard) noVariable(id bandID) error {
	band := ""
	if id.at > 0 {
		band = fmt.Sprintf(" with a band at %d", id.at)
	}
	return rowwire.Errorf(rowwire.NotFound, "shard %d of %d keeps no variable %q%s", s.shard, s.shards, id.name, band)
}
