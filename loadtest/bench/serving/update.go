package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// UpdateCase is lookups at a shard while so many rows of deltas come in a second.
type UpdateCase struct {
	Rows, PerSecond int
	Each            time.Duration
	Rounds          int
	P99, P999       float64 // targets
}

// UpdateCases are those of a full run. The first shows the noise.
var UpdateCases = []UpdateCase{
	{Rows: 1_000_000, PerSecond: 0, Each: 2 * time.Second, Rounds: 10},
	{Rows: 1_000_000, PerSecond: 100_000, Each: 2 * time.Second, Rounds: 10, P99: 1.05, P999: 1.2},
	{Rows: 1_000_000, PerSecond: 1_000_000, Each: 2 * time.Second, Rounds: 10, P99: 1.05, P999: 1.2},
}

const deltaRows = 5000 // of one delta

// UpdateRipple measures lookups at one serving shard while deltas change its rows, against the same at rest,
// and then a whole stack.
func UpdateRipple(cases []UpdateCase, stack func(context.Context, *bench.Runner) error) bench.Benchmark {
	return bench.Benchmark{Name: "update-ripple", About: "lookups at one shard and predictions of a stack while deltas come, against the same at rest", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, uc := range cases {
			if err := updateCase(ctx, r, uc); err != nil {
				return err
			}
		}
		return stack(ctx, r)
	}}
}

func updateCase(ctx context.Context, r *bench.Runner, uc UpdateCase) (err error) {
	m := &rows.Shard{Model: "bench", Job: "bench", Shards: 1}
	if err := readVersion(m, VersionsCase{Rows: uc.Rows, Changed: uc.Rows}, 0); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	var served errgroup.Group
	served.Go(func() error { host.KeepHeapSmall(run); return nil }) // as a model server's process does
	defer func() {
		stop()
		err = errors.Join(err, served.Wait())
	}()
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	served.Go(func() error {
		return rowwire.Serve(run, ln, rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{m} }), rowwire.Options{})
	})
	client, err := rowwire.Dial(ctx, rowwire.Addr(ln.Addr()), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	deltas, err := drawDeltas(uc.Rows)
	if err != nil {
		return err
	}
	pass := func(perSecond int) bench.Pass {
		return func(ctx context.Context) ([]float64, error) { return updatePass(ctx, uc, client, m, deltas, perSecond) }
	}
	name, baseline := fmt.Sprintf("update-ripple/rows=%d,deltas=%d/s", uc.Rows, uc.PerSecond), "at rest"
	return r.Compare(ctx, bench.Comparison{Name: name, Baseline: baseline, Rounds: uc.Rounds, Warm: uc.Rounds > 1,
		Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: uc.P99}, {Name: "p99.9", Unit: "ms", Better: bench.Lower, Target: uc.P999}},
		Ours:    pass(uc.PerSecond), Peer: pass(0)})
}

// drawDeltas are deltas as the log holds them, of rows drawn evenly.
func drawDeltas(n int) ([][]byte, error) {
	rng := rand.New(rand.NewPCG(5, 6))
	out := make([][]byte, 64)
	for i := range out {
		r := &delta.Rows{Table: tableName, Dim: versionsDim, Values: make([]byte, 4*versionsDim*deltaRows)}
		numbers := make([]float32, versionsDim*deltaRows)
		for k := range numbers {
			numbers[k] = float32(i)
		}
		compress.FP32{}.Encode(r.Values, numbers)
		for range deltaRows {
			r.Ids = append(r.Ids, uint64(rowID(rng.IntN(n))))
		}
		var err error
		if out[i], err = proto.Marshal(&delta.Delta{Rows: []*delta.Rows{r}}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// updatePass asks by the clock while deltas are applied, if there are any, and returns percentiles.
func updatePass(ctx context.Context, uc UpdateCase, client *rowwire.Client, m *rows.Shard, deltas [][]byte, perSecond int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, uc.Each)
	defer cancel()
	var writer errgroup.Group
	applied := 0
	began := time.Now()
	if perSecond > 0 {
		writer.Go(func() error {
			for tick := time.NewTicker(time.Millisecond); ; {
				select {
				case <-ctx.Done():
					tick.Stop()
					return nil
				case <-tick.C:
				}
				for due := int(time.Since(began).Seconds() * float64(perSecond)); applied+deltaRows <= due && ctx.Err() == nil; applied += deltaRows {
					var d delta.Delta
					if err := proto.Unmarshal(deltas[applied/deltaRows%len(deltas)], &d); err != nil {
						return err
					}
					if err := m.Apply(&d, uint64(applied+1), uint32(began.Unix())); err != nil {
						return err
					}
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([][]int64, 256)
	for i := range draws {
		for range askIDs {
			draws[i] = append(draws[i], rowID(rng.IntN(uc.Rows)))
		}
	}
	res, err := asked(ctx, askRate, func(ctx context.Context, n int) error {
		_, err := client.Lookup(ctx, &rowwire.LookupRequest{Model: "bench", Tables: []rowwire.TableIDs{{Table: tableName, IDs: draws[n%len(draws)]}}})
		return err
	})
	cancel()
	if err := errors.Join(err, writer.Wait()); err != nil {
		return nil, err
	}
	if want := uc.Each.Seconds() * float64(perSecond); float64(applied) < 0.95*want-2*deltaRows {
		return nil, fmt.Errorf("%d rows were applied of the %.0f that were due: the shard does not keep up", applied, want)
	}
	return []float64{float64(res.P50), float64(res.P99), float64(res.P999)}, nil
}
