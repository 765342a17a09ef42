package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/nn"
)

// perStep is the most samples that are computed at once.
const perStep = 4096

// parameters are a checkpoint's, in memory.
type parameters struct {
	engine  *runtime.Engine
	weights *runtime.Weights
	rows    map[string]map[int64][]float32 // by table, by feature id
	lanes   *nn.Lanes
}

// load reads a checkpoint's files, whose checksums it verifies.
func (s *saved) load(ctx context.Context) (*parameters, error) {
	engine, err := runtime.New(s.spec, 1, perStep)
	if err != nil {
		return nil, err
	}
	p := &parameters{engine: engine, rows: map[string]map[int64][]float32{}, lanes: nn.NewLanes(0)}
	dense := map[string]checkpoint.Variable{}
	var bands []checkpoint.Band
	for i := range s.checkpoint.GetShards() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		shard, err := s.shard(i)
		if err != nil {
			return nil, err
		}
		for name, rows := range shard.Tables {
			if p.rows[name] == nil {
				p.rows[name] = make(map[int64][]float32, len(rows)*len(s.checkpoint.GetShards()))
			}
			for _, r := range rows {
				p.rows[name][r.ID] = r.Values
			}
		}
		for name, v := range shard.Dense {
			dense[name] = v
		}
		bands = append(bands, shard.Bands...)
	}
	if err := checkpoint.Join(dense, bands); err != nil {
		return nil, err
	}
	values := make([][]float32, len(engine.Variables()))
	for i, v := range engine.Variables() {
		got, ok := dense[v.Name]
		if !ok || !slices.Equal(got.Shape, v.Shape) {
			return nil, fmt.Errorf("checkpoint %d has the variable %s as %v, the model has it as %v", s.checkpoint.GetId(), v.Name, got.Shape, v.Shape)
		}
		values[i] = got.Values
	}
	p.weights, err = engine.Weights(uint64(s.checkpoint.GetId()), values)
	return p, err
}

// lookUp gives a sealed batch its rows; an id without one has zeros, as in training and serving.
func (p *parameters) lookUp(b *runtime.Batch) {
	for _, block := range b.Blocks(0) {
		rows := p.rows[block.Table]
		for i, id := range block.IDs {
			to := block.Rows[i*block.Dim : (i+1)*block.Dim]
			if row, ok := rows[id]; ok {
				copy(to, row)
			} else {
				clear(to)
			}
		}
	}
}

// size is the number of rows in all tables.
func (p *parameters) size() (n int) {
	for _, rows := range p.rows {
		n += len(rows)
	}
	return n
}
