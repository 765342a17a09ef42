package warm

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Child is the job that begins.
type Child struct {
	Job        string
	Spec       *model.ModelSpec
	Dir        string // its folder
	Checkpoint int64  // the id that it has claimed for what is written
	SyncSeq    uint64 // the end of its deltas: it has published nothing
}

// Write writes the checkpoint as the child's, with as many parts as the parent has, and returns how facts
// name it. Every byte of the parent's is verified on the way. A crash leaves parts of a folder that
// no fact names, and the next attempt has another id.
func (p *Parent) Write(ctx context.Context, c Child) (*training.Checkpoint, error) {
	if err := p.Fits(c.Spec); err != nil {
		return nil, err
	}
	made := &training.Checkpoint{Id: c.Checkpoint, Dir: c.Dir, Offsets: p.Offsets(), Parent: p.Fact()}
	if p.cfg.Offsets {
		made.Turn = p.parts[0].Turn
	}
	for i := range p.parts {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		was := checkpoint.Part(p.parts[i].Checkpoint, i)
		s, err := checkpoint.ReadShardIn(p.dir, was)
		if err != nil {
			return nil, err
		}
		if s.Manifest.Hash != p.parts[i].Hash {
			return nil, fmt.Errorf("%s has become another one", filepath.Join(p.dir, was))
		}
		if err := p.adopt(s, c); err != nil {
			return nil, err
		}
		path := checkpoint.Part(c.Checkpoint, i)
		m, err := checkpoint.CreateShard(filepath.Join(c.Dir, path), s)
		if err != nil {
			return nil, err
		}
		f := &training.ShardFile{Shard: m.Shard, Path: path, Step: m.Step, SyncSeq: m.SyncSeq, Hash: m.Hash, Crc32C: m.Files}
		for _, t := range m.Tables {
			f.Rows += t.Rows
		}
		made.Shards = append(made.Shards, f)
	}
	return made, nil
}

// adopt makes what a shard of the parent wrote a part of the child's checkpoint.
func (p *Parent) adopt(s *checkpoint.Shard, c Child) error {
	m := &s.Manifest
	m.Job, m.Checkpoint, m.Epoch, m.Generation, m.SyncSeq, m.Assigned = c.Job, c.Checkpoint, 0, 0, c.SyncSeq, nil
	s.Spec = c.Spec
	if !p.cfg.Offsets {
		m.Offsets, m.Turn = map[int32]int64{}, 0
	}
	if p.cfg.Optimizer {
		return nil
	}
	m.Step = 0
	for i := range m.Tables {
		if err := fresh(s, &m.Tables[i], c.Spec); err != nil {
			return err
		}
	}
	for name, v := range s.Dense {
		v.Slots = slotsOf(c.Spec, name, len(v.Values))
		s.Dense[name] = v
	}
	for i := range s.Bands {
		s.Bands[i].Slots = slotsOf(c.Spec, s.Bands[i].Name, len(s.Bands[i].Values))
	}
	return nil
}

// fresh gives the rows of a table the slots of rows that have not been updated.
func fresh(s *checkpoint.Shard, t *checkpoint.TableInfo, spec *model.ModelSpec) error {
	declared := modelspec.Table(spec, t.Name)
	segments, err := modelspec.Segments(declared, spec.GetSeed())
	if err != nil {
		return err
	}
	var first []float32
	for _, g := range segments {
		at := len(first)
		first = append(first, make([]float32, g.Optimizer.SlotSize(g.Dim))...)
		g.Optimizer.InitSlots(first[at:])
	}
	if t.Opt, err = dumpsOf(spec, t.Name); err != nil {
		return err
	}
	t.Slots = len(first)
	rows := s.Tables[t.Name]
	for i := range rows {
		rows[i].Slots = first // which nobody changes: they are written alone
	}
	return nil
}

// slotsOf are those of a variable, or a band of one, that has not been updated.
func slotsOf(spec *model.ModelSpec, variable string, size int) []float32 {
	o := modelspec.VariableOptimizer(spec, variable)
	slots := make([]float32, o.SlotSize(size))
	o.InitSlots(slots)
	return slots
}
