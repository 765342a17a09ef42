package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/publisher"
)

// ChurnCase is one size of the churn benchmark.
type ChurnCase struct {
	Models, Replicas int
	Rounds           int
	Linear           float64       // most of what one model costs
	Within           time.Duration // in which all plans are made anew; 0: no bound
}

// ChurnCases are the sizes of a full run.
var ChurnCases = []ChurnCase{
	{Models: 10, Replicas: 100, Rounds: 3, Linear: 1, Within: time.Second},
	{Models: 100, Replicas: 100, Rounds: 3, Linear: 1, Within: time.Second},
	{Models: 1000, Replicas: 100, Rounds: 1, Linear: 1, Within: time.Second},
}

const churnBZID = "bench"

// Churn measures a publisher on a real log that plans many models on many replicas: a container on which all of
// them are is lost, and each is planned anew. Linear is what it costs for each model; the other bound is of what it
// costs to fold a fact of the log that this leaves, plans and what every replica says. Beside the same with one model.
func Churn(cases []ChurnCase) bench.Benchmark {
	return bench.Benchmark{Name: "churn", About: "models planned anew after a container is lost, and facts about their replicas folded; against one model", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		dir, err := os.MkdirTemp("", "monolith-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		export, err := churnExport(dir)
		if err != nil {
			return err
		}
		for _, c := range cases {
			err := r.Compare(ctx, bench.Comparison{
				Name: fmt.Sprintf("churn/models=%d,replicas=%d", c.Models, c.Replicas), Baseline: "one model", Rounds: c.Rounds,
				Figures: []bench.Figure{
					{Name: "all planned", Unit: "ms", Better: bench.Lower, Most: float64(c.Within.Milliseconds())},
					{Name: "each plan", Unit: "us", Better: bench.Lower, Target: c.Linear},
					{Name: "each fact folded", Unit: "us", Better: bench.Lower, Target: 1.5},
				},
				Ours: func(ctx context.Context) ([]float64, error) { return churn(ctx, export, c.Models, c.Replicas) },
				Peer: func(ctx context.Context) ([]float64, error) { return churn(ctx, export, 1, c.Replicas) },
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// churnExport writes version 1 of a model of one shard.
func churnExport(dir string) (string, error) {
	export := filepath.Join(dir, "exported_models")
	spec := modelspec.MovieRanking()
	if err := checkpoint.WriteEntry(filepath.Join(export, "entry", "1"), &checkpoint.Entry{Spec: spec, Version: 1, Job: "churn", Shards: 1}); err != nil {
		return "", err
	}
	_, err := checkpoint.WriteShard(filepath.Join(export, "ps_0", "1"), &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "churn", Checkpoint: 1, Shards: 1}})
	return export, err
}

// churn is one pass: its milliseconds until all is planned anew, and microseconds for each plan and each fact.
func churn(ctx context.Context, export string, models, replicas int) (figures []float64, err error) {
	err = withLog(ctx, func(b *jetstream.Bus, _ *nats.Conn) (err error) {
		s, err := publisher.New(publisher.Config{}, services.Env{BZID: churnBZID, Bus: b, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(run) }()
		defer func() {
			stop()
			err = errors.Join(err, <-ended)
		}()
		w := &churned{ctx: ctx, log: b.Log(), models: models, replicas: replicas}
		if err := w.fleet(); err != nil {
			return err
		}
		if err := w.loads(export); err != nil {
			return err
		}
		if err := w.planned("", 0); err != nil {
			return err
		}
		took, err := w.lose()
		if err != nil {
			return err
		}
		folded, err := w.fold()
		if err != nil {
			return err
		}
		us := func(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(n) }
		figures = []float64{us(took, 1000), us(took, models), folded}
		return nil
	})
	return figures, err
}

// churned is a log with so many models and replicas.
type churned struct {
	ctx              context.Context
	log              bus.Log
	models, replicas int
}

func (w *churned) modelName(i int) string   { return fmt.Sprint("m", i) }
func (w *churned) containerOf(i int) string { return fmt.Sprint("c", i) }

func (w *churned) append(drafts []bus.Draft) error {
	const at = 1000
	for len(drafts) > 0 {
		n := min(at, len(drafts))
		if _, err := w.log.Append(w.ctx, drafts[:n]...); err != nil {
			return err
		}
		drafts = drafts[n:]
	}
	return nil
}

// fleet has an entry, and a container for each replica and one more.
func (w *churned) fleet() error {
	up := func(id, kind string, shard int32) bus.Draft {
		return bus.Draft{Subject: events.Join(churnBZID, "container", id), Expect: bus.Any, Event: &container.Event{Body: &container.Event_Reported{
			Reported: &container.Reported{Container: &container.Container{Id: id, Kind: "serving", ServerType: kind, Shard: shard}}}}}
	}
	drafts := []bus.Draft{up("entry", "entry", -1)}
	for i := range w.replicas + 1 {
		drafts = append(drafts, up(w.containerOf(i), "ps", 0))
	}
	return w.append(drafts)
}

func (w *churned) loads(export string) error {
	var drafts []bus.Draft
	for i := range w.models {
		name := w.modelName(i)
		drafts = append(drafts, bus.Draft{Subject: model.Subject(churnBZID, name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
			Load: &model.Load{ModelName: name, ModelDir: export, Version: 1, NumShard: 1, Replicas: uint32(w.replicas)}}}}})
	}
	return w.append(drafts)
}

// errPlanned ends the reading of the log.
var errPlanned = errors.New("all is planned")

// planned reads the log behind from until every model has a plan of all replicas, none of them on the container named.
func (w *churned) planned(without string, from uint64) error {
	missing := map[string]bool{}
	for i := range w.models {
		missing[w.modelName(i)] = true
	}
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Minute)
	defer cancel()
	err := w.log.Follow(ctx, from+1, 0, func(r events.Recorded) error {
		e, _ := r.Event.(*publish.Event)
		if p := e.GetPlanned(); p != nil && len(p.GetAssignments()) == w.replicas+1 && !assigned(p, without) {
			delete(missing, p.GetModelName())
		}
		if len(missing) == 0 {
			return errPlanned
		}
		return nil
	})
	if errors.Is(err, errPlanned) {
		return nil
	}
	return fmt.Errorf("%d of %d models are not planned: %w", len(missing), w.models, err)
}

func assigned(p *publish.Planned, id string) bool {
	return slices.ContainsFunc(p.GetAssignments(), func(a *publish.Assignment) bool { return a.GetContainer() == id })
}

// lose has the container lost that every model's first replica is on.
func (w *churned) lose() (time.Duration, error) {
	lost := w.containerOf(0)
	began := time.Now()
	seqs, err := w.log.Append(w.ctx, bus.Draft{Subject: events.Join(churnBZID, "container", lost), Expect: bus.Any,
		Event: &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "benchmark"}}}})
	if err != nil {
		return 0, err
	}
	err = w.planned(lost, seqs[0])
	return time.Since(began), err
}

// fold appends that every replica is available, and returns the microseconds that a fact of the whole log takes to be
// folded.
func (w *churned) fold() (float64, error) {
	var drafts []bus.Draft
	for m := range w.models {
		for c := range w.replicas {
			key := fmt.Sprintf("%s/ps:0/%d", w.modelName(m), c)
			drafts = append(drafts, bus.Draft{Subject: replica.Subject(churnBZID, key), Expect: bus.Any, Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{
				Replica: &replica.Replica{ModelName: w.modelName(m), ServerType: "ps", Replica: int32(c), Container: w.containerOf(c + 1), GrpcAddress: "127.0.0.1:8500", Stat: replica.State_AVAILABLE, Version: 1}}}}})
		}
	}
	if err := w.append(drafts); err != nil {
		return 0, err
	}
	last, err := w.log.Last(w.ctx)
	if err != nil {
		return 0, err
	}
	view := registry.Fleet.Only(churnBZID)
	began := time.Now()
	_, err = follow.Replay(w.ctx, w.log, view, last)
	return float64(time.Since(began).Nanoseconds()) / 1e3 / float64(last), err
}
