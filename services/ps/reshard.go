package ps

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
)

// reshard reads what this shard keeps from a checkpoint that another number of shards has
// made: rows by their ids, bands by name and place. All shards of a cut stand at the same
// offsets. Admission filters cannot be taken apart: ids that have no row yet are counted anew.
func (s *Server) reshard(ctx context.Context, c *training.Checkpoint) (*checkpoint.Shard, error) {
	var all *checkpoint.Shard
	for i := range c.GetShards() {
		part, err := s.readPart(ctx, c, i)
		if err != nil {
			return nil, err
		}
		for name, rows := range part.Tables {
			part.Tables[name] = slices.DeleteFunc(rows, func(r table.Row) bool {
				return modelspec.ShardOf(r.ID, s.cfg.Shards) != s.cfg.Shard
			})
		}
		if len(part.Filters) > 0 && i == 0 {
			s.log.Warn("the checkpoint was made with another number of shards: admission filters begin anew", "checkpoint", c.GetId(), "shards", len(c.GetShards()))
		}
		if part.Filters = nil; all == nil {
			all = part
			continue
		}
		if err := merge(all, part); err != nil {
			return nil, fmt.Errorf("shards %d and %d: %w", all.Manifest.Shard, i, err)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("it names no shards")
	}
	return all, nil
}

// merge adds to a what b, of the same cut, has.
func merge(a, b *checkpoint.Shard) error {
	m, n := &a.Manifest, &b.Manifest
	if !maps.Equal(m.Offsets, n.Offsets) || m.Turn != n.Turn || m.Generation != n.Generation {
		return fmt.Errorf("they stand at offsets %v, turn %d of generation %d and at %v, %d of %d: they are of no one cut", m.Offsets, m.Turn, m.Generation, n.Offsets, n.Turn, n.Generation)
	}
	m.Step, m.SyncSeq = max(m.Step, n.Step), min(m.SyncSeq, n.SyncSeq)
	for _, id := range n.Assigned {
		if !slices.Contains(m.Assigned, id) {
			m.Assigned = append(m.Assigned, id)
		}
	}
	for _, t := range n.Tables {
		i := slices.IndexFunc(m.Tables, func(u checkpoint.TableInfo) bool { return u.Name == t.Name })
		if i < 0 {
			return fmt.Errorf("only one has table %q", t.Name)
		}
		m.Tables[i].Clock = max(m.Tables[i].Clock, t.Clock)
	}
	for name, rows := range b.Tables {
		a.Tables[name] = append(a.Tables[name], rows...)
	}
	maps.Copy(a.Dense, b.Dense)
	a.Bands = append(a.Bands, b.Bands...)
	return nil
}

// timeline is the subjects on which the rows of this shard may have been published since the
// checkpoint that it was restored from.
func (s *Server) timeline() []string {
	if !s.resharded {
		return s.pub.Subjects()
	}
	rows := bus.DeltaSubject(s.env.BZID, s.cfg.Job, "*")
	return []string{rows, rows + ".dense"}
}
