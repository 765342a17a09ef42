package journal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// startPatience bounds how long three servers may take to find each other.
const startPatience = time.Minute

// nodes is how many servers have each event.
const nodes = 3

// ReplicatedCases are the sizes of a full run of the append-r3 benchmark.
var ReplicatedCases = []AppendCase{
	{Callers: 1, N: 1000, RawN: 1000, Rounds: 3, Target: 1},
	{Callers: 64, N: 10_000, RawN: 2000, Rounds: 3, Target: 1},
	{Callers: 256, N: 20_000, RawN: 4000, Rounds: 3, Target: 1},
	{Callers: 1024, N: 50_000, RawN: 8000, Rounds: 3, Target: 1},
}

// AppendReplicated is Append to a log that three servers have, each event on the disks of two before it
// is acked, against plain publishes to the same stream.
func AppendReplicated(cases []AppendCase) bench.Benchmark {
	return bench.Benchmark{Name: "append-r3", About: "events appended to a log of three servers, against raw publishes to the same stream", Run: func(ctx context.Context, r *bench.Runner) error {
		return withThree(ctx, func(b *jetstream.Bus, nc *nats.Conn) error { return appends(ctx, r, "append-r3", cases, b, nc) })
	}}
}

// withThree runs three servers around use, and a log that all of them have.
func withThree(ctx context.Context, use func(*jetstream.Bus, *nats.Conn) error) (err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	addrs, err := freeAddresses(nodes)
	if err != nil {
		return err
	}
	servers := make([]*natsserver.Server, nodes)
	defer func() {
		for _, s := range servers {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	var starting errgroup.Group // a server waits for the others
	for i := range servers {
		starting.Go(func() (err error) {
			name := "n" + strconv.Itoa(i)
			servers[i], err = natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, name), Name: name,
				Cluster: natsserver.Cluster{Name: "bench", Listen: addrs[i], Routes: addrs, Drain: time.Millisecond}})
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	b, err := connectReplicated(ctx, strings.Join(urls, ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	nc, err := nats.Connect(strings.Join(urls, ","))
	if err != nil {
		return err
	}
	defer nc.Close()
	return use(b, nc)
}

// connectReplicated waits until the servers have elected who makes streams.
func connectReplicated(ctx context.Context, urls string) (*jetstream.Bus, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		b, err := jetstream.Connect(ctx, jetstream.Config{URL: urls, Name: "bench", Replicas: nodes})
		if err == nil {
			return b, nil
		}
		if retry.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil, fmt.Errorf("three servers make no stream: %w", err)
		}
	}
}

// freeAddresses are n of loopback that nobody listens on.
func freeAddresses(n int) (all []string, err error) {
	for len(all) < n {
		port, err := freeport.Find()
		if err != nil {
			return nil, err
		}
		if addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port)); !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all, nil
}
