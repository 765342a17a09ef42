package step

import (
	"context"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// Part is what a step sends one shard, and what that answers.
type Part struct {
	lookup rowwire.LookupRequest
	answer rowwire.LookupResponse
	rows   [][]float32 // by table of lookup: where the answer goes
	tables []rowwire.TableGrads
	dense  []rowwire.NamedTensor
	apply  []rowwire.ApplyRequest // of tables and dense
}

// Asks is the lookup of what the batch reads of a shard; ok is false where that is nothing.
func (s *Step) Asks(shard int, r rowwire.LookupRequest) (p *Part, ok bool) {
	p = &s.shards[shard]
	r.Tables, p.rows = p.lookup.Tables[:0], p.rows[:0]
	for _, b := range s.Batch.Blocks(shard) {
		r.Tables, p.rows = append(r.Tables, rowwire.TableIDs{Table: b.Table, IDs: b.IDs}), append(p.rows, b.Rows)
	}
	p.lookup = r
	return p, len(r.Tables) > 0
}

// LookUp is one attempt at the rows of a part.
func (p *Part) LookUp(ctx context.Context, c rowwire.Conn) (struct{}, error) {
	p.answer.Into(p.rows, nil)
	return struct{}{}, c.LookupInto(ctx, &p.lookup, &p.answer)
}

// Landed says what is wrong with the answer, nil if the rows are where the batch reads them.
func (p *Part) Landed() error { return p.answer.Landed(p.rows, nil) }

// Tells is the apply of a shard's share of the gradients, in as many parts as their size
// takes; without samples there are none. The rows are in the first part.
func (s *Step) Tells(shard int, r rowwire.ApplyRequest) []rowwire.ApplyRequest {
	p := &s.shards[shard]
	p.tables, p.dense = p.tables[:0], p.dense[:0]
	size := 0
	if s.Samples() > 0 {
		for _, b := range s.Batch.Blocks(shard) {
			p.tables = append(p.tables, rowwire.TableGrads{Table: b.Table, IDs: b.IDs, Grads: b.Grads})
			size += 8*len(b.IDs) + 4*len(b.Grads)
		}
		for _, b := range s.Engine.Bands[shard] {
			p.dense = append(p.dense, rowwire.NamedTensor{Name: b.Name, At: uint32(b.At), Values: s.Batch.Dense[b.Variable][b.At : b.At+b.Size]})
		}
	}
	r.Tables = p.tables
	p.apply = p.apply[:0]
	begin := 0
	for i := range p.dense {
		n := 4 * len(p.dense[i].Values)
		if size+n > modelspec.MaxStepBytes {
			r.Dense = p.dense[begin:i]
			p.apply = append(p.apply, r)
			r.Tables, begin, size = nil, i, 0
		}
		size += n
	}
	r.Dense = p.dense[begin:]
	if p.apply = append(p.apply, r); len(p.apply) > 1 {
		for i := range p.apply {
			p.apply[i].Part, p.apply[i].Parts = uint32(i), uint32(len(p.apply))
		}
	}
	return p.apply
}
