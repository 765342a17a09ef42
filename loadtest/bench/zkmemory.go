package bench

import (
	"bytes"
	"cmp"
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
	Starts            int           // cold starts; 0: 5
	Rest              time.Duration // for which a server's memory must not have fallen to be at rest; 0: 20 s
}

// ZKMemoryCases are the sizes of a full run: three times the raw bytes at most.
var ZKMemoryCases = []ZKMemoryCase{{Nodes: 10_000}, {Nodes: 100_000}, {Nodes: 1_000_000, Most: 3 * zkData, Ratio: 0.25, Cold: 2}}

// rest is longer than either server keeps what it does not need: NATS gives back the
// buffers of what it wrote after 15 s. settled bounds the wait for it.
const (
	rest    = 20 * time.Second
	settled = time.Minute
)

// ZKMemory measures by how much a server grows with its nodes, once it has nothing to do
// any more, and how soon it serves them again after an orderly stop.
func ZKMemory(start StartZooKeeper, cases []ZKMemoryCase) Benchmark {
	return Benchmark{Name: "zk-memory", About: "memory of znodes of 100 B, and how soon they are served after a stop; against Apache ZooKeeper", Run: func(ctx context.Context, r *Runner) error {
		for _, c := range cases {
			c.Starts, c.Rest = cmp.Or(c.Starts, 5), cmp.Or(c.Rest, rest)
			if err := withZooKeepers(ctx, r, start, func(ours, peer ZooKeeper) error { return c.run(ctx, r, ours, peer) }); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (c ZKMemoryCase) run(ctx context.Context, r *Runner, ours, peer ZooKeeper) error {
	empty := map[ZooKeeper]int64{}
	for _, part := range []struct {
		rounds  int
		figure  Figure
		measure func(context.Context, ZooKeeper) (float64, error)
	}{
		{1, Figure{Name: "growth", Unit: "MB", Better: Lower, Target: c.Ratio, Most: c.Most}, func(ctx context.Context, z ZooKeeper) (_ float64, err error) {
			if empty[z], err = resting(ctx, z.PID(), c.Rest); err != nil {
				return 0, err
			}
			if err := zkFill(ctx, "/memory", c.Nodes, z); err != nil {
				return 0, err
			}
			return growth(ctx, z.PID(), c.Rest, empty[z])
		}},
		{c.Starts, Figure{Name: "cold start", Unit: "s", Better: Lower, Most: c.Cold}, func(ctx context.Context, z ZooKeeper) (float64, error) {
			return coldStart(ctx, z, c.Nodes)
		}},
		{1, Figure{Name: "restarted", Unit: "MB", Better: Lower}, func(ctx context.Context, z ZooKeeper) (float64, error) {
			return growth(ctx, z.PID(), c.Rest, empty[z])
		}},
	} {
		pass := func(z ZooKeeper) Pass {
			if z == nil {
				return nil
			}
			return func(ctx context.Context) ([]float64, error) {
				v, err := part.measure(ctx, z)
				return []float64{v}, err
			}
		}
		err := r.Compare(ctx, Comparison{
			Name: fmt.Sprintf("zk-memory/nodes=%d", c.Nodes), Baseline: zkPeer, Rounds: part.rounds,
			Figures: []Figure{part.figure}, Ours: pass(ours), Peer: pass(peer),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// growth is how many megabytes a process at rest takes more than when it was empty; one
// at least, as exact as resident memory is.
func growth(ctx context.Context, pid int, still time.Duration, empty int64) (float64, error) {
	now, err := resting(ctx, pid, still)
	return max(float64(now-empty)/1e6, 1), err
}

// coldStart is the seconds from the start of a server with n nodes, which was stopped in
// order, until it has answered a get.
func coldStart(ctx context.Context, z ZooKeeper, n int) (float64, error) {
	if err := z.Stop(); err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := z.Start(ctx); err != nil {
		return 0, err
	}
	c, err := zkload.Dial(ctx, z.Addr(), 1)
	if err != nil {
		return 0, err
	}
	_, err = c.Run(ctx, 1, 1, zkload.Get("/memory", n))
	cold := time.Since(began)
	return cold.Seconds(), errors.Join(err, c.Close())
}

// resting is the resident memory of a process once it has not fallen for so long.
func resting(ctx context.Context, pid int, still time.Duration) (int64, error) {
	least, since := int64(0), time.Now()
	for began := time.Now(); time.Since(since) < still && time.Since(began) < settled; {
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
