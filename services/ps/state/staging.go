package state

import (
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// abandoned is after what time the parts of an apply that got no further make room for
// others: their trainer has given up, or sends all of them again.
const abandoned = 30 * time.Second

// staging has the applies of which only the first parts came, by partition. Nothing of it
// outlives the process or a change of the shard's timeline, and nobody was told that it was
// learnt: trainers send all parts again. It is guarded by Shard.mu.
type staging struct {
	of    map[int32]*staged
	bytes int
}

// staged is one apply so far.
type staged struct {
	apply rowwire.ApplyRequest // of all parts so far; Part is the one that is expected next
	bytes int
	since time.Time // when the last part came
}

// drop forgets all of it.
func (g *staging) drop() { *g = staging{} }

// forget drops what is staged of a partition.
func (g *staging) forget(partition int32) {
	if a := g.of[partition]; a != nil {
		g.bytes -= a.bytes
		delete(g.of, partition)
	}
}

// continues says whether r is the part that a waits for.
func (a *staged) continues(r *rowwire.ApplyRequest) bool {
	return a != nil && a.apply.Part == r.Part && a.apply.Parts == r.Parts && a.apply.Epoch == r.Epoch && a.apply.From == r.From && a.apply.To == r.To &&
		a.apply.Turn == r.Turn && a.apply.Generation == r.Generation
}

// expect returns what came before part r, nil before the first one, or the refusal of a
// part that was not expected, which drops the others.
func (g *staging) expect(r *rowwire.ApplyRequest) (*staged, *rowwire.Error) {
	if r.Part == 0 {
		g.forget(r.Partition)
		return nil, nil
	}
	a := g.of[r.Partition]
	if !a.continues(r) {
		g.forget(r.Partition)
		return nil, rowwire.Errorf(rowwire.Unavailable, "part %d of %d of partition %d, %d to %d, was not expected: send all parts again", r.Part, r.Parts, r.Partition, r.From, r.To)
	}
	if err := a.repeats(r); err != nil {
		g.forget(r.Partition)
		return nil, err
	}
	return a, nil
}

// repeats refuses tables and bands that an earlier part has named.
func (a *staged) repeats(r *rowwire.ApplyRequest) *rowwire.Error {
	for i := range r.Tables {
		if name := r.Tables[i].Table; slices.ContainsFunc(a.apply.Tables, func(t rowwire.TableGrads) bool { return t.Table == name }) {
			return rowwire.Errorf(rowwire.Invalid, "table %q stands in two parts of one apply: put its ids together", name)
		}
	}
	for i := range r.Dense {
		v := &r.Dense[i]
		if slices.ContainsFunc(a.apply.Dense, func(d rowwire.NamedTensor) bool { return d.Name == v.Name && d.At == v.At }) {
			return rowwire.Errorf(rowwire.Invalid, "variable %q at %d stands in two parts of one apply: sum its gradients", v.Name, v.At)
		}
	}
	return nil
}

// keep copies a part that is not the last one behind those before it.
func (g *staging) keep(r *rowwire.ApplyRequest, now time.Time) *rowwire.Error {
	a, err := g.expect(r)
	if err != nil {
		return err
	}
	size := 0
	for i := range r.Tables {
		size += 8*len(r.Tables[i].IDs) + 4*len(r.Tables[i].Grads)
	}
	for i := range r.Dense {
		size += 4 * len(r.Dense[i].Values)
	}
	if g.bytes+size > modelspec.MaxStagedBytes {
		for p, other := range g.of {
			if now.Sub(other.since) > abandoned {
				g.forget(p)
			}
		}
	}
	if g.bytes+size > modelspec.MaxStagedBytes {
		g.forget(r.Partition) // else two partitions might wait for each other's room for ever
		return rowwire.Errorf(rowwire.Unavailable, "parts of applies take %d bytes, %d are kept: send all parts of partition %d, %d to %d, again", g.bytes+size, modelspec.MaxStagedBytes, r.Partition, r.From, r.To)
	}
	if a == nil {
		a = &staged{apply: *r}
		a.apply.Tables, a.apply.Dense = nil, nil
		if g.of == nil {
			g.of = map[int32]*staged{}
		}
		g.of[r.Partition] = a
	}
	for _, t := range r.Tables {
		t.IDs, t.Grads = slices.Clone(t.IDs), slices.Clone(t.Grads)
		a.apply.Tables = append(a.apply.Tables, t)
	}
	for _, v := range r.Dense {
		v.Values = slices.Clone(v.Values)
		a.apply.Dense = append(a.apply.Dense, v)
	}
	a.apply.Part++
	a.bytes, a.since = a.bytes+size, now
	g.bytes += size
	return nil
}

// whole is the apply of which r is the last part, or all. Its memory is that of r and of
// what is staged, until this is forgotten.
func (g *staging) whole(r *rowwire.ApplyRequest) (*rowwire.ApplyRequest, *rowwire.Error) {
	a, err := g.expect(r)
	if err != nil || a == nil {
		return r, err
	}
	all := *r
	all.Tables = slices.Concat(a.apply.Tables, r.Tables)
	all.Dense = slices.Concat(a.apply.Dense, r.Dense)
	return &all, nil
}
