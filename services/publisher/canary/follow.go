package canary

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/retry"
)

// maxSamples is the most samples of one record that is looked at.
const maxSamples = 1024

// Source is where predictions and ratings are read.
type Source struct {
	Brokers              []string
	Access               *kafka.Access
	Ratings, Predictions string // topics
	Format               input.Format
}

// Begin are the offsets at which both topics end now.
func (s Source) Begin(ctx context.Context) (ratings, predictions map[int32]int64, err error) {
	if _, ratings, err = s.Access.Bounds(ctx, s.Brokers, s.Ratings); err != nil {
		return nil, nil, err
	}
	_, predictions, err = s.Access.Bounds(ctx, s.Brokers, s.Predictions)
	return ratings, predictions, err
}

// Measure counts for a canary what comes on the topics from its declaration on. What it knows follows
// from the topics, so after a restart another one comes to the same.
type Measure struct {
	source Source
	of     *publish.CanaryDeclared
	spec   *model.ModelSpec
	log    *slog.Logger
	poke   func() // once there is enough, every so often

	mu    sync.Mutex // guards tally, problem and poked
	tally *Tally
	// problem keeps it from counting; nil: nothing does.
	problem error
	poked   time.Time
}

// Status is the answer of publisher.canary.
type Status struct {
	Declared    events.JSON[*publish.CanaryDeclared] `json:"declared"`
	DeclaredSeq uint64                               `json:"declared_seq"`
	Decided     events.JSON[*publish.CanaryDecided]  `json:"decided"`
	Stable      events.JSON[*publish.Figures]        `json:"stable"`
	Candidate   events.JSON[*publish.Figures]        `json:"candidate"`
	Problem     string                               `json:"problem,omitempty"` // why nothing is counted
}

// pokeEvery is the least time between two pokes.
const pokeEvery = time.Second

// NewMeasure measures nothing before Run. poke is called, from Run, when there may be something to decide.
func NewMeasure(s Source, of *publish.CanaryDeclared, spec *model.ModelSpec, log *slog.Logger, poke func()) *Measure {
	return &Measure{source: s, of: of, spec: spec, log: log, poke: poke, tally: NewTally(of)}
}

// Run reads until ctx ends. What it cannot read, it reads again from the declaration on.
func (m *Measure) Run(ctx context.Context) {
	pause := retry.New(time.Second, 30*time.Second)
	for {
		err := m.read(ctx)
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("a canary is not measured; it is tried again", "model", m.of.GetModelName(), "candidate", m.of.GetCandidate(), "err", err)
		m.mu.Lock()
		m.problem, m.tally = err, NewTally(m.of)
		m.mu.Unlock()
		if pause.Wait(ctx) != nil {
			return
		}
	}
}

// read follows every partition that the declaration names until one of them fails.
func (m *Measure) read(ctx context.Context) error {
	engine, err := runtime.New(m.spec, 1, maxSamples)
	if err != nil {
		return fmt.Errorf("the model's spec: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for p, from := range m.of.GetRatings() {
		g.Go(func() error {
			d, batch := input.New(m.spec, input.Options{Format: m.source.Format, Measure: true}), engine.NewBatch()
			return m.partition(ctx, m.source.Ratings, p, from, func(r kafka.Record) { m.rating(d, batch, r) })
		})
	}
	for p, from := range m.of.GetPredictions() {
		g.Go(func() error { return m.partition(ctx, m.source.Predictions, p, from, m.impression) })
	}
	return g.Wait()
}

// partition hands over records from an offset on until ctx ends.
func (m *Measure) partition(ctx context.Context, topic string, p int32, from int64, take func(kafka.Record)) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: m.source.Brokers, Access: m.source.Access, Topic: topic, Partition: p, Log: m.log})
	defer r.Close()
	for {
		recs, next, err := r.Fetch(ctx, from)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			take(rec)
		}
		from = next
		m.ready()
	}
}

// rating counts a record that names the answer it is about. One that cannot be read is the trainer's to
// park.
func (m *Measure) rating(d *input.Decoder, batch *runtime.Batch, r kafka.Record) {
	k, ok := impression.KeyOf(r.Headers)
	if !ok {
		return
	}
	batch.Reset()
	if err := d.Into(batch, r.Value, input.Position{}); err != nil || batch.Len() != 1 || slices.Contains(batch.Weights(0), 0) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally.Rating(k, batch.Labels(0)[0] > 0.5)
}

func (m *Measure) impression(r kafka.Record) {
	i, err := impression.Decode(r.Value)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally.Impression(i)
}

// ready pokes when there is enough to decide.
func (m *Measure) ready() {
	m.mu.Lock()
	m.problem = nil
	due := m.tally.Enough() && time.Since(m.poked) >= pokeEvery
	if due {
		m.poked = time.Now()
	}
	m.mu.Unlock()
	if due {
		m.poke()
	}
}

// Figures are those counted so far, and what keeps it from counting.
func (m *Measure) Figures() (stable, candidate *publish.Figures, problem error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stable, candidate = m.tally.Figures()
	return stable, candidate, m.problem
}

// Judge decides the canary as of now; nil: it goes on.
func (m *Measure) Judge(now time.Time) *publish.CanaryDecided {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tally.Enough() && now.UnixMilli() < m.of.GetExpiresMs() {
		return nil // what figures would cost
	}
	stable, candidate := m.tally.Figures()
	return Judge(m.of, stable, candidate, now)
}
