package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// passTime is about how long one pass of a kernel takes.
const passTime = time.Second

// threads are those that kernels and their peers may use.
func threads() int { return runtime.GOMAXPROCS(0) }

// peerRate makes a pass of a peer's work: n things of a size that takes about passTime.
func peerRate(p *peers.Peer, what string, n int) Pass {
	return func(context.Context) ([]float64, error) {
		for {
			s, err := p.Seconds(what, n)
			if err != nil {
				return nil, err
			}
			if s > passTime.Seconds()/4 {
				return []float64{float64(n) / s}, nil
			}
			n *= 4
		}
	}
}

// missing turns a peer that is not installed, or too slow, into none, and says so.
func (r *Runner) missing(err error) error {
	if errors.Is(err, peers.ErrMissing) || errors.Is(err, peers.ErrSlow) {
		r.say("  %v", err)
		return nil
	}
	return err
}

// share is a pass of work as a part of a ceiling that is measured right before.
func share(ceiling func() float64, work func(context.Context) (float64, error)) Pass {
	return func(ctx context.Context) ([]float64, error) {
		most := ceiling()
		got, err := work(ctx)
		if err != nil {
			return nil, err
		}
		return []float64{got, got / most}, nil
	}
}

// repeat counts how often a second work runs once in passTime.
func repeat(ctx context.Context, work func() error) (perSecond float64, err error) {
	began := time.Now()
	for n := 1; ; n++ {
		if err := work(); err != nil {
			return 0, err
		}
		if took := time.Since(began); took >= passTime {
			return float64(n) / took.Seconds(), ctx.Err()
		}
	}
}

// Gemm measures the matrix products of a DeepFM tower at batch 512, and a large one.
func Gemm() Benchmark {
	return Benchmark{Name: "gemm", About: "float32 and bfloat16 matrix products, against this processor's multiply-add ceiling and torch.mm", Run: func(ctx context.Context, r *Runner) (err error) {
		pool, err := par.New(threads())
		if err != nil {
			return err
		}
		defer pool.Close()
		mm := gemm.Workspace{Pool: pool}
		for _, s := range []struct{ m, n, k int }{{512, 1024, 416}, {512, 256, 1024}, {1024, 1024, 1024}, {4096, 1024, 1024}} {
			p, perr := peers.Torch(ctx, "gemm", s.m, s.n, s.k)
			if err := r.missing(perr); err != nil {
				return err
			}
			a, b, c := gemm.Of(random(s.m*s.k), s.m, s.k), gemm.Of(random(s.k*s.n), s.k, s.n), gemm.Of(make([]float32, s.m*s.n), s.m, s.n)
			flops := 2 * float64(s.m) * float64(s.n) * float64(s.k) / 1e9
			for _, bf16 := range []bool{false, true} {
				kind, ceiling := "float32", func() float64 { return gemm.Ceiling(threads(), passTime/4) }
				if bf16 {
					kind, ceiling = "bfloat16", func() float64 { return gemm.CeilingBF16(threads(), passTime/4) }
				}
				op := gemm.Plain
				op.BF16 = bf16
				cmp := Comparison{
					Name: fmt.Sprintf("gemm/%dx%dx%d %s", s.m, s.n, s.k, kind), Baseline: "torch.mm float32", Warm: true,
					Figures: []Figure{{Unit: "GFLOP/s", Better: Higher}, {Name: "of ceiling", Unit: "", Better: Higher, Least: 0.7}},
					Ours: share(ceiling, func(ctx context.Context) (float64, error) {
						n, err := repeat(ctx, func() error { return mm.Mul(c, a, b, op) })
						return n * flops, err
					}),
				}
				if p != nil {
					rate := peerRate(p, "product", 10)
					cmp.Peer = share(ceiling, func(ctx context.Context) (float64, error) {
						v, err := rate(ctx)
						if err != nil {
							return 0, err
						}
						return v[0] * flops, nil
					})
				}
				if err := r.Compare(ctx, cmp); err != nil {
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

// DeepFMTrain and DeepFMScore measure what the engine computes of a batch, on rows that are in its memory: no
// look-ups and no updates, which torch does, too; train has these. The ceiling is what the multiply-adders give for
// the products alone.
func DeepFMTrain() Benchmark {
	return deepFMBenchmark("deepfm-train", "DeepFM 26x16, MLP 1024-256-32: the engine's step on rows in memory, against torch with its embedding", "train")
}

// DeepFMScore is DeepFMTrain's counterpart for scoring.
func DeepFMScore() Benchmark {
	return deepFMBenchmark("deepfm-score", "the same model scored, against torch", "score")
}

func deepFMBenchmark(name, about, what string) Benchmark {
	return Benchmark{Name: name, About: about, Run: func(ctx context.Context, r *Runner) error {
		for _, batch := range []int{32, 512, 4096} {
			p, perr := peers.Torch(ctx, "deepfm", batch)
			if err := r.missing(perr); err != nil {
				return err
			}
			for _, bf16 := range []bool{false, true} {
				if err := r.deepFM(ctx, name, what, batch, bf16, p); err != nil {
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

func (r *Runner) deepFM(ctx context.Context, name, what string, batch int, bf16 bool, p *peers.Peer) error {
	spec, err := trainSpec("deepfm", bf16)
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
	kind, ceiling := "float32", func() float64 { return gemm.Ceiling(threads(), passTime/4) * 1e9 / flops }
	if bf16 {
		kind, ceiling = "bfloat16", func() float64 { return gemm.CeilingBF16(threads(), passTime/4) * 1e9 / flops }
	}
	c := Comparison{
		Name: fmt.Sprintf("%s/batch=%d %s", name, batch, kind), Baseline: "torch float32", Warm: true,
		Figures: []Figure{{Unit: "samples/s", Better: Higher}, {Name: "of ceiling", Unit: "", Better: Higher}},
		Ours: share(ceiling, func(ctx context.Context) (float64, error) {
			return engineRate(ctx, spec, batch, 1, what == "score")
		}),
	}
	if batch == 512 {
		c.Figures[1].Least = 0.7
	}
	if p != nil {
		rate := peerRate(p, what, 4*batch)
		c.Peer = share(ceiling, func(ctx context.Context) (float64, error) {
			v, err := rate(ctx)
			if err != nil {
				return 0, err
			}
			return v[0], nil
		})
	}
	r.sayDistance()
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

func random(n int) []float32 {
	rng := rand.New(rand.NewPCG(3, 4))
	v := make([]float32, n)
	for i := range v {
		v[i] = rng.Float32() - 0.5
	}
	return v
}
