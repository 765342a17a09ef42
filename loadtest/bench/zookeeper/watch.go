package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/zkload"
)

// WatchCase is so many sessions that watch one node, and in how many milliseconds the
// last of them must have heard of a change, in half of all times; 0: no target.
type WatchCase struct {
	Sessions, Times int
	Most            float64
}

// WatchCases are the sizes of a full run.
var WatchCases = []WatchCase{{Sessions: 5, Times: 100}, {Sessions: 50, Times: 100}, {Sessions: 500, Times: 100, Most: 2.5}}

// Watch measures how long a change of one node takes to reach the last of many
// sessions that watch it, the write's way to the disk included.
func Watch(start StartFunc, cases []WatchCase) bench.Benchmark {
	return bench.Benchmark{Name: "zk-watch", About: "a watched znode is written, until the last session has heard; against Apache ZooKeeper", Run: func(ctx context.Context, r *bench.Runner) error {
		return withServers(ctx, r, start, func(ours, peer Server) error {
			if err := fill(ctx, "/watch", 1, ours, peer); err != nil {
				return err
			}
			for _, c := range cases {
				pass := func(z Server) bench.Pass {
					if z == nil {
						return nil
					}
					return func(ctx context.Context) ([]float64, error) { return notify(ctx, z.Addr(), c) }
				}
				err := r.Compare(ctx, bench.Comparison{
					Name: fmt.Sprintf("zk-watch/sessions=%d last notified", c.Sessions), Baseline: apache, Warm: true,
					Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower, Most: c.Most}, {Name: "p99", Unit: "ms", Better: bench.Lower}},
					Ours:    pass(ours), Peer: pass(peer),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}}
}

func notify(ctx context.Context, addr string, c WatchCase) (_ []float64, err error) {
	watchers, err := zkload.Dial(ctx, addr, c.Sessions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, watchers.Close()) }()
	writer, err := zkload.Dial(ctx, addr, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	took, err := watchers.Notify(ctx, writer, zkload.Name("/watch", 0), payload, c.Times)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	return []float64{ms(took[len(took)/2]), ms(took[len(took)*99/100])}, nil
}
