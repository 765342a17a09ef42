package kernels

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// EngineRate is how many samples a second the engine trains, or scores, so many batches side by side, on rows of so
// many shards and
// variables that stay as they are.
func EngineRate(ctx context.Context, spec *model.ModelSpec, shards, batch, side int, score bool) (float64, error) {
	e, err := runtime.New(spec, shards, batch)
	if err != nil {
		return 0, err
	}
	var values [][]float32
	for _, v := range e.Variables() {
		values = append(values, modelspec.InitVariable(spec, v))
	}
	w, err := e.Weights(1, values)
	if err != nil {
		return 0, err
	}
	lanes := nn.NewLanes(0)
	defer lanes.Expect(side)()
	var all sync.WaitGroup
	rates, errs := make([]float64, side), make([]error, side)
	for i := range side {
		all.Go(func() {
			var b *runtime.Batch
			if b, errs[i] = residentBatch(e, batch, uint64(i)); errs[i] != nil {
				return
			}
			var scores [][]float32
			for began, n := time.Now(), 1; ctx.Err() == nil; n++ {
				var l *nn.Lane
				if l, errs[i] = lanes.Get(ctx); errs[i] != nil {
					return
				}
				if score {
					for k := range scores {
						scores[k] = scores[k][:0]
					}
					scores, errs[i] = e.Score(l, b, w, scores)
				} else {
					_, errs[i] = e.Train(l, b, w)
				}
				lanes.Put(l)
				if took := time.Since(began); errs[i] != nil || took >= bench.PassTime {
					rates[i] = float64(n*batch) / took.Seconds()
					return
				}
			}
		})
	}
	all.Wait()
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return sum, errors.Join(append(errs, ctx.Err())...)
}

// residentBatch is a batch of so many samples whose rows are looked up.
func residentBatch(e *runtime.Engine, batch int, seed uint64) (*runtime.Batch, error) {
	rng := rand.New(rand.NewPCG(seed, 3))
	zipf := rand.NewZipf(rng, 1.1, 20, Vocabulary-1)
	b := e.NewBatch()
	for range batch {
		s := runtime.Sample{Labels: []float32{float32(rng.IntN(2))}}
		for _, f := range e.Spec().GetFeatures() {
			s.IDs = append(s.IDs, []int64{modelspec.FID(f.GetSlot(), int64(zipf.Uint64()))})
		}
		if err := b.Add(s); err != nil {
			return nil, err
		}
	}
	if err := b.Seal(); err != nil {
		return nil, err
	}
	for shard := range e.Shards() {
		for _, block := range b.Blocks(shard) {
			for i := range block.Rows {
				block.Rows[i] = (rng.Float32() - 0.5) / 10
			}
		}
	}
	return b, nil
}
