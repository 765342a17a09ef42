package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/loadtest/peers"
	"github.com/monolith-go/monolith/loadtest/zkload"
)

// ZooKeeper is a server of ZooKeeper's protocol whose process can be measured.
type ZooKeeper interface {
	Addr() string
	PID() int    // of the process that serves; this one's when it serves here
	Stop() error // orderly; the data stay
	// Start goes on with the data, and returns how long it took until clients were answered.
	Start(ctx context.Context) (time.Duration, error)
	Close() error
}

// StartZooKeeper makes ours with its data below dir: in a process of its own, or, for a
// profile, in this one.
type StartZooKeeper func(ctx context.Context, dir string, here bool) (ZooKeeper, error)

const (
	zkPeer    = "Apache ZooKeeper"
	zkClients = 128
	zkWindow  = 8 // requests that each client keeps under way
	zkData    = 100
)

var zkPayload = bytes.Repeat([]byte("x"), zkData)

// ZKCase is one size: N requests, and how the ratio to the peer must be; 0: no target.
type ZKCase struct {
	N, Rounds int
	Rate      float64 // at least
	CPU       float64 // at most
}

// ZKWriteCases, ZKGetCases are the sizes of a full run. The smallest are start-up more
// than steady state.
var (
	ZKWriteCases = []ZKCase{{N: 2_000, Rounds: 5}, {N: 20_000, Rounds: 5, Rate: 3}, {N: 200_000, Rounds: 1, Rate: 3}}
	ZKGetCases   = []ZKCase{{N: 20_000, Rounds: 5}, {N: 200_000, Rounds: 5, CPU: 0.2}, {N: 2_000_000, Rounds: 1, CPU: 0.2}}
)

// ZKCreate measures creates, each answered once it is on disk.
func ZKCreate(start StartZooKeeper, cases []ZKCase) Benchmark {
	return Benchmark{Name: "zk-create", About: "znodes of 100 B created and on disk, 128 clients, pipelined; against Apache ZooKeeper", Run: func(ctx context.Context, r *Runner) error {
		pass := 0
		return withZooKeepers(ctx, r, start, func(ours, peer ZooKeeper) error {
			return zkCompare(ctx, r, "zk-create", "create", cases, ours, peer, func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error) {
				pass++
				parent := fmt.Sprintf("/create%d", pass)
				if _, err := c.Run(ctx, 1, 1, zkload.Make(parent, nil)); err != nil {
					return nil, err
				}
				return func(n int) (time.Duration, error) { return c.Run(ctx, n, zkWindow, zkload.Create(parent, zkPayload)) }, nil
			})
		})
	}}
}

// ZKSet measures writes to nodes that are there, each answered once it is on disk.
func ZKSet(start StartZooKeeper, cases []ZKCase) Benchmark {
	const nodes = 1000
	return Benchmark{Name: "zk-set", About: "100 B written to one of 1,000 znodes and on disk, 128 clients, pipelined; against Apache ZooKeeper", Run: func(ctx context.Context, r *Runner) error {
		return withZooKeepers(ctx, r, start, func(ours, peer ZooKeeper) error {
			if err := zkFill(ctx, "/set", nodes, ours, peer); err != nil {
				return err
			}
			return zkCompare(ctx, r, "zk-set", "set", cases, ours, peer, func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error) {
				return func(n int) (time.Duration, error) {
					return c.Run(ctx, n, zkWindow, zkload.Set("/set", nodes, zkPayload))
				}, nil
			})
		})
	}}
}

// ZKGet measures reads, by what they cost the server.
func ZKGet(start StartZooKeeper, cases []ZKCase) Benchmark {
	const nodes = 10_000
	return Benchmark{Name: "zk-get", About: "one of 10,000 znodes of 100 B read, 128 clients, pipelined; against Apache ZooKeeper", Run: func(ctx context.Context, r *Runner) error {
		return withZooKeepers(ctx, r, start, func(ours, peer ZooKeeper) error {
			if err := zkFill(ctx, "/get", nodes, ours, peer); err != nil {
				return err
			}
			return zkCompare(ctx, r, "zk-get", "get", cases, ours, peer, func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error) {
				return func(n int) (time.Duration, error) { return c.Run(ctx, n, zkWindow, zkload.Get("/get", nodes)) }, nil
			})
		})
	}}
}

// zkCompare has both servers do each case's requests: rate, and the server's CPU time.
func zkCompare(ctx context.Context, r *Runner, name, what string, cases []ZKCase, ours, peer ZooKeeper,
	work func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error)) error {
	pass := func(z ZooKeeper, n int) Pass {
		if z == nil {
			return nil
		}
		return func(ctx context.Context) (_ []float64, err error) {
			c, err := zkload.Dial(ctx, z.Addr(), zkClients)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			do, err := work(ctx, c)
			if err != nil {
				return nil, err
			}
			before, err := cpuTime(z.PID())
			if err != nil {
				return nil, err
			}
			took, err := do(n)
			if err != nil {
				return nil, err
			}
			after, err := cpuTime(z.PID())
			if err != nil {
				return nil, err
			}
			return []float64{float64(n) / took.Seconds(), (after - before).Seconds() * 1e6 / float64(n)}, nil
		}
	}
	for _, c := range cases {
		err := r.Compare(ctx, Comparison{
			Name: fmt.Sprintf("%s/n=%d", name, c.N), Baseline: zkPeer, Rounds: c.Rounds, Warm: true,
			Figures: []Figure{
				{Name: "rate", Unit: what + "s/s", Better: Higher, Target: c.Rate},
				{Name: "server CPU", Unit: "us/" + what, Better: Lower, Target: c.CPU},
			},
			Ours: pass(ours, c.N), Peer: pass(peer, c.N),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// zkFill makes n nodes below parent at both servers.
func zkFill(ctx context.Context, parent string, n int, servers ...ZooKeeper) error {
	for _, z := range servers {
		if z == nil {
			continue
		}
		c, err := zkload.Dial(ctx, z.Addr(), zkClients)
		if err != nil {
			return err
		}
		_, err = c.Run(ctx, 1, 1, zkload.Make(parent, nil))
		if err == nil {
			_, err = c.Run(ctx, n, zkWindow, zkload.Create(parent, zkPayload))
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// withZooKeepers runs both servers on the same disk; peer is nil where Apache's is not
// installed, or not wanted.
func withZooKeepers(ctx context.Context, r *Runner, start StartZooKeeper, work func(ours, peer ZooKeeper) error) (err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-zk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, d := range []string{"ours", "peer"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	ours, err := start(ctx, filepath.Join(dir, "ours"), r.OursOnly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	if r.OursOnly {
		return work(ours, nil)
	}
	peer, err := peers.StartZooKeeper(ctx, filepath.Join(dir, "peer"))
	if errors.Is(err, peers.ErrMissing) {
		r.say("  %v", err)
		return work(ours, nil)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	return work(ours, peer)
}
