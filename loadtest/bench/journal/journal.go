// Package journal measures the log: appends to one server and to three, replay, views built from it, and what
// many models make of it.
package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/measure"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// AppendCase is one size of the append benchmark: N events from so many callers, and
// RawN raw publishes with as many pending. Both figures are rates; the baseline, which
// pays an fsync for each event, is held to fewer where that would take long.
type AppendCase struct {
	Callers, N, RawN int
	Rounds           int
	Target           float64
}

// AppendCases are the sizes of a full run: 1x, 10x and 100x of the work. Targets are those of
// an idle machine: a lone caller pays for little but the hand-over to the committer, and many
// callers share the fsyncs of a batch. The smallest sizes are start-up more than steady state,
// and have none.
var AppendCases = []AppendCase{
	{Callers: 1, N: 100, RawN: 100, Rounds: 5},
	{Callers: 1, N: 1000, RawN: 1000, Rounds: 5, Target: 1},
	{Callers: 1, N: 10_000, RawN: 10_000, Rounds: 1, Target: 1},
	{Callers: 64, N: 200, RawN: 200, Rounds: 5},
	{Callers: 64, N: 2000, RawN: 1000, Rounds: 5, Target: 3},
	{Callers: 64, N: 20_000, RawN: 2000, Rounds: 1, Target: 3},
	{Callers: 256, N: 2000, RawN: 1000, Rounds: 5},
	{Callers: 256, N: 20_000, RawN: 2000, Rounds: 3, Target: 8},
	{Callers: 256, N: 200_000, RawN: 4000, Rounds: 1, Target: 8},
	{Callers: 1024, N: 2000, RawN: 2000, Rounds: 5},
	{Callers: 1024, N: 20_000, RawN: 2000, Rounds: 3, Target: 15},
	{Callers: 1024, N: 200_000, RawN: 4000, Rounds: 1, Target: 15},
}

// Append measures appends to the log, each caller waiting for its own ack from disk,
// against plain publishes of nats.go's asynchronous publisher of the same bytes to the
// same stream, fsync before ack in both.
func Append(cases []AppendCase) bench.Benchmark {
	return bench.Benchmark{Name: "append", About: "events appended to the log and on disk, against raw JetStream publishes", Run: func(ctx context.Context, r *bench.Runner) error {
		return withLog(ctx, func(b *jetstream.Bus, nc *nats.Conn) error { return appends(ctx, r, "append", cases, b, nc) })
	}}
}

// appends compares both ways to the same stream, case by case.
func appends(ctx context.Context, r *bench.Runner, name string, cases []AppendCase, b *jetstream.Bus, nc *nats.Conn) error {
	for _, c := range cases {
		err := r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("%s/callers=%d,n=%d", name, c.Callers, c.N), Baseline: fmt.Sprintf("raw async publish, %d pending", c.Callers),
			Figures: []bench.Figure{{Unit: "events/s", Better: bench.Higher, Target: c.Target}}, Rounds: c.Rounds, Warm: true,
			Ours: bench.PerSecond(c.N, func(ctx context.Context) error { return measure.Append(ctx, b, c.Callers, c.N) }),
			Peer: bench.PerSecond(c.RawN, func(ctx context.Context) error { return measure.RawPublish(ctx, nc, c.Callers, c.RawN) }),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ReplayCase is one size of the replay benchmark.
type ReplayCase struct {
	N, Rounds int
	Target    float64
}

// ReplayCases are the sizes of a full run.
var ReplayCases = []ReplayCase{
	{N: 10_000, Rounds: 5, Target: 0.2},
	{N: 100_000, Rounds: 3, Target: 0.2},
	{N: 1_000_000, Rounds: 1, Target: 0.2},
}

// Replay measures reading the log from its beginning with every event decoded and
// validated, against an ordered consumer of nats.go that decodes nothing.
func Replay(cases []ReplayCase) bench.Benchmark {
	return bench.Benchmark{Name: "replay", About: "the log read from its beginning and decoded, against a raw ordered consumer", Run: func(ctx context.Context, r *bench.Runner) error {
		return withLog(ctx, func(b *jetstream.Bus, nc *nats.Conn) error {
			stored := 0
			for _, c := range cases {
				if err := measure.Append(ctx, b, 1024, c.N-stored); err != nil {
					return fmt.Errorf("fill the log: %w", err)
				}
				stored = c.N
				err := r.Compare(ctx, bench.Comparison{
					Name: fmt.Sprintf("replay/n=%d", c.N), Baseline: "raw ordered consumer",
					Figures: []bench.Figure{{Unit: "events/s", Better: bench.Higher, Target: c.Target}}, Rounds: c.Rounds, Warm: c.Rounds > 1,
					Ours: bench.PerSecond(c.N, func(ctx context.Context) error {
						n := 0
						err := b.Log().Follow(ctx, 1, uint64(c.N), func(e events.Recorded) error {
							n++
							return e.Err
						})
						if err == nil && n != c.N {
							err = fmt.Errorf("%d events came back of %d", n, c.N)
						}
						return err
					}),
					Peer: bench.PerSecond(c.N, func(ctx context.Context) error { return measure.RawReplay(ctx, nc, c.N) }),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}}
}

// withLog runs a server of its own in a temporary folder around use.
func withLog(ctx context.Context, use func(*jetstream.Bus, *nats.Conn) error) (err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: s.URL(), Name: "bench"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	return use(b, nc)
}
