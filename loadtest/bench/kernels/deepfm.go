package kernels

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
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

func deepFMBenchmark(name, about, what string) bench.Benchmark {
	return bench.Benchmark{Name: name, About: about, Run: func(ctx context.Context, r *bench.Runner) error {
		for _, batch := range []int{32, 512, 4096} {
			p, perr := peers.Torch(ctx, "deepfm", batch)
			if err := r.Missing(perr); err != nil {
				return err
			}
			for _, precision := range precisions() {
				if err := deepFM(ctx, r, name, what, batch, precision, p); err != nil {
					return err
				}
			}
			if p != nil {
				if err := p.Close(); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func deepFM(ctx context.Context, r *bench.Runner, name, what string, batch int, precision products, p *peers.Peer) error {
	spec, err := Spec("deepfm", precision.op.BF16)
	if err != nil {
		return err
	}
	spec.Layers[1].GetMlp().Units[0] = 1024 // as torch's; a job of it would have a variable of several deltas
	spec.ServingCompute = spec.Compute
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
	ceiling := precision.ceiling.Times(1e9 / flops)
	c := bench.Comparison{
		Name: fmt.Sprintf("%s/batch=%d %s", name, batch, precision.kind), Baseline: "torch float32", Warm: true,
		Figures: []bench.Figure{{Unit: "samples/s", Better: bench.Higher}, {Name: "of ceiling", Unit: "", Better: bench.Higher}},
		Ours: bench.ShareOf(ceiling, func(ctx context.Context) (float64, error) {
			return EngineRate(ctx, spec, engineShards, batch, 1, what == "score")
		}),
	}
	if batch == 512 {
		c.Figures[1].Least = 0.7
	}
	if p != nil {
		c.Peer = bench.ShareOf(ceiling, bench.PeerRate(p, what, 4*batch))
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
