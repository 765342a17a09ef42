package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/archive"
	"github.com/monolith-go/monolith/projections/follow"
	"github.com/monolith-go/monolith/projections/views"
)

// AppendCase is one size of the append benchmark: N events from so many callers, and
// RawN raw publishes with as many pending. Both figures are rates; the baseline, which
// pays an fsync for each event, is held to fewer where that would take long.
type AppendCase struct {
	Callers, N, RawN int
	Rounds           int
	Target           float64
}

// AppendCases are the sizes of a full run: 1x, 10x and 100x of the work. Targets are
// floors that a regression would break: a lone caller pays for little but the hand-over
// to the committer, and many callers share the fsyncs of a batch. The smallest sizes are
// start-up more than steady state, and have none.
var AppendCases = []AppendCase{
	{Callers: 1, N: 100, RawN: 100, Rounds: 5},
	{Callers: 1, N: 1000, RawN: 1000, Rounds: 5, Target: 0.8},
	{Callers: 1, N: 10_000, RawN: 10_000, Rounds: 1, Target: 0.8},
	{Callers: 64, N: 200, RawN: 200, Rounds: 5},
	{Callers: 64, N: 2000, RawN: 1000, Rounds: 5, Target: 1},
	{Callers: 64, N: 20_000, RawN: 2000, Rounds: 1, Target: 1},
	{Callers: 256, N: 2000, RawN: 1000, Rounds: 5},
	{Callers: 256, N: 20_000, RawN: 2000, Rounds: 3, Target: 2},
	{Callers: 256, N: 200_000, RawN: 4000, Rounds: 1, Target: 2},
	{Callers: 1024, N: 2000, RawN: 2000, Rounds: 5},
	{Callers: 1024, N: 20_000, RawN: 2000, Rounds: 3, Target: 3},
	{Callers: 1024, N: 200_000, RawN: 4000, Rounds: 1, Target: 3},
}

// Append measures appends to the log, each caller waiting for its own ack from disk,
// against plain publishes of nats.go's asynchronous publisher of the same bytes to the
// same stream, fsync before ack in both.
func Append(cases []AppendCase) Benchmark {
	return Benchmark{Name: "append", About: "events appended to the log and on disk, against raw JetStream publishes", Run: func(ctx context.Context, r *Runner) error {
		return withLog(ctx, func(b *jetstream.Bus) error {
			for _, c := range cases {
				err := r.Compare(ctx, Comparison{
					Name: fmt.Sprintf("append/callers=%d,n=%d", c.Callers, c.N), Baseline: fmt.Sprintf("raw async publish, %d pending", c.Callers),
					Figures: []Figure{{Unit: "events/s", Better: Higher, Target: c.Target}}, Rounds: c.Rounds, Warm: true,
					Ours: rate(c.N, func(ctx context.Context) error { return jetstream.MeasureAppend(ctx, b, c.Callers, c.N) }),
					Peer: rate(c.RawN, func(ctx context.Context) error { return jetstream.MeasureRawPublish(ctx, b, c.Callers, c.RawN) }),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}}
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
func Replay(cases []ReplayCase) Benchmark {
	return Benchmark{Name: "replay", About: "the log read from its beginning and decoded, against a raw ordered consumer", Run: func(ctx context.Context, r *Runner) error {
		return withLog(ctx, func(b *jetstream.Bus) error {
			stored := 0
			for _, c := range cases {
				if err := jetstream.MeasureAppend(ctx, b, 1024, c.N-stored); err != nil {
					return fmt.Errorf("fill the log: %w", err)
				}
				stored = c.N
				err := r.Compare(ctx, Comparison{
					Name: fmt.Sprintf("replay/n=%d", c.N), Baseline: "raw ordered consumer",
					Figures: []Figure{{Unit: "events/s", Better: Higher, Target: c.Target}}, Rounds: c.Rounds, Warm: c.Rounds > 1,
					Ours: rate(c.N, func(ctx context.Context) error {
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
					Peer: rate(c.N, func(ctx context.Context) error { return jetstream.MeasureRawReplay(ctx, b, c.N) }),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}}
}

// rate makes a pass of work on n things.
func rate(n int, work func(context.Context) error) Pass {
	return func(ctx context.Context) ([]float64, error) {
		began := time.Now()
		if err := work(ctx); err != nil {
			return nil, err
		}
		return []float64{float64(n) / time.Since(began).Seconds()}, nil
	}
}

// withLog runs a server of its own in a temporary folder around use.
func withLog(ctx context.Context, use func(*jetstream.Bus) error) (err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := jetstream.StartServer(jetstream.ServerConfig{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: s.URL(), Name: "bench"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return use(b)
}

// RebuildCases are the sizes of a full run of the rebuild benchmark.
var RebuildCases = []int{10_000, 100_000, 1_000_000}

// Rebuild measures how fast views are folded from an archive's segments, against a raw
// ordered consumer of nats.go that decodes nothing and folds nothing.
func Rebuild(sizes []int) Benchmark {
	return Benchmark{Name: "rebuild", About: "views folded from archived segments, against a raw ordered consumer", Run: func(ctx context.Context, r *Runner) error {
		return withLog(ctx, func(b *jetstream.Bus) (err error) {
			dir, err := os.MkdirTemp("", "monolith-bench-")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			stored := 0
			for _, n := range sizes {
				if err := storyOf(ctx, b, stored, n); err != nil {
					return fmt.Errorf("fill the log: %w", err)
				}
				stored = n
				a, err := archive.Open(dir)
				if err != nil {
					return err
				}
				if err := a.Write(ctx, b.Log(), uint64(n), archive.WriterOptions{Events: 250_000}); err != nil {
					return err
				}
				log := a.Log(b.Log())
				for _, v := range []struct {
					name string
					fold func(context.Context) error
				}{
					{"catalog", rebuilt(log, views.Catalog, n)},
					{"fleet", rebuilt(log, views.Fleet, n)},
					{"znode", rebuilt(log, views.Znode, n)},
				} {
					c := Comparison{
						Name: fmt.Sprintf("rebuild/n=%d %s", n, v.name), Baseline: "raw ordered consumer", Warm: true,
						Figures: []Figure{{Unit: "events/s", Better: Higher, Target: 1}},
						Ours:    rate(n, v.fold),
						Peer:    rate(n, func(ctx context.Context) error { return jetstream.MeasureRawReplay(ctx, b, n) }),
					}
					if n == sizes[len(sizes)-1] {
						c.Figures[0].Least = 3e6
					}
					if err := r.Compare(ctx, c); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}}
}

func rebuilt[S any](log bus.Log, v follow.View[S], n int) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := follow.Replay(ctx, log, v, uint64(n))
		return err
	}
}

// storyOf fills the log from event `from` on up to n as a busy day does: for each load
// five changes of replicas, ten reports of resources, and twenty writes to the ZooKeeper
// tree.
func storyOf(ctx context.Context, b bus.Bus, from, n int) error {
	const at = 1000
	for ; from < n; from += at {
		var drafts []bus.Draft
		for i := from; i < min(n, from+at); i++ {
			drafts = append(drafts, storyEvent(i))
		}
		if _, err := b.Log().Append(ctx, drafts...); err != nil {
			return err
		}
	}
	return nil
}

func storyEvent(i int) bus.Draft {
	const bzid = "bench"
	name := fmt.Sprint("m", i%50)
	switch k := i % 36; {
	case k == 0:
		return bus.Draft{Subject: events.Join(bzid, "model", name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
			Load: &model.Load{ModelName: name, ModelDir: "/models/" + name, Version: int64(i + 1), NumShard: 2, Replicas: 2}}}}}
	case k <= 5:
		r := &replica.Replica{ModelName: name, ServerType: "ps", Task: int32(k), Container: fmt.Sprint("c", i%100), GrpcAddress: "127.0.0.1:8500", Stat: replica.State_AVAILABLE, Version: 1}
		return bus.Draft{Subject: events.Join(bzid, "replica", fmt.Sprintf("%s/ps:%d/0", name, k)), Expect: bus.Any, Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}}
	case k <= 15:
		return bus.Draft{Subject: events.Join(bzid, "container", fmt.Sprint("c", i%100)), Expect: bus.Any, Event: &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: int64(i), Cpu: 0.5, Network: 1, WorkLoad: 2}}}}
	}
	op := &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: fmt.Sprint("/jobs/n", i%1000), Data: make([]byte, 100), Version: -1}}}
	if i < 36*1000 {
		op = &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: fmt.Sprint("/n", i), Data: make([]byte, 100), Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
	}
	return bus.Draft{Subject: events.Join(bzid, "znode", znode.Aggregate), Expect: bus.Any, Binary: true,
		Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{op}}}}}
}
