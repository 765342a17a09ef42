package trainer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// engine is what follows from the model's spec and the configuration; it is shared and never
// changes.
type engine struct {
	*runtime.Engine
	index  map[string]int   // variable by name
	latest func() time.Time // that a record may be dated; nil: any time
	input  input.Options
}

func newEngine(spec *model.ModelSpec, shards, batch int) (*engine, error) {
	if err := modelspec.Trainable(spec); err != nil {
		return nil, err
	}
	if ids := batch * len(spec.GetFeatures()); ids > rowwire.MaxIDs {
		return nil, fmt.Errorf("a batch of %d records with %d features has more than %d ids: lower --batch", batch, len(spec.GetFeatures()), rowwire.MaxIDs)
	}
	if bytes := modelspec.StepBytes(spec, batch); bytes > modelspec.MaxStepBytes {
		return nil, fmt.Errorf("a step of %d records takes up to %d bytes, %d are sent at once: lower --batch", batch, bytes, modelspec.MaxStepBytes)
	}
	r, err := runtime.New(spec, shards, max(batch, maxBatch)) // a record may hold several samples
	if err != nil {
		return nil, err
	}
	e := &engine{Engine: r, index: map[string]int{}}
	for i, v := range e.Variables() {
		e.index[v.Name] = i
	}
	return e, nil
}

// step is the work on one batch. Its memory is used again for the next one.
type step struct {
	e      *engine
	batch  *runtime.Batch
	lane   *runtime.Lane
	bad    []rejected
	fitted int   // of the records, those before the one that was too much
	newest int64 // unix seconds of the newest record learnt
	trace  string
	input  *input.Decoder
	shards []part
}

// part is what a step sends one shard, and what that answers.
type part struct {
	lookup rowwire.LookupRequest
	answer rowwire.LookupResponse
	rows   [][]float32 // by table of lookup: where the answer goes
	apply  rowwire.ApplyRequest
}

func (e *engine) newStep() *step {
	return &step{
		e: e, batch: e.NewBatch(), lane: e.NewLane(),
		input: input.New(e.Spec(), e.input), shards: make([]part, e.Shards()),
	}
}

// rejected is a record that cannot be learnt, and why.
type rejected struct {
	record kafka.Record
	reason string
}

// samples is how many are learnt.
func (s *step) samples() int { return s.batch.Len() }

// load reads the records and finds the rows that they read.
func (s *step) load(recs []kafka.Record) error {
	s.batch.Reset()
	s.bad, s.fitted, s.newest, s.trace = s.bad[:0], 0, 0, ""
	latest := time.Unix(math.MaxUint32, 0)
	if s.e.latest != nil {
		latest = s.e.latest()
	}
	for i, r := range recs {
		if tp := r.Headers["traceparent"]; s.trace == "" && sampled(tp) {
			s.trace = tp
		}
		// Rows expire by the time of records, so one that lies about it must not be learnt.
		if r.Time.After(latest) {
			s.bad = append(s.bad, rejected{r, fmt.Sprintf("the record is dated %s, later than %s, the latest that is taken: correct its producer's clock and send it again, or start the trainers with a greater --record-ahead",
				r.Time.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))})
			continue
		}
		switch err := s.input.Into(s.batch, r.Value); {
		case errors.Is(err, runtime.ErrFull):
			s.fitted = i
			return fmt.Errorf("record %d: %w: %w", r.Offset, errTooLarge, err)
		case err != nil:
			s.bad = append(s.bad, rejected{r, err.Error()})
			continue
		}
		s.newest = max(s.newest, r.Time.Unix())
	}
	if err := s.batch.Seal(); err != nil {
		if errors.Is(err, runtime.ErrFull) {
			return fmt.Errorf("%w: %w", errTooLarge, err)
		}
		return err
	}
	return s.fits()
}

// fits is an errTooLarge unless every shard can be asked for its rows, and told their gradients, at
// once.
func (s *step) fits() error {
	dense := 0
	for _, v := range s.e.Variables() {
		dense += 4 * v.Size
	}
	for shard := range s.e.Shards() {
		ids, bytes := 0, dense
		for _, b := range s.batch.Blocks(shard) {
			ids += len(b.IDs)
			bytes += len(b.IDs) * (8 + 4*b.Dim)
		}
		if ids > rowwire.MaxIDs || bytes > modelspec.MaxStepBytes {
			return fmt.Errorf("%w: its %d samples read %d rows of shard %d, and %d bytes would be sent: %d and %d are", errTooLarge, s.samples(), ids, shard, bytes, rowwire.MaxIDs, modelspec.MaxStepBytes)
		}
	}
	return nil
}

// asks is the lookup of what the batch reads of a shard; ok is false where that is nothing.
func (s *step) asks(shard int, r rowwire.LookupRequest) (p *part, ok bool) {
	p = &s.shards[shard]
	r.Tables, p.rows = p.lookup.Tables[:0], p.rows[:0]
	for _, b := range s.batch.Blocks(shard) {
		r.Tables, p.rows = append(r.Tables, rowwire.TableIDs{Table: b.Table, IDs: b.IDs}), append(p.rows, b.Rows)
	}
	p.lookup = r
	return p, len(r.Tables) > 0
}

// tells is the apply of a shard's share of the gradients; without samples there is none.
func (s *step) tells(shard int, r rowwire.ApplyRequest) *rowwire.ApplyRequest {
	p := &s.shards[shard]
	r.Tables, r.Dense = p.apply.Tables[:0], p.apply.Dense[:0]
	if s.samples() > 0 {
		for _, b := range s.batch.Blocks(shard) {
			r.Tables = append(r.Tables, rowwire.TableGrads{Table: b.Table, IDs: b.IDs, Grads: b.Grads})
		}
		for i, v := range s.e.Variables() {
			if modelspec.VariableShard(i, s.e.Shards()) == shard {
				r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: s.batch.Dense[i]})
			}
		}
	}
	p.apply = r
	return &p.apply
}

// sampled says whether a W3C traceparent asks for spans.
func sampled(traceparent string) bool {
	n := len(traceparent)
	return n >= 55 && (traceparent[n-1]-'0')&1 == 1
}
