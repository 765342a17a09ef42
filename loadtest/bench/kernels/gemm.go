// Package kernels measures what computes: matrix products, a model's step and score on rows in
// memory, and the embedding table.
package kernels

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// products are matrix products on all threads, and how fast this processor multiplies and adds.
type products struct {
	kind    string
	ceiling bench.Rate // GFLOP/s
	op      gemm.Op
	compute model.ModelSpec_Compute
}

// precisions are the two that products of training have, float32 first.
func precisions() []products {
	plain, half := gemm.Plain, gemm.Plain
	half.BF16 = true
	return []products{
		{"float32", measured(gemm.Ceiling), plain, model.ModelSpec_FP32},
		{"bfloat16", measured(gemm.CeilingBF16), half, model.ModelSpec_BF16},
	}
}

// int8 is the precision that only scores have.
func int8() products {
	return products{"int8", measured(gemm.CeilingInt8), gemm.Plain, model.ModelSpec_INT8}
}

func measured(ceiling func(int, time.Duration) float64) bench.Rate {
	return func(context.Context) (float64, error) { return ceiling(bench.Threads(), bench.PassTime/4), nil }
}

// repeated is how often a second work runs once in [bench.PassTime].
func repeated(work func() error) bench.Rate {
	return func(ctx context.Context) (float64, error) {
		began := time.Now()
		for n := 1; ; n++ {
			if err := work(); err != nil {
				return 0, err
			}
			if took := time.Since(began); took >= bench.PassTime {
				return float64(n) / took.Seconds(), ctx.Err()
			}
		}
	}
}

// Gemm measures the matrix products of a DeepFM tower at batch 512, and a large one.
func Gemm() bench.Benchmark {
	return bench.Benchmark{Name: "gemm", About: "float32 and bfloat16 matrix products, against this processor's multiply-add ceiling and torch.mm", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		pool, err := par.New(bench.Threads())
		if err != nil {
			return err
		}
		defer pool.Close()
		for _, s := range []size{{512, 1024, 416}, {512, 256, 1024}, {1024, 1024, 1024}, {4096, 1024, 1024}} {
			if err := s.measure(ctx, r, &gemm.Workspace{Pool: pool}); err != nil {
				return err
			}
		}
		return nil
	}}
}

// size is a product's, of m by k and k by n.
type size struct{ m, n, k int }

func (s size) measure(ctx context.Context, r *bench.Runner, mm *gemm.Workspace) error {
	a, b, c := gemm.Of(random(s.m*s.k), s.m, s.k), gemm.Of(random(s.k*s.n), s.k, s.n), gemm.Of(make([]float32, s.m*s.n), s.m, s.n)
	for i, p := range precisions() {
		torch, err := peers.Torch(ctx, "gemm", s.m, s.n, s.k, i)
		if err := r.Missing(err); err != nil {
			return err
		}
		err = s.compare(ctx, r, p, torch, func() error { return mm.Mul(c, a, b, p.op) })
		if torch != nil {
			err = errors.Join(err, torch.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare measures products of one precision beside torch's of the same; torch may be nil.
func (s size) compare(ctx context.Context, r *bench.Runner, p products, torch *peers.Peer, product func() error) error {
	flops := 2 * float64(s.m) * float64(s.n) * float64(s.k) / 1e9
	c := bench.Comparison{
		Name: fmt.Sprintf("gemm/%dx%dx%d %s", s.m, s.n, s.k, p.kind), Baseline: "torch.mm " + p.kind, Warm: true,
		Figures: []bench.Figure{{Unit: "GFLOP/s", Better: bench.Higher}, {Name: "of ceiling", Unit: "", Better: bench.Higher, Least: 0.7}},
		Ours:    bench.ShareOf(p.ceiling, repeated(product).Times(flops)),
	}
	if torch != nil {
		c.Peer = bench.ShareOf(p.ceiling, bench.PeerRate(torch, "product", 10).Times(flops))
	}
	return r.Compare(ctx, c)
}

func random(n int) []float32 {
	rng := rand.New(rand.NewPCG(3, 4))
	v := make([]float32, n)
	for i := range v {
		v[i] = rng.Float32() - 0.5
	}
	return v
}
