package journal

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/measure"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/projections/registry"
)

// RebuildCases are the sizes of a full run of the rebuild benchmark.
var RebuildCases = []int{10_000, 100_000, 1_000_000}

// Rebuild measures how fast views are folded from an archive's segments, against a raw
// ordered consumer of nats.go that decodes nothing and folds nothing.
func Rebuild(sizes []int) bench.Benchmark {
	return bench.Benchmark{Name: "rebuild", About: "views folded from archived segments, against a raw ordered consumer", Run: func(ctx context.Context, r *bench.Runner) error {
		return withLog(ctx, func(b *jetstream.Bus, nc *nats.Conn) (err error) {
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
					{"catalog", rebuilt(log, registry.Catalog, n)},
					{"fleet", rebuilt(log, registry.Fleet, n)},
					{"znode", rebuilt(log, registry.Znode, n)},
				} {
					c := bench.Comparison{
						Name: fmt.Sprintf("rebuild/n=%d %s", n, v.name), Baseline: "raw ordered consumer", Warm: true,
						Figures: []bench.Figure{{Unit: "events/s", Better: bench.Higher, Target: 1}, {Name: "CPU", Unit: "ns/event", Better: bench.Lower}},
						Ours:    rateAndCPU(n, v.fold),
						Peer:    rateAndCPU(n, func(ctx context.Context) error { return measure.RawReplay(ctx, nc, n) }),
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

// rateAndCPU is [bench.PerSecond], and the nanoseconds of CPU time that this process takes for each:
// of a raw consumer, its server's here too.
func rateAndCPU(n int, work func(context.Context) error) bench.Pass {
	return func(ctx context.Context) ([]float64, error) {
		before, err := bench.CPUTime(os.Getpid())
		if err != nil {
			return nil, err
		}
		got, err := bench.PerSecond(n, work)(ctx)
		if err != nil {
			return nil, err
		}
		after, err := bench.CPUTime(os.Getpid())
		return append(got, float64(after-before)/float64(n)), err
	}
}

func rebuilt[S any](log bus.Log, v follow.View[S], n int) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := follow.Replay(ctx, log, v, uint64(n))
		return err
	}
}

// storyOf fills the log from event `from` on up to n as a busy day does: for each load
// five changes of replicas, ten reports of resources, and twenty writes to the ZooKeeper
// tree. In its first rounds containers and replicas come up and nodes are made, so that
// everything later is about something that is there.
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

// A round of the story, and the rounds in which things come up: containers and replicas
// come by again every 25, nodes are made a thousand times.
const (
	storyRound  = 36
	storyArrive = 25 * storyRound
	storyMake   = 1000 * storyRound
)

func storyEvent(i int) bus.Draft {
	const bzid = "bench"
	name, host := fmt.Sprint("m", i%50), fmt.Sprint("c", i%100)
	switch k := i % storyRound; {
	case k == 0:
		return bus.Draft{Subject: model.Subject(bzid, name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
			Load: &model.Load{ModelName: name, ModelDir: fmt.Sprintf("/models/%s/%d", name, i), Version: int64(i + 1), NumShard: 2, Replicas: 2}}}}}
	case k <= 5:
		e := &replica.Event{}
		if i < storyArrive {
			r := &replica.Replica{ModelName: name, ServerType: "ps", Task: int32(k), Container: host, GrpcAddress: "127.0.0.1:8500", Stat: replica.State_AVAILABLE, Version: 1}
			e.Body = &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}
		} else {
			stat := []replica.State{replica.State_LOADING, replica.State_AVAILABLE}[(i/storyArrive+1)%2]
			e.Body = &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: stat, Version: int64(i)}}
		}
		return bus.Draft{Subject: replica.Subject(bzid, fmt.Sprintf("%s/ps:%d/0", name, k)), Expect: bus.Any, Event: e}
	case k <= 15:
		e := &container.Event{}
		if i < storyArrive {
			e.Body = &container.Event_Reported{Reported: &container.Reported{Container: &container.Container{
				Id: host, Kind: "serving", Shard: int32(i % 100), Cluster: "main", Idc: "dc", GrpcAddress: "127.0.0.1:8500", AgentAddress: "127.0.0.1:8400"}}}
		} else {
			e.Body = &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: int64(i), Cpu: 0.5, Network: 1, WorkLoad: 2}}
		}
		return bus.Draft{Subject: container.Subject(bzid, host), Expect: bus.Any, Event: e}
	}
	op := &znode.Op{}
	if i < storyMake {
		op.Op = &znode.Op_Create{Create: &znode.Create{Path: fmt.Sprint("/n", i), Data: make([]byte, 100), Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}
	} else {
		made := i/storyRound*7919%1000*storyRound + i%storyRound // one of those, in no order
		op.Op = &znode.Op_SetData{SetData: &znode.SetData{Path: fmt.Sprint("/n", made), Data: make([]byte, 100), Version: -1}}
	}
	return bus.Draft{Subject: znode.Subject(bzid), Expect: bus.Any, Binary: true,
		Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{op}}}}}
}
