package chief

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/hold"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/step"
	"github.com/monolith-go/monolith/services/trainer/warm"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

// Author is the source of the chief's facts.
const Author = "trainer"

// Names of what the chief reports to its trainer's health state.
const (
	HealthStart      = "start of the job"
	HealthChief      = "chief of the job"
	HealthTopic      = "topic"
	HealthCheckpoint = "checkpoint"
	HealthController = "controller"
)

// Settings are those of the trainer's configuration that a chief goes by.
type Settings struct {
	Name              string // of the trainer
	Job, Model, Topic string
	Group             string // that Kafka's tools find the job's offsets under; empty: none
	Lease             string // of the job's chief
	Dir               string // the job's folder

	NumShards, ExportEvery, Keep                      int
	Deterministic, StopAtEnd                          bool
	LeaseTTL, CheckpointEvery, ActionEvery, KeepEvery time.Duration
	CheckpointSteps                                   int64 // between two checkpoints; 0: they go by the clock

	LookAtTopicEvery time.Duration
	Restore          warm.Config
	Controller       string // host:port; empty: not served
	ControllerTLS    *tls.Config
}

// Trainer is a trainer that leads its job, or waits to. The job, its model and its shards are the
// trainer's own; a chief reads them alone.
type Trainer struct {
	Settings
	Env    services.Env
	Log    *slog.Logger
	Source source.Source
	// Answered is where an export's warm-up requests are read; nil: it takes none along.
	Answered *warmup.Source

	Catalog  *follow.Follower[models.State]
	Plan     *follow.Follower[plan.State]
	Fleet    *follow.Follower[fleet.State]
	Lineage  *follow.Follower[lineage.State]
	Requests *follow.Follower[requests.State]
	Shards   *shards.Set

	// Engine is nil before a declaration of the model is there that can be learnt, at which the
	// channel of Preparing is closed.
	Engine    func() *step.Engine
	Preparing func() <-chan struct{}
	// Started is what the job is started as, but for what belongs to its topic. Differs says why a job
	// that runs is another one, and Endless why it has no end where this trainer is to stop at one.
	Started          func() *training.JobStarted
	Differs, Endless func(*training.JobStarted) error
	Takes            func(*container.Container) bool // whether it is one of the job's trainers

	Saved, Failed prometheus.Counter // checkpoints

	parked uint64 // last request parked

	sweeping sync.Mutex // held while old checkpoints are deleted, and while one is to be kept or returned to
}

// Lead is the job's chief while this trainer holds the chief's lease, again and again until
// ctx ends or the job is stopped.
func (s *Trainer) Lead(ctx context.Context) error {
	return bus.Lead(ctx, bus.Leadership{
		Leases: s.Env.Bus.Leases(), Lease: s.Lease, Holder: s.Name, TTL: s.LeaseTTL,
		Log: s.Log, Health: s.Env.Health, Problem: HealthChief,
	}, func(ctx context.Context, term bus.Term) error {
		s.Log.Info("chief of the job", "epoch", term.Epoch)
		return s.Term(term.Epoch).run(ctx, term)
	})
}

// Term is this trainer as the chief under one lease, of which it does nothing by itself.
func (s *Trainer) Term(epoch uint64) *Chief {
	return &Chief{Trainer: s, epoch: epoch, Asked: make(chan Order), failing: retry.New(PauseAfterError, longestPause)}
}

// job is the job as the log has it.
func (s *Trainer) job() (j lineage.Job) {
	s.Lineage.Read(func(st lineage.State) { j = st.Jobs[s.Job] })
	return j
}

// hold is what pauses the job and has it go on.
func (c *Chief) hold() *hold.Job {
	s := c.Trainer
	return &hold.Job{
		Name: s.Job, Lineage: s.Lineage, Fleet: s.Fleet, Requests: s.Requests, Shards: s.Shards, Log: s.Log,
		Takes: s.Takes, Append: c.append,
	}
}
