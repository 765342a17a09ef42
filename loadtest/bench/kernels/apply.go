package kernels

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// TableApply measures gradients applied to rows by adagrad.
func TableApply() bench.Benchmark {
	return bench.Benchmark{Name: "table-apply", About: "gradients applied to rows by adagrad, against a gather of the same row bytes; update ceiling: these rows read, changed and written", Run: func(ctx context.Context, r *bench.Runner) error {
		adagrad, err := optim.NewAdagrad(0.01, 0.1, 0)
		if err != nil {
			return err
		}
		for _, s := range []struct {
			dim  int
			rows []int
		}{{16, []int{320_000, 3_200_000, 32_000_000}}, {64, []int{80_000, 800_000, 8_000_000}}} {
			grads := random(rowBatch * s.dim)
			for _, rows := range s.rows {
				r.Say("  making a table of %d rows of %d", rows, s.dim)
				t, err := fillTable(table.Config{Name: "apply", Dim: s.dim, Optimizer: adagrad, Initializer: table.Zeros{}, Capacity: rows}, rows)
				if err != nil {
					return err
				}
				g, err := newGather(rows, 8*s.dim) // weights and accumulators
				if err != nil {
					return err
				}
				ids := drawIDs(rows)
				r.SayDistance()
				err = r.Compare(ctx, bench.Comparison{
					Name: fmt.Sprintf("table-apply/dim=%d,rows=%d", s.dim, rows), Baseline: fmt.Sprintf("gather of %d B rows", 8*s.dim), Warm: true,
					Figures: []bench.Figure{{Unit: "M rows/s", Better: bench.Higher, Target: 0.7}, {Name: "of update ceiling", Better: bench.Higher}},
					Ours: bench.ShareOf(g.updateRate, func(ctx context.Context) (float64, error) {
						return rowRate(ctx, bench.PassTime, func(w, i int) error { return t.Optimize(ids[w][i], grads, 2) })
					}),
					Peer: bench.ShareOf(g.updateRate, g.rate),
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	}}
}
