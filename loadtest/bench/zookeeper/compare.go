// Package zookeeper measures our ZooKeeper port beside Apache ZooKeeper: requests and what they
// cost the server, watches, memory.
package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
	"github.com/monolith-go/monolith/loadtest/zkload"
)

// Server is one of ZooKeeper's protocol whose process can be measured.
type Server interface {
	Addr() string
	PID() int    // of the process that serves; this one's when it serves here
	Stop() error // orderly; the data stay
	// Start goes on with the data, and returns how long it took until clients were answered.
	Start(ctx context.Context) (time.Duration, error)
	Close() error
}

// StartFunc makes ours with its data below dir: in a process of its own, or, for a
// profile, in this one.
type StartFunc func(ctx context.Context, dir string, here bool) (Server, error)

const (
	apache  = "Apache ZooKeeper"
	clients = 128
	window  = 8 // requests that each client keeps under way
	data    = 100
)

var payload = bytes.Repeat([]byte("x"), data)

// Case is one size: N requests, and how the ratio to the peer must be; 0: no target.
type Case struct {
	N, Rounds int
	Rate      float64 // at least
	CPU       float64 // at most
}

// WriteCases, GetCases are the sizes of a full run. The smallest are start-up more
// than steady state.
var (
	WriteCases = []Case{{N: 2_000, Rounds: 5}, {N: 20_000, Rounds: 5, Rate: 3}, {N: 200_000, Rounds: 1, Rate: 3}}
	GetCases   = []Case{{N: 20_000, Rounds: 5}, {N: 200_000, Rounds: 5, CPU: 0.2}, {N: 2_000_000, Rounds: 1, CPU: 0.2}}
)

// Create measures creates, each answered once it is on disk.
func Create(start StartFunc, cases []Case) bench.Benchmark {
	return bench.Benchmark{Name: "zk-create", About: "znodes of 100 B created and on disk, 128 clients, pipelined; against Apache ZooKeeper", Run: func(ctx context.Context, r *bench.Runner) error {
		pass := 0
		return withServers(ctx, r, start, func(ours, peer Server) error {
			return compare(ctx, r, "zk-create", "create", cases, ours, peer, func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error) {
				pass++
				parent := fmt.Sprintf("/create%d", pass)
				if _, err := c.Run(ctx, 1, 1, zkload.Make(parent, nil)); err != nil {
					return nil, err
				}
				return func(n int) (time.Duration, error) { return c.Run(ctx, n, window, zkload.Create(parent, payload)) }, nil
			})
		})
	}}
}

// Set measures writes to nodes that are there, each answered once it is on disk.
func Set(start StartFunc, cases []Case) bench.Benchmark {
	const nodes = 1000
	return bench.Benchmark{Name: "zk-set", About: "100 B written to one of 1,000 znodes and on disk, 128 clients, pipelined; against Apache ZooKeeper", Run: func(ctx context.Context, r *bench.Runner) error {
		return withServers(ctx, r, start, func(ours, peer Server) error {
			if err := fill(ctx, "/set", nodes, ours, peer); err != nil {
				return err
			}
			return compare(ctx, r, "zk-set", "set", cases, ours, peer, func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error) {
				return func(n int) (time.Duration, error) {
					return c.Run(ctx, n, window, zkload.Set("/set", nodes, payload))
				}, nil
			})
		})
	}}
}

// Get measures reads, by what they cost the server.
func Get(start StartFunc, cases []Case) bench.Benchmark {
	const nodes = 10_000
	return bench.Benchmark{Name: "zk-get", About: "one of 10,000 znodes of 100 B read, 128 clients, pipelined; against Apache ZooKeeper", Run: func(ctx context.Context, r *bench.Runner) error {
		return withServers(ctx, r, start, func(ours, peer Server) error {
			if err := fill(ctx, "/get", nodes, ours, peer); err != nil {
				return err
			}
			return compare(ctx, r, "zk-get", "get", cases, ours, peer, func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error) {
				return func(n int) (time.Duration, error) { return c.Run(ctx, n, window, zkload.Get("/get", nodes)) }, nil
			})
		})
	}}
}

// compare has both servers do each case's requests: rate, and the server's CPU time.
func compare(ctx context.Context, r *bench.Runner, name, what string, cases []Case, ours, peer Server,
	work func(ctx context.Context, c *zkload.Clients) (func(n int) (time.Duration, error), error)) error {
	pass := func(z Server, n int) bench.Pass {
		if z == nil {
			return nil
		}
		return func(ctx context.Context) (_ []float64, err error) {
			c, err := zkload.Dial(ctx, z.Addr(), clients)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			do, err := work(ctx, c)
			if err != nil {
				return nil, err
			}
			before, err := bench.CPUTime(z.PID())
			if err != nil {
				return nil, err
			}
			took, err := do(n)
			if err != nil {
				return nil, err
			}
			after, err := bench.CPUTime(z.PID())
			if err != nil {
				return nil, err
			}
			return []float64{float64(n) / took.Seconds(), (after - before).Seconds() * 1e6 / float64(n)}, nil
		}
	}
	for _, c := range cases {
		err := r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("%s/n=%d", name, c.N), Baseline: apache, Rounds: c.Rounds, Warm: true,
			Figures: []bench.Figure{
				{Name: "rate", Unit: what + "s/s", Better: bench.Higher, Target: c.Rate},
				{Name: "server CPU", Unit: "us/" + what, Better: bench.Lower, Target: c.CPU},
			},
			Ours: pass(ours, c.N), Peer: pass(peer, c.N),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill makes n nodes below parent at both servers.
func fill(ctx context.Context, parent string, n int, servers ...Server) error {
	for _, z := range servers {
		if z == nil {
			continue
		}
		c, err := zkload.Dial(ctx, z.Addr(), clients)
		if err != nil {
			return err
		}
		_, err = c.Run(ctx, 1, 1, zkload.Make(parent, nil))
		if err == nil {
			_, err = c.Run(ctx, n, window, zkload.Create(parent, payload))
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// withServers runs both servers on the same disk; peer is nil where Apache's is not
// installed, or not wanted.
func withServers(ctx context.Context, r *bench.Runner, start StartFunc, work func(ours, peer Server) error) (err error) {
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
		r.Say("  %v", err)
		return work(ours, nil)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	return work(ours, peer)
}
