package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// StreamConfig says which ratings go where, and how fast.
type StreamConfig struct {
	Source gen.Source
	Name   string  // of the source, in every record's headers; the same for a later start that resumes it
	Rate   float64 // ratings per second; 0: as fast as the broker takes them

	PredictAddr string        // serving port, host:port
	Model       string        // scored before the label is out
	Inputs      *Inputs       // of Model and its frozen copy; nil: user and movie
	FrozenModel func() string // nil or "": no frozen copy (yet)
	Serving     func() bool   // nil or true: Model is served; before that nothing is asked

	Writer  *kafka.Writer
	Access  *kafka.Access
	Brokers []string // to look up what became of a write whose answer was lost
	Topic   string

	// Skip tells which indices of the source are stored already; nil: none.
	Skip func(index int) bool
	// OnOutcome hears of every rating in order of index, one at a time, once it is on
	// disk. It must be quick.
	OnOutcome func(Outcome)

	Tick           time.Duration // how often the ratings due are taken together; default 5 ms
	MaxTick        int           // most ratings of one tick; default 256
	MaxInFlight    int           // most ticks between the schedule and the ack; default 64
	PredictTimeout time.Duration // default 1 s; then the tick goes on unscored
	Drain          time.Duration // how long a stopped stream finishes what it began; default 15 s
	Tracer         trace.Tracer  // default none
	Log            *slog.Logger  // default none
}

// StreamResult counts what a stream did.
type StreamResult struct {
	Taken         int64            // ratings taken from the source
	Skipped       int64            // of them stored by an earlier start
	Produced      int64            // of them on disk now
	Scored        int64            // of them scored by Model beforehand
	PredictErrors map[string]int64 // calls on Model that failed, by gRPC code
	FrozenErrors  map[string]int64 // calls on the frozen copy that failed
	Rewritten     int64            // records written again after the broker had been away
	MaxLate       time.Duration    // greatest delay of a rating behind its schedule, at its ack
	Exhausted     bool             // the source ended, not the context
}

// tick is the ratings that fell due together.
type tick struct {
	ctx       context.Context
	span      trace.Span
	out       []Outcome
	scored    chan struct{} // closed once Score is final
	frozen    chan struct{} // closed once Frozen is final
	predicted bool
}

type stream struct {
	cfg    StreamConfig
	client *Client
	past   *rating.History
	prefix string // of request ids: the name and when this start was made
	work   context.Context
	slots  chan struct{}
	calls  sync.WaitGroup // Predict calls under way
	next   map[int32]int64

	mu  sync.Mutex
	res StreamResult
}

// Stream plays the source until it ends, ctx ends, or a record cannot be stored. A tick
// whose schedule is due is taken whatever the state of earlier ones, up to MaxInFlight;
// then the schedule waits and catches up in larger ticks. Each tick is scored by one
// Predict call before any of its records is produced; ticks are produced in order. A
// call that fails is counted and its ratings are produced without a score. When ctx
// ends, what was taken is still finished and the error is nil.
func Stream(ctx context.Context, cfg StreamConfig) (StreamResult, error) {
	s, err := newStream(cfg)
	if err != nil {
		return StreamResult{}, err
	}
	defer s.client.Close()
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s.work = work
	defer stop(nil)
	expire := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(s.cfg.Drain)
		defer timer.Stop()
		select {
		case <-timer.C:
			stop(fmt.Errorf("the stream was stopped and could not finish within %v", s.cfg.Drain))
		case <-work.Done():
		}
	})
	defer expire()
	taking, cease := context.WithCancel(ctx)
	defer cease()

	due := make(chan *tick, s.cfg.MaxInFlight)
	stored := make(chan *tick, s.cfg.MaxInFlight)
	var stages sync.WaitGroup
	var produceErr error
	stages.Go(func() {
		defer close(due)
		s.schedule(taking, due)
	})
	stages.Go(func() {
		defer close(stored)
		if produceErr = s.produce(due, stored); produceErr != nil {
			cease()
			stop(produceErr)
			for t := range due { // let the schedule go
				t.span.End()
				<-s.slots
			}
		}
	})
	for t := range stored {
		<-t.frozen
		for i := range t.out {
			if s.cfg.OnOutcome != nil {
				s.cfg.OnOutcome(t.out[i])
			}
		}
		<-s.slots
	}
	stages.Wait()
	stop(nil)
	s.calls.Wait()
	return s.res, produceErr
}

func newStream(cfg StreamConfig) (*stream, error) {
	switch {
	case cfg.Source == nil || cfg.Writer == nil || cfg.Topic == "" || cfg.Name == "":
		return nil, errors.New("stream: source, writer, topic and name must be given")
	case math.IsNaN(cfg.Rate) || cfg.Rate < 0 || math.IsInf(cfg.Rate, 0):
		return nil, fmt.Errorf("stream: rate %v must be a number of ratings per second, or 0 for no limit", cfg.Rate)
	case cfg.MaxTick > MaxBatch:
		return nil, fmt.Errorf("stream: a tick of %d ratings is more than one Predict takes, %d", cfg.MaxTick, MaxBatch)
	}
	cfg.Tick = cmp.Or(max(cfg.Tick, 0), 5*time.Millisecond)
	cfg.MaxTick = cmp.Or(max(cfg.MaxTick, 0), 256)
	cfg.MaxInFlight = cmp.Or(max(cfg.MaxInFlight, 0), 64)
	cfg.PredictTimeout = cmp.Or(max(cfg.PredictTimeout, 0), time.Second)
	cfg.Drain = cmp.Or(max(cfg.Drain, 0), 15*time.Second)
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	client, err := Dial(cfg.PredictAddr)
	if err != nil {
		return nil, err
	}
	return &stream{
		cfg: cfg, client: client, past: rating.NewHistory(cfg.Source.Catalog()),
		prefix: cfg.Name + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36),
		slots:  make(chan struct{}, cfg.MaxInFlight),
		next:   map[int32]int64{},
		res:    StreamResult{PredictErrors: map[string]int64{}, FrozenErrors: map[string]int64{}},
	}, nil
}

// schedule takes ratings when they are due and starts their scoring.
func (s *stream) schedule(ctx context.Context, due chan<- *tick) {
	ticker := time.NewTicker(s.cfg.Tick)
	defer ticker.Stop()
	start := time.Now()
	sent := 0 // ratings scheduled so far, skipped ones aside
	index := 0
	for {
		if s.cfg.Rate > 0 {
			for float64(sent) > time.Since(start).Seconds()*s.cfg.Rate {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		}
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			<-s.slots
			return
		}
		t := &tick{scored: make(chan struct{}), frozen: make(chan struct{})}
		now, more := time.Now(), true
		for len(t.out) < s.cfg.MaxTick {
			when := now
			if s.cfg.Rate > 0 {
				when = start.Add(time.Duration(float64(sent) / s.cfg.Rate * float64(time.Second)))
				if when.After(now) {
					break
				}
			}
			var r rating.Rating
			if r, more = s.cfg.Source.Next(); !more {
				break
			}
			s.count(func(res *StreamResult) { res.Taken++ })
			index++
			rec := s.past.Add(r) // of one that is stored already, too: the next ones tell of it
			if s.cfg.Skip != nil && s.cfg.Skip(index-1) {
				s.count(func(res *StreamResult) { res.Skipped++ })
				continue
			}
			best := math.NaN()
			if p, known := s.cfg.Source.Best(); known {
				best = p
			}
			t.out = append(t.out, Outcome{
				Index: index - 1, Rating: r, Features: rec.Features, Best: best, Score: math.NaN(), Frozen: math.NaN(),
				Position: len(t.out), Scheduled: when, Offset: -1,
			})
			sent++
		}
		if len(t.out) > 0 {
			s.score(t)
			due <- t // has room for every slot
		} else {
			<-s.slots
		}
		if !more {
			s.count(func(res *StreamResult) { res.Exhausted = true })
			return
		}
	}
}

// score asks the serving port about t without waiting for the answers.
func (s *stream) score(t *tick) {
	t.ctx, t.span = s.cfg.Tracer.Start(s.work, "rating", trace.WithNewRoot())
	id := s.prefix + "-" + strconv.Itoa(t.out[0].Index)
	recs := make([]rating.Record, len(t.out))
	for i := range t.out {
		recs[i] = t.out[i].Record()
	}
	ask := func(model string, done chan struct{}, take func(scores []float64), errs map[string]int64) {
		s.calls.Go(func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(t.ctx, s.cfg.PredictTimeout)
			defer cancel()
			scores, err := s.client.Score(ctx, s.cfg.Inputs, model, id, recs)
			if err != nil {
				code := status.Code(err).String()
				s.count(func(*StreamResult) { errs[code]++ })
				s.cfg.Log.Debug("a tick goes on without a score", "model", model, "request", id, "err", err)
				return
			}
			take(scores)
		})
	}
	if s.cfg.Serving == nil || s.cfg.Serving() {
		ask(s.cfg.Model, t.scored, func(scores []float64) {
			t.predicted = true
			for i, v := range scores {
				t.out[i].Score, t.out[i].RequestID = v, id
			}
		}, s.res.PredictErrors)
	} else {
		close(t.scored)
	}
	frozen := ""
	if s.cfg.FrozenModel != nil {
		frozen = s.cfg.FrozenModel()
	}
	if frozen == "" {
		close(t.frozen)
		return
	}
	ask(frozen, t.frozen, func(scores []float64) {
		for i, v := range scores {
			t.out[i].Frozen = v
		}
	}, s.res.FrozenErrors)
}

func (s *stream) count(add func(*StreamResult)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.res)
}

// maxWrite bounds the ticks whose records go to the broker together.
const maxWrite = 16

// produce stores scored ticks in order; those that are ready together go together.
func (s *stream) produce(due <-chan *tick, stored chan<- *tick) error {
	var held *tick
	for {
		t := held
		if held = nil; t == nil {
			var ok bool
			if t, ok = <-due; !ok {
				return nil
			}
		}
		<-t.scored
		batch := []*tick{t}
	more:
		for len(batch) < maxWrite {
			select {
			case next, ok := <-due:
				if !ok {
					break more
				}
				select {
				case <-next.scored:
					batch = append(batch, next)
				default:
					held = next
					break more
				}
			default:
				break more
			}
		}
		if err := s.store(batch); err != nil {
			for _, t := range batch {
				t.span.End()
				<-s.slots
			}
			if held != nil {
				held.span.End()
				<-s.slots
			}
			return err
		}
		for _, t := range batch {
			t.span.End()
			stored <- t // has room for every slot
		}
	}
}

// store writes the batch and notes where its records are.
func (s *stream) store(batch []*tick) error {
	var recs []kafka.Record
	var at []*Outcome
	for _, t := range batch {
		for i := range t.out {
			o := &t.out[i]
			recs, at = append(recs, s.record(t, o)), append(at, o)
		}
	}
	recs, err := s.write(recs)
	if err != nil {
		return fmt.Errorf("stream: rating %d: %w", at[0].Index, err)
	}
	acked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range at {
		o.Acked, o.Partition, o.Offset = acked, recs[i].Partition, recs[i].Offset
		s.next[o.Partition] = max(s.next[o.Partition], o.Offset+1)
		s.res.Produced++
		s.res.MaxLate = max(s.res.MaxLate, acked.Sub(o.Scheduled))
		if o.RequestID != "" {
			s.res.Scored++
		}
	}
	return nil
}

func (s *stream) record(t *tick, o *Outcome) kafka.Record {
	h := map[string]string{
		rating.HeaderStream: s.cfg.Name,
		rating.HeaderIndex:  strconv.Itoa(o.Index),
	}
	if t.predicted {
		h[rating.HeaderRequest] = o.RequestID
		h[rating.HeaderPosition] = strconv.Itoa(o.Position)
	}
	if tp := tracectx.Of(t.ctx); tp != "" {
		h[rating.HeaderTrace] = tp
	}
	return kafka.Record{
		Topic: s.cfg.Topic, Partition: -1,
		Key:   strconv.AppendInt(nil, o.Rating.User, 10),
		Value: o.Record().AppendJSON(nil), Headers: h,
	}
}
