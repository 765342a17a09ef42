package modelserver

import (
	"context"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/go-faster/city"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	shadowQueue   = 64   // copies that wait for the candidate; more are dropped and counted
	shadowRows    = 4096 // of one copy; larger requests are not copied
	shadowWorkers = 2
	shadowTimeout = 5 * time.Second // of one copy
)

// canaries send a share of the requests of a model to its canary's candidate: to be answered, or a
// copy of them once they are answered, which nobody waits for.
type canaries struct {
	candidate func(*apis.ModelSpec) (*publish.CanaryDeclared, *entry.Model)
	score     func(context.Context, []*entry.Model, entry.Input, *entry.Recorder) (*entry.Model, [][]float32, error)
	queue     chan shadow
	requests  *prometheus.CounterVec   // outcome
	seconds   *prometheus.HistogramVec // version
}

// shadow is a copy of a request that was answered.
type shadow struct {
	model *entry.Model
	input func(*entry.Model) (entry.Input, error)
	rec   *entry.Recorder
}

func newCanaries(reg prometheus.Registerer, candidate func(*apis.ModelSpec) (*publish.CanaryDeclared, *entry.Model),
	score func(context.Context, []*entry.Model, entry.Input, *entry.Recorder) (*entry.Model, [][]float32, error)) *canaries {
	return &canaries{
		candidate: candidate, score: score, queue: make(chan shadow, shadowQueue),
		requests: prom.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_canary_total",
			Help: "Requests of a canary's share, by outcome: answered by the candidate, shadowed by it, dropped because copies waited, failed, or absent: the candidate was not AVAILABLE.",
		}, []string{"outcome"})),
		seconds: prom.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monolith_modelserver_canary_seconds", Help: "Time to score a request of a model with a canary, by version: stable or candidate.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)}, []string{"version"})),
	}
}

// answer has a request of the candidate's share answered by it, and by stable where it fails; of a
// canary in shadow the candidate gets a copy of what stable has answered and recorded. Nobody is sent
// to a candidate that is not AVAILABLE.
func (c *canaries) answer(ctx context.Context, id string, spec *apis.ModelSpec, input func(*entry.Model) (entry.Input, error), rec *entry.Recorder,
	stable func() (*entry.Model, [][]float32, error)) (*entry.Model, [][]float32, error) {
	canary, m := c.candidate(spec)
	if canary == nil {
		return stable()
	}
	shares := inShare(id, canary)
	if shares && m == nil {
		c.requests.WithLabelValues("absent").Inc()
	}
	if shares && m != nil && canary.GetMode() == publish.CanaryDeclared_ANSWER {
		began := time.Now()
		if in, err := input(m); err == nil {
			_, scores, err := c.score(ctx, []*entry.Model{m}, in, rec)
			if err == nil {
				c.requests.WithLabelValues("answered").Inc()
				c.seconds.WithLabelValues("candidate").Observe(time.Since(began).Seconds())
				return m, scores, nil
			}
			if ctx.Err() != nil {
				return m, nil, err
			}
		}
		c.requests.WithLabelValues("failed").Inc()
	}
	began := time.Now()
	by, scores, err := stable()
	if err != nil {
		return by, scores, err
	}
	c.seconds.WithLabelValues("stable").Observe(time.Since(began).Seconds())
	if shares && m != nil && rec != nil && canary.GetMode() == publish.CanaryDeclared_SHADOW {
		c.copy(shadow{m, input, rec}, len(scores[0]))
	}
	return by, scores, nil
}

// copy queues a copy, or drops it.
func (c *canaries) copy(s shadow, rows int) {
	if rows <= shadowRows {
		select {
		case c.queue <- s:
			return
		default:
		}
	}
	c.requests.WithLabelValues("dropped").Inc()
}

// run scores copies until ctx ends; those that wait then are dropped.
func (c *canaries) run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	for range shadowWorkers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case s := <-c.queue:
					c.requests.WithLabelValues(c.shadow(ctx, s)).Inc()
				}
			}
		})
	}
}

// shadow scores a copy and returns what became of it.
func (c *canaries) shadow(ctx context.Context, s shadow) (outcome string) {
	ctx, cancel := context.WithTimeout(ctx, shadowTimeout)
	defer cancel()
	in, err := s.input(s.model)
	if err != nil {
		return "failed"
	}
	began := time.Now()
	if _, _, err := c.score(ctx, []*entry.Model{s.model}, in, s.rec.Shadow()); err != nil {
		return "failed"
	}
	c.seconds.WithLabelValues("candidate").Observe(time.Since(began).Seconds())
	return "shadowed"
}

// inShare says whether a request is of the candidate's share: one by its id always or never, whichever
// server it comes to, and one without an id by chance.
func inShare(id string, c *publish.CanaryDeclared) bool {
	if id == "" {
		return mathrand.Float64() < c.GetShare()
	}
	h := city.Hash64(fmt.Appendf(nil, "%d %s", c.GetCandidate(), id))
	return float64(h) < c.GetShare()*math.MaxUint64
}
