package zookeeper

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/zkload"
)

// MemoryCase is so many nodes; Most is megabytes of memory at most and Ratio of the
// peer's, Cold seconds at most until they are served again. 0: no target.
type MemoryCase struct {
	Nodes             int
	Most, Ratio, Cold float64
	Starts            int           // cold starts; 0: 5
	Rest              time.Duration // for which a server's memory must not have fallen to be at rest; 0: 20 s
}

// MemoryCases are the sizes of a full run: three times the raw bytes at most.
var MemoryCases = []MemoryCase{{Nodes: 10_000}, {Nodes: 100_000}, {Nodes: 1_000_000, Most: 3 * data, Ratio: 0.25, Cold: 2}}

// rest is longer than either server keeps what it does not need: NATS gives back the
// buffers of what it wrote after 15 s. settled bounds the wait for it.
const (
	rest    = 20 * time.Second
	settled = time.Minute
)

// Memory measures by how much a server grows with its nodes, once it has nothing to do
// any more, and how soon it serves them again after an orderly stop.
func Memory(start StartFunc, cases []MemoryCase) bench.Benchmark {
	return bench.Benchmark{Name: "zk-memory", About: "memory of znodes of 100 B, and how soon they are served after a stop; against Apache ZooKeeper", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, c := range cases {
			c.Starts, c.Rest = cmp.Or(c.Starts, 5), cmp.Or(c.Rest, rest)
			if err := withServers(ctx, r, start, func(ours, peer Server) error { return c.run(ctx, r, ours, peer) }); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (c MemoryCase) run(ctx context.Context, r *bench.Runner, ours, peer Server) error {
	empty := map[Server]int64{}
	for _, part := range []struct {
		rounds  int
		figure  bench.Figure
		measure func(context.Context, Server) (float64, error)
	}{
		{1, bench.Figure{Name: "growth", Unit: "MB", Better: bench.Lower, Target: c.Ratio, Most: c.Most}, func(ctx context.Context, z Server) (_ float64, err error) {
			if empty[z], err = resting(ctx, z.PID(), c.Rest); err != nil {
				return 0, err
			}
			if err := fill(ctx, "/memory", c.Nodes, z); err != nil {
				return 0, err
			}
			return growth(ctx, z.PID(), c.Rest, empty[z])
		}},
		{c.Starts, bench.Figure{Name: "cold start", Unit: "s", Better: bench.Lower, Most: c.Cold}, func(ctx context.Context, z Server) (float64, error) {
			return coldStart(ctx, z, c.Nodes)
		}},
		{1, bench.Figure{Name: "restarted", Unit: "MB", Better: bench.Lower}, func(ctx context.Context, z Server) (float64, error) {
			return growth(ctx, z.PID(), c.Rest, empty[z])
		}},
	} {
		pass := func(z Server) bench.Pass {
			if z == nil {
				return nil
			}
			return func(ctx context.Context) ([]float64, error) {
				v, err := part.measure(ctx, z)
				return []float64{v}, err
			}
		}
		err := r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("zk-memory/nodes=%d", c.Nodes), Baseline: apache, Rounds: part.rounds,
			Figures: []bench.Figure{part.figure}, Ours: pass(ours), Peer: pass(peer),
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
func coldStart(ctx context.Context, z Server, n int) (float64, error) {
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
