package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/kernels/nn"
)

// TrainOptions say what the benchmark of training measures.
type TrainOptions struct {
	Model string   // deepfm or movies; default deepfm
	Via   []string // of Vias; default all
	N     int      // records of a pass; default 32,768
}

// trainTargets are least parts of the kernels' rate, by the road to the shards: of float32 and of
// bfloat16.
var trainTargets = map[string][2]float64{"process": {0.75, 0.68}, "unix": {0.6, 0.52}, "tcp": {0.57, 0.5}}

// Train measures the product: records of a Kafka broker through a trainer to its shards, beside the
// engine that both stand on with rows in its memory.
func Train(o TrainOptions) Benchmark {
	if o.Model == "" {
		o.Model = "deepfm"
	}
	if len(o.Via) == 0 {
		o.Via = Vias
	}
	if o.N == 0 {
		o.N = 64 * trainBatch
	}
	return Benchmark{Name: "train", About: "Kafka records through trainer and shards, DeepFM 26x16, MLP 1024-256-32, against the engine alone", Run: func(ctx context.Context, r *Runner) error {
		for _, bf16 := range []bool{false, true} {
			for _, via := range o.Via {
				if err := r.train(ctx, o, via, bf16); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func (r *Runner) train(ctx context.Context, o TrainOptions, via string, bf16 bool) (err error) {
	targets, ok := trainTargets[via]
	if !ok {
		return fmt.Errorf("%w road %q to the shards: there are process, unix and tcp", ErrUnknown, via)
	}
	spec, err := trainSpec(o.Model, bf16)
	if err != nil {
		return err
	}
	kind, target := "float32", targets[0]
	if bf16 {
		kind, target = "bfloat16", targets[1]
	}
	j, err := startTrainJob(ctx, spec, via)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	records := trainRecords(spec, o.N)
	return r.Compare(ctx, Comparison{
		Name: fmt.Sprintf("train/%s %s %s", o.Model, via, kind), Baseline: "the engine alone, rows in memory", Warm: true,
		Figures: []Figure{{Unit: "samples/s", Better: Higher, Target: target}},
		Ours: func(ctx context.Context) ([]float64, error) {
			rate, err := j.learn(ctx, records)
			return []float64{rate}, err
		},
		Peer: func(ctx context.Context) ([]float64, error) {
			rate, err := engineRate(ctx, spec, trainBatch, trainPartitions, false)
			return []float64{rate}, err
		},
	})
}

// engineRate is how many samples a second the engine trains, or scores, so many batches side by side, on rows and
// variables that stay as they are.
func engineRate(ctx context.Context, spec *model.ModelSpec, batch, side int, score bool) (float64, error) {
	e, err := runtime.New(spec, trainShards, batch)
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
				if took := time.Since(began); errs[i] != nil || took >= passTime {
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
	zipf := rand.NewZipf(rng, 1.1, 20, vocabulary-1)
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
