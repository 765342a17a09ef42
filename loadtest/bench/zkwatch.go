package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/monolith-go/monolith/loadtest/zkload"
)

// ZKWatchCase is so many sessions that watch one node, and in how many milliseconds the
// last of them must have heard of a change, in half of all times; 0: no target.
type ZKWatchCase struct {
	Sessions, Times int
	Most            float64
}

// ZKWatchCases are the sizes of a full run.
var ZKWatchCases = []ZKWatchCase{{Sessions: 5, Times: 100}, {Sessions: 50, Times: 100}, {Sessions: 500, Times: 100, Most: 2.5}}

// ZKWatch measures how long a change of one node takes to reach the last of many
// sessions that watch it, the write's way to the disk included.
func ZKWatch(start StartZooKeeper, cases []ZKWatchCase) Benchmark {
	return Benchmark{Name: "zk-watch", About: "a watched znode is written, until the last session has heard; against Apache ZooKeeper", Run: func(ctx context.Context, r *Runner) error {
		return withZooKeepers(ctx, r, start, func(ours, peer ZooKeeper) error {
			if err := zkFill(ctx, "/watch", 1, ours, peer); err != nil {
				return err
			}
			for _, c := range cases {
				pass := func(z ZooKeeper) Pass {
					if z == nil {
						return nil
					}
					return func(ctx context.Context) ([]float64, error) { return zkNotify(ctx, z.Addr(), c) }
				}
				err := r.Compare(ctx, Comparison{
					Name: fmt.Sprintf("zk-watch/sessions=%d last notified", c.Sessions), Baseline: zkPeer, Warm: true,
					Figures: []Figure{{Name: "p50", Unit: "ms", Better: Lower, Most: c.Most}, {Name: "p99", Unit: "ms", Better: Lower}},
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

func zkNotify(ctx context.Context, addr string, c ZKWatchCase) (_ []float64, err error) {
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
	took, err := watchers.Notify(ctx, writer, zkload.Name("/watch", 0), zkPayload, c.Times)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	return []float64{ms(took[len(took)/2]), ms(took[len(took)*99/100])}, nil
}
