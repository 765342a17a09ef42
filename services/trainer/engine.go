package trainer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"

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
	bands   [][]modelspec.Band // by shard
	rounded []bool             // by variable: only products of bfloat16 read it
	latest  func() time.Time   // that a record may be dated; nil: any time
	input   input.Options
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
	if err := modelspec.Spread(r.Variables(), shards); err != nil {
		return nil, err
	}
	e := &engine{Engine: r}
	if e.rounded, err = modelspec.Rounded(spec); err != nil {
		return nil, err
	}
	for i := range shards {
		e.bands = append(e.bands, modelspec.BandsOf(r.Variables(), i, shards))
	}
	return e, nil
}

// step is the work on one batch. Its memory is used again for the next one.
type step struct {
	e      *engine
	at     span
	batch  *runtime.Batch
	bad    []rejected
	fitted int    // of the records, those before the one that was too much
	newest int64  // unix seconds of the newest record learnt
	trace  string // traceparent of a record
	input  *input.Decoder
	shards []part
	unfit  error // an errTooLarge: why its records cannot be learnt in one step
	err    error // which keeps it, and what comes behind it, from being learnt

	looked  bool // what follows is set
	weights *runtime.Weights
	begin   time.Time
	span    trace.Span // nil: nobody wants one
	parent  string     // its traceparent
}

// part is what a step sends one shard, and what that answers.
type part struct {
	lookup rowwire.LookupRequest
	answer rowwire.LookupResponse
	rows   [][]float32 // by table of lookup: where the answer goes
	tables []rowwire.TableGrads
	dense  []rowwire.NamedTensor
	apply  []rowwire.ApplyRequest // of tables and dense
}

func (e *engine) newStep() *step {
	return &step{
		e: e, batch: e.NewBatch(),
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

// end forgets what was looked up, and ends the span.
func (s *step) end() {
	if s.span != nil {
		s.span.End()
	}
	s.looked, s.weights, s.span, s.parent = false, nil, nil, ""
}

// load reads the records of a span and finds the rows that they read. Where they are more than
// a step may hold, unfit says so.
func (s *step) load(of span) error {
	s.end()
	s.unfit = nil
	err := s.read(of)
	if errors.Is(err, errTooLarge) {
		s.unfit, err = err, nil
	}
	return err
}

func (s *step) read(of span) error {
	s.at = of
	s.batch.Reset()
	s.bad, s.fitted, s.newest, s.trace = s.bad[:0], 0, 0, ""
	latest := time.Unix(math.MaxUint32, 0)
	if s.e.latest != nil {
		latest = s.e.latest()
	}
	for i, r := range of.recs {
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
	for shard := range s.e.Shards() {
		ids, bytes := 0, 0
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

// train computes the gradients as shards are to get them.
func (s *step) train(lane *runtime.Lane) (runtime.Result, error) {
	res, err := s.e.Train(lane, s.batch, s.weights)
	if err != nil {
		return res, err
	}
	clip(s.batch.Dense, s.e.Spec().GetClipNorm())
	return res, s.takeable()
}

// tells is the apply of a shard's share of the gradients, in as many parts as their size
// takes; without samples there are none. The rows are in the first part.
func (s *step) tells(shard int, r rowwire.ApplyRequest) []rowwire.ApplyRequest {
	p := &s.shards[shard]
	p.tables, p.dense = p.tables[:0], p.dense[:0]
	size := 0
	if s.samples() > 0 {
		for _, b := range s.batch.Blocks(shard) {
			p.tables = append(p.tables, rowwire.TableGrads{Table: b.Table, IDs: b.IDs, Grads: b.Grads})
			size += 8*len(b.IDs) + 4*len(b.Grads)
		}
		for _, b := range s.e.bands[shard] {
			p.dense = append(p.dense, rowwire.NamedTensor{Name: b.Name, At: uint32(b.At), Values: s.batch.Dense[b.Variable][b.At : b.At+b.Size]})
		}
	}
	r.Tables = p.tables
	p.apply = p.apply[:0]
	begin := 0
	for i := range p.dense {
		n := 4 * len(p.dense[i].Values)
		if size+n > modelspec.MaxStepBytes {
			r.Dense = p.dense[begin:i]
			p.apply = append(p.apply, r)
			r.Tables, begin, size = nil, i, 0
		}
		size += n
	}
	r.Dense = p.dense[begin:]
	if p.apply = append(p.apply, r); len(p.apply) > 1 {
		for i := range p.apply {
			p.apply[i].Part, p.apply[i].Parts = uint32(i), uint32(len(p.apply))
		}
	}
	return p.apply
}

// sampled says whether a W3C traceparent asks for spans.
func sampled(traceparent string) bool {
	n := len(traceparent)
	return n >= 55 && (traceparent[n-1]-'0')&1 == 1
}
