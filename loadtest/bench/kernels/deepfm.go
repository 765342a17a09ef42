package kernels

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// DeepFMTrain and DeepFMScore measure what the engine computes of a batch, on rows that are in its memory: no
// look-ups and no updates, which torch does, too; train has these. The ceiling is what the multiply-adders give for
// the products alone.
func DeepFMTrain() bench.Benchmark {
	return deepFMBenchmark("deepfm-train", "DeepFM 26x16, MLP 1024-256-32: the engine's step on rows in memory, against torch with its embedding", "train")
}

// DeepFMScore is DeepFMTrain's counterpart for scoring.
func DeepFMScore() bench.Benchmark {
	return deepFMBenchmark("deepfm-score", "the same model scored, against torch", "score")
}

// engineShards are those by which the engine groups a batch's rows, as in the benchmark of training.
const engineShards = 2

// deepFMGoals are, of batches of 512, least ratios to the best that torch does in the same precision, and least
// parts of the ceiling in float32 and in bfloat16.
var deepFMGoals = map[string]struct {
	torch float64
	parts [2]float64
}{"train": {3, [2]float64{0.7, 0.7}}, "score": {2, [2]float64{0.8, 0.75}}}

func deepFMBenchmark(name, about, what string) bench.Benchmark {
	return bench.Benchmark{Name: name, About: about, Run: func(ctx context.Context, r *bench.Runner) error {
		for _, batch := range []int{32, 512, 4096} {
			for i, precision := range precisions() {
				if err := deepFM(ctx, r, name, what, batch, precision, deepFMGoals[what].parts[i]); err != nil {
					return err
				}
			}
			if what == "score" { // beside torch in float32: it has no int8 to be scaled by row
				if err := deepFM(ctx, r, name, what, batch, int8(), 0); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func deepFM(ctx context.Context, r *bench.Runner, name, what string, batch int, precision products, part float64) (err error) {
	spec, err := Spec("deepfm", precision.compute == model.ModelSpec_BF16)
	if err != nil {
		return err
	}
	spec.ServingCompute = precision.compute
	m, err := modelspec.Compile(spec)
	if err != nil {
		return err
	}
	g := m.Train
	if what == "score" {
		g = m.Serve
	}
	flops, err := productsOf(g, batch)
	if err != nil {
		return err
	}
	torch, baseline, err := r.Torch(ctx, what, batch, precision.op.BF16)
	if err != nil {
		return err
	}
	ceiling := precision.ceiling.Times(1e9 / flops)
	c := bench.Comparison{
		Name: fmt.Sprintf("%s/batch=%d %s", name, batch, precision.kind), Baseline: baseline, Warm: true,
		Figures: []bench.Figure{{Unit: "samples/s", Better: bench.Higher}, {Name: "of ceiling", Unit: "", Better: bench.Higher}},
		Ours: bench.ShareOf(ceiling, func(ctx context.Context) (float64, error) {
			return EngineRate(ctx, spec, engineShards, batch, 1, what == "score")
		}),
	}
	if batch == 512 && part > 0 { // int8 has no peer of its precision
		c.Figures[0].Target, c.Figures[1].Least = deepFMGoals[what].torch, part
	}
	if torch != nil {
		defer func() { err = errors.Join(err, torch.Close()) }()
		c.Peer = bench.ShareOf(ceiling, bench.PeerRate(torch, what, 4*batch))
	}
	r.SayDistance()
	return r.Compare(ctx, c)
}

// productsOf is the operations of a graph's products, a sample.
func productsOf(g *graph.Graph, batch int) (flops float64, err error) {
	p, err := nn.Compile(g, nn.Options{})
	if err != nil {
		return 0, err
	}
	for _, s := range p.Steps(batch) {
		if _, ok := s.Op.(graph.MatMul); ok {
			flops += s.Cost.FLOPs
		}
	}
	return flops / float64(batch), nil
}
