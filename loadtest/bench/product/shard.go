package product

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/bench/psrole"
	"github.com/monolith-go/monolith/services/ps"
)

// psShard is the ps role on a bus in memory, for the latency of its lookups alone.
type psShard struct {
	*psrole.Shard
	tcp string
}

// RunShard starts the role with a filled table, as [StartShard] says.
func RunShard(ctx context.Context, keys int) (_ Shard, err error) {
	role, err := psrole.Start(ctx, itemSpec(psrole.Job), ps.Config{})
	if err != nil {
		return nil, err
	}
	s := &psShard{Shard: role}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.tcp = ln.Addr().String()
	s.Go(func(ctx context.Context) error { return rowwire.Serve(ctx, ln, s.Server.Rows(), rowwire.Options{}) })
	if err := s.fill(ctx, psrole.Job, keys); err != nil {
		return nil, err
	}
	return s, nil
}

// itemSpec is a model of one table of 16 numbers a row.
func itemSpec(name string) *model.ModelSpec {
	sgd := &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
	return &model.ModelSpec{
		Name:     name,
		Features: []*model.Feature{{Name: "item", Field: "item", Slot: 1, Table: psTable}},
		Tables: []*model.Table{{Name: psTable, Dim: psDim, Optimizer: sgd,
			Initializer: &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}}}},
		Layers:         []*model.DenseLayer{{Name: "out", Units: 1, Activation: model.Activation_SIGMOID}},
		DenseOptimizer: sgd,
		Label:          &model.Label{Field: "y", Threshold: 1},
	}
}

// fill teaches a gradient for each key, so that each has a row.
func (s *psShard) fill(ctx context.Context, job string, keys int) error {
	const at = 4096
	for from := 0; from < keys; from += at {
		ids := make([]int64, min(at, keys-from))
		grads := make([]float32, 16*len(ids))
		for i := range ids {
			ids[i] = int64(from + i)
			grads[16*i] = float32(i)
		}
		r, err := s.Server.Rows().Apply(ctx, &rowwire.ApplyRequest{Job: job, Epoch: 1, From: int64(from), To: int64(from + len(ids)), RecordUnix: 1,
			Tables: []rowwire.TableGrads{{Table: "item", IDs: ids, Grads: grads}}})
		if err != nil || !r.Applied {
			return fmt.Errorf("fill the shard: %w", err)
		}
	}
	return nil
}

func (s *psShard) TCP() string           { return s.tcp }
func (s *psShard) Unix() string          { return s.Server.Addr() }
func (s *psShard) Local() *rowwire.Local { return s.Shard.Local }
