package canary

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

	mu    sync.Mutex // guards tally, behind, problem and poked
	tally *Tally
	// behind is how many partitions are not read yet to where they ended when reading began.
	behind int
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
	Places      []Place                              `json:"places,omitempty"`  // of the candidate, while it runs
}

// pokeEvery is the least time between two pokes.
const pokeEvery = time.Second

// overdue is how long a canary that has expired is kept for a publisher that has not yet read what there
// is, as it began late or Kafka is away.
const overdue = 10 * time.Minute

// NewMeasure measures nothing before Run. poke is called, from Run, when there may be something to decide.
func NewMeasure(s Source, of *publish.CanaryDeclared, spec *model.ModelSpec, log *slog.Logger, poke func()) *Measure {
	return &Measure{source: s, of: of, spec: spec, log: log, poke: poke, tally: NewTally(of), behind: partitions(of)}
}

func partitions(of *publish.CanaryDeclared) int {
	return len(of.GetRatings()) + len(of.GetPredictions())
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
		m.problem, m.tally, m.behind = err, NewTally(m.of), partitions(m.of)
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
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: m.source.Brokers, Access: m.source.Access, Topic: topic, Partition: p, Log: m.log, Away: m.away})
	defer r.Close()
	_, end, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	for behind := true; ; {
		if behind && from >= end {
			behind = false
			m.caughtUp()
		}
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

// away notes what keeps Kafka from answering, nil once it does.
func (m *Measure) away(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problem = err
}

// caughtUp notes that one more partition is read to where it ended.
func (m *Measure) caughtUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.behind--
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

// Judge decides the canary as of now; nil: it goes on. It expires on what there was to count: one that is
// not yet read waits, but not for ever.
func (m *Measure) Judge(now time.Time) *publish.CanaryDecided {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := time.UnixMilli(m.of.GetExpiresMs())
	if m.behind > 0 {
		end = end.Add(overdue)
	}
	if !m.tally.Enough() && now.Before(end) {
		return nil // what figures would cost
	}
	stable, candidate := m.tally.Figures()
	v := Judge(m.of, stable, candidate, now)
	if v.GetVerdict() == publish.CanaryDecided_EXPIRED && m.behind > 0 {
		v.Reason += fmt.Sprintf("; %d of %d partitions could not be read to their end", m.behind, partitions(m.of))
		if m.problem != nil {
			v.Reason += ": " + strings.ToValidUTF8(m.problem.Error(), "?")
		}
	}
	return v
}
