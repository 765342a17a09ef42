package trainer

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// view is a trainer of which only the views run, with a model to learn.
func (w *world) view(cfg Config) *Server {
	w.t.Helper()
	s, err := New(cfg, services.Env{BZID: bzid, Bus: w.b, Health: health.New()})
	if err != nil {
		w.t.Fatal(err)
	}
	pool := rowwire.NewPool(nil)
	s.shards = shards.New(s.cfg.Job, s.cfg.Shards, s.fleet, pool, nil, s.env.Health)
	if s.engine, err = step.New(trainertest.SmallSpec(), s.cfg.Shards, s.cfg.Batch); err != nil {
		w.t.Fatal(err)
	}
	s.dense = shards.NewDense(s.shards, s.engine)
	close(s.prepared)
	ctx, stop := context.WithCancel(context.Background())
	var views sync.WaitGroup
	for _, run := range []func(context.Context) error{s.catalog.Run, s.plan.Run, s.fleet.Run, s.lineage.Run, s.requests.Run} {
		views.Go(func() { _ = run(ctx) })
	}
	w.t.Cleanup(func() {
		stop()
		s.dense.Close()
		views.Wait()
		pool.Close()
	})
	for _, ready := range []<-chan struct{}{s.catalog.Ready(), s.plan.Ready(), s.fleet.Ready(), s.lineage.Ready(), s.requests.Ready()} {
		<-ready
	}
	return s
}

// busOnly is a world without a broker and without shards.
func busOnly(t *testing.T) *world {
	w := &world{t: t, b: mem.New(), dir: t.TempDir()}
	t.Cleanup(func() { w.b.Close() })
	return w
}

func (w *world) alone() Config {
	return Config{Job: theJob, Model: "movies", Name: "b", Brokers: []string{"127.0.0.1:1"}, Topic: "ratings", Shards: 1, Batch: 16, Dir: w.dir, LeaseTTL: time.Second}
}

// started has the job run as alone is configured, but for what b says.
func (w *world) started(b *training.JobStarted) {
	w.t.Helper()
	b.Job, b.ModelName, b.Topic, b.Shards = theJob, "movies", "ratings", max(b.GetShards(), 1)
	b.Partitions = max(b.GetPartitions(), 1)
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
}

func (w *world) reported(c *container.Container) {
	w.t.Helper()
	w.append(events.Join(bzid, "container", c.GetId()), &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}})
}

func (w *world) lost(id string) {
	w.t.Helper()
	w.append(events.Join(bzid, "container", id), &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "gone"}}})
}

func worker(id string) *container.Container {
	return &container.Container{Id: id, Kind: kind, Job: theJob, ServerType: serverType, Shard: -1}
}

// A trainer is counted in the quota while it is alive, a worker, and of this job.
func TestQuota(t *testing.T) {
	for name, tc := range map[string]struct {
		others []*container.Container
		gone   string
		want   int
	}{
		"alone":                 {nil, "", 7},
		"before another":        {[]*container.Container{worker("c")}, "", 4},
		"behind another":        {[]*container.Container{worker("a")}, "", 3},
		"between two":           {[]*container.Container{worker("a"), worker("c")}, "", 2},
		"the first of three":    {[]*container.Container{worker("c"), worker("d")}, "", 3},
		"more than partitions":  {[]*container.Container{worker("a"), worker("a1"), worker("a2"), worker("a3"), worker("a4"), worker("a5"), worker("a6")}, "", 0},
		"itself":                {[]*container.Container{worker("b")}, "", 7},
		"one that is gone":      {[]*container.Container{worker("a"), worker("c")}, "a", 4},
		"another kind":          {[]*container.Container{{Id: "a", Kind: "serving", Job: theJob, ServerType: serverType}}, "", 7},
		"another type":          {[]*container.Container{{Id: "a", Kind: kind, Job: theJob, ServerType: "ps"}}, "", 7},
		"another job's trainer": {[]*container.Container{{Id: "a", Kind: kind, Job: "other", ServerType: serverType}}, "", 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := busOnly(t)
			w.started(&training.JobStarted{Partitions: 7})
			for _, c := range tc.others {
				w.reported(c)
			}
			if tc.gone != "" {
				w.lost(tc.gone)
			}
			if got, _ := w.view(w.alone()).quota(); got != tc.want {
				t.Errorf("%d of 7 partitions, want %d", got, tc.want)
			}
		})
	}
}

// Partitions beside a trainer that takes none: they are left to it for a while, taken, given
// back so that it may have them after all, and taken again; all of them once it is gone.
func TestPartitionsThatAnotherTrainerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		w.started(&training.JobStarted{Partitions: 5})
		w.reported(worker("a"))
		cfg := w.alone()
		cfg.Index = 1
		s := w.view(cfg)
		log := &trainertest.Lines{}
		s.log = log.Logger()
		_, free, err := w.b.Leases().TryAcquire(t.Context(), s.lease("partition.3"), "a", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		soft, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := s.share(soft, t.Context()); err != nil {
				t.Error(err)
			}
		}()
		defer func() { stop(); <-ended }()
		check := func(what string, want ...int32) {
			t.Helper()
			synctest.Wait()
			var held []int32
			for p := range int32(5) {
				_, free, err := w.b.Leases().TryAcquire(t.Context(), s.lease("partition."+strconv.Itoa(int(p))), "probe", time.Second)
				if err != nil {
					held = append(held, p)
				} else {
					free()
				}
			}
			if !slices.Equal(held, want) {
				t.Errorf("%s: partitions %v are held, want %v", what, held, want)
			}
		}
		begin := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
		check("at the start", 1, 2, 3) // the others start elsewhere
		at(1900 * time.Millisecond)
		check("before two lease times", 1, 2, 3)
		at(3100 * time.Millisecond)
		for _, line := range log.All() {
			if strings.Contains(line, "cannot be had") {
				t.Errorf("log %q, of a lease that the other has", line)
			}
		}
		free()
		at(4100 * time.Millisecond)
		check("left by the other", 0, 1, 2, 3, 4)
		at(9900 * time.Millisecond)
		check("for a while", 0, 1, 2, 3, 4)
		at(10300 * time.Millisecond)
		check("another chance", 0, 1)
		at(13500 * time.Millisecond)
		check("left again", 0, 1, 2, 3, 4)
		w.reported(worker("a0"))
		check("a third trainer", 0)
		w.lost("a")
		w.lost("a0")
		check("alone", 0, 1, 2, 3, 4)
	})
}
