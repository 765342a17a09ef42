package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/loadtest/zkload"
)

// ZKMemoryCase is so many nodes; Most is megabytes of memory at most and Ratio of the
// peer's, Cold seconds at most until they are served again. 0: no target.
type ZKMemoryCase struct {
	Nodes             int
	Most, Ratio, Cold float64
}

// ZKMemoryCases are the sizes of a full run: three times the raw bytes at most.
var ZKMemoryCases = []ZKMemoryCase{{Nodes: 10_000}, {Nodes: 100_000}, {Nodes: 1_000_000, Most: 3 * zkData, Ratio: 0.25, Cold: 2}}

// settled bounds the wait for a server's memory to stop shrinking.
const settled = 20 * time.Second

// ZKMemory measures by how much a server grows with its nodes, once it has nothing to do
// any more, and how soon it serves them again after an orderly stop.
func ZKMemory(start StartZooKeeper, cases []ZKMemoryCase) Benchmark {
	return Benchmark{Name: "zk-memory", About: "memory of znodes of 100 B, and how soon they are served after a stop; against Apache ZooKeeper", Run: func(ctx context.Context, r *Runner) error {
		for _, c := range cases {
			err := withZooKeepers(ctx, r, start, func(ours, peer ZooKeeper) error {
				pass := func(z ZooKeeper) Pass {
					if z == nil {
						return nil
					}
					return func(ctx context.Context) ([]float64, error) { return zkGrow(ctx, z, c.Nodes) }
				}
				return r.Compare(ctx, Comparison{
					Name: fmt.Sprintf("zk-memory/nodes=%d", c.Nodes), Baseline: zkPeer, Rounds: 1,
					Figures: []Figure{
						{Name: "growth", Unit: "MB", Better: Lower, Target: c.Ratio, Most: c.Most},
						{Name: "restarted", Unit: "MB", Better: Lower},
						{Name: "cold start", Unit: "s", Better: Lower, Most: c.Cold},
					},
					Ours: pass(ours), Peer: pass(peer),
				})
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// zkGrow is the growth of a server's resident memory by n nodes, what it takes more than
// when it was empty after a restart, and the seconds until the restarted one answered a
// get.
func zkGrow(ctx context.Context, z ZooKeeper, n int) ([]float64, error) {
	empty, err := resting(ctx, z.PID())
	if err != nil {
		return nil, err
	}
	if err := zkFill(ctx, "/memory", n, z); err != nil {
		return nil, err
	}
	full, err := resting(ctx, z.PID())
	if err != nil {
		return nil, err
	}
	if err := z.Stop(); err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := z.Start(ctx); err != nil {
		return nil, err
	}
	c, err := zkload.Dial(ctx, z.Addr(), 1)
	if err != nil {
		return nil, err
	}
	_, err = c.Run(ctx, 1, 1, zkload.Get("/memory", n))
	cold := time.Since(began)
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	again, err := resting(ctx, z.PID())
	if err != nil {
		return nil, err
	}
	const mb = 1e6
	return []float64{max(float64(full-empty), 1) / mb, max(float64(again-empty), 1) / mb, cold.Seconds()}, nil
}

// resting is the resident memory of a process once it has not shrunk for five seconds.
func resting(ctx context.Context, pid int) (int64, error) {
	least, since := int64(0), time.Now()
	for began := time.Now(); time.Since(since) < 5*time.Second && time.Since(began) < settled; {
		now, err := resident(pid)
		if err != nil {
			return 0, err
		}
		if least == 0 || now < least-least/100 {
			least, since = now, time.Now()
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return resident(pid)
}

// resident is a process's memory in RAM, in bytes, without what it has mapped from files.
func resident(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d is read on Linux only: %w", pid, err)
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kb, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no RssAnon in its status", pid)
}
