package step

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/input/itempool"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// Span is the offsets [from, to) of a partition and the records there, which one step learns.
type Span struct {
	Recs     []kafka.Record
	From, To int64
	When     At
	Leader   int32 // a leader epoch after which none of it was written; -1: not known
}

// At is where in a deterministic timeline a batch is learnt.
type At struct{ Turn, Generation uint64 }

// Step is the work on one batch. Its memory is used again for the next one.
type Step struct {
	Engine  *Engine
	At      Span
	Batch   *runtime.Batch
	Bad     []Rejected
	Dropped []int  // samples, by sample rule
	Fitted  int    // of the records, those before the one that was too much
	Newest  int64  // unix seconds of the newest record learnt
	Trace   string // traceparent of a record
	input   *input.Decoder
	alone   *runtime.Batch // for samples of which only the items are wanted; nil: no items are
	shards  []Part
	Unfit   error // an ErrTooLarge: why its records cannot be learnt in one step
}

// NewStep returns a step without records.
func (e *Engine) NewStep() *Step {
	s := &Step{
		Engine: e, Batch: e.NewBatch(),
		input: input.New(e.Spec(), e.Input), shards: make([]Part, e.Shards()),
		Dropped: make([]int, len(e.Spec().GetSampleRules())),
	}
	if samplerule.PoolRecords(e.Spec()) > 0 {
		s.alone = e.NewBatch()
	}
	return s
}

// Draw has negatives drawn from the pool of the step's partition.
func (s *Step) Draw(from *itempool.Pool) { s.input.Draw(from) }

// Remember puts the items of records into the pool and learns none. It asks neither how they are dated nor whether a
// batch has room, so that those behind them draw the same whenever, and with whatever else, they are read.
func (s *Step) Remember(recs []kafka.Record) {
	if s.alone == nil {
		return
	}
	for _, r := range recs {
		s.input.Remember(s.alone, r.Value, input.Position{Partition: r.Partition, Offset: r.Offset})
	}
}

// Rejected is a record that cannot be learnt, and why.
type Rejected struct {
	Record kafka.Record
	Reason string
}

// Samples is how many are learnt.
func (s *Step) Samples() int { return s.Batch.Len() }

// Lines are what the records say of their samples, if the engine's Input asks for it.
func (s *Step) Lines() []input.Line { return s.input.Lines() }

// Load reads the records of a span and finds the rows that they read. Where they are more than
// a step may hold, Unfit says so.
func (s *Step) Load(of Span) error {
	s.Unfit = nil
	err := s.read(of)
	if errors.Is(err, ErrTooLarge) {
		s.Unfit, err = err, nil
	}
	return err
}

func (s *Step) read(of Span) error {
	s.At = of
	s.Batch.Reset()
	clear(s.Dropped)
	s.Bad, s.Fitted, s.Newest, s.Trace = s.Bad[:0], 0, 0, ""
	latest := time.Unix(math.MaxUint32, 0)
	if s.Engine.Latest != nil {
		latest = s.Engine.Latest()
	}
	for i, r := range of.Recs {
		if tp := r.Headers["traceparent"]; s.Trace == "" && sampled(tp) {
			s.Trace = tp
		}
		// Rows expire by the time of records, so one that lies about it must not be learnt.
		if r.Time.After(latest) {
			s.Bad = append(s.Bad, Rejected{r, fmt.Sprintf("the record is dated %s, later than %s, the latest that is taken: correct its producer's clock and send it again, or start the trainers with a greater --record-ahead",
				r.Time.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))})
			s.Remember(of.Recs[i : i+1])
			continue
		}
		before := s.Batch.Len()
		switch err := s.input.Into(s.Batch, r.Value, input.Position{Partition: r.Partition, Offset: r.Offset}); {
		case errors.Is(err, runtime.ErrFull):
			s.Fitted = i
			s.Remember(of.Recs[i:])
			return fmt.Errorf("record %d: %w: %w", r.Offset, ErrTooLarge, err)
		case err != nil:
			s.Bad = append(s.Bad, Rejected{r, err.Error()})
			s.Remember(of.Recs[i : i+1]) // a negative of it may be to blame
			continue
		}
		for rule, n := range s.input.Dropped() {
			s.Dropped[rule] += n
		}
		if s.Batch.Len() == before {
			continue // rows do not expire by what is not learnt
		}
		s.Newest = max(s.Newest, r.Time.Unix())
	}
	if err := s.Batch.Seal(); err != nil {
		if errors.Is(err, runtime.ErrFull) {
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		return err
	}
	return s.fits()
}

// fits is an ErrTooLarge unless every shard can be asked for its rows, and told their gradients, at
// once.
func (s *Step) fits() error {
	for shard := range s.Engine.Shards() {
		ids, bytes := 0, 0
		for _, b := range s.Batch.Blocks(shard) {
			ids += len(b.IDs)
			bytes += len(b.IDs) * (8 + 4*b.Dim)
		}
		if ids > rowwire.MaxIDs || bytes > modelspec.MaxStepBytes {
			return fmt.Errorf("%w: its %d samples read %d rows of shard %d, and %d bytes would be sent: %d and %d are", ErrTooLarge, s.Samples(), ids, shard, bytes, rowwire.MaxIDs, modelspec.MaxStepBytes)
		}
	}
	return nil
}

// sampled says whether a W3C traceparent asks for spans.
func sampled(traceparent string) bool {
	n := len(traceparent)
	return n >= 55 && (traceparent[n-1]-'0')&1 == 1
}
