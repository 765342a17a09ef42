package product

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/kernels"
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
// engine that both stand on with rows in its memory, and beside torch with an embedding in memory and
// batches that are there.
func Train(o TrainOptions) bench.Benchmark {
	if o.Model == "" {
		o.Model = "deepfm"
	}
	if len(o.Via) == 0 {
		o.Via = Vias
	}
	if o.N == 0 {
		o.N = 64 * trainBatch
	}
	return bench.Benchmark{Name: "train", About: "Kafka records through trainer and shards, DeepFM 26x16, MLP 1024-256-32, against the engine alone", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, bf16 := range []bool{false, true} {
			for _, via := range o.Via {
				if err := train(ctx, r, o, via, bf16); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func train(ctx context.Context, r *bench.Runner, o TrainOptions, via string, bf16 bool) (err error) {
	targets, ok := trainTargets[via]
	if !ok {
		return fmt.Errorf("%w road %q to the shards: there are process, unix and tcp", bench.ErrUnknown, via)
	}
	spec, err := kernels.Spec(o.Model, bf16)
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
	name := fmt.Sprintf("train/%s %s %s", o.Model, via, kind)
	ours := func(ctx context.Context) ([]float64, error) {
		rate, err := j.learn(ctx, records)
		return []float64{rate}, err
	}
	if err := r.Compare(ctx, bench.Comparison{
		Name: name, Baseline: "the engine alone, rows in memory", Warm: true,
		Figures: []bench.Figure{{Unit: "samples/s", Better: bench.Higher, Target: target}},
		Ours:    ours,
		Peer: func(ctx context.Context) ([]float64, error) {
			rate, err := kernels.EngineRate(ctx, spec, trainShards, trainBatch, trainPartitions, false)
			return []float64{rate}, err
		},
	}); err != nil || o.Model != "deepfm" {
		return err
	}
	torch, baseline, err := r.Torch(ctx, "train", trainBatch, bf16)
	if err != nil || torch == nil {
		return err
	}
	defer func() { err = errors.Join(err, torch.Close()) }()
	return r.Compare(ctx, bench.Comparison{
		Name: name + " beside torch", Baseline: baseline,
		Figures: []bench.Figure{{Unit: "samples/s", Better: bench.Higher, Target: 2}},
		Ours:    ours,
		Peer: func(ctx context.Context) ([]float64, error) {
			rate, err := bench.PeerRate(torch, "train", 4*trainBatch)(ctx)
			return []float64{rate}, err
		},
	})
}
