package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
)

var (
	// errGradients says that the gradients of a batch are none that a shard takes; nothing
	// was applied.
	errGradients = errors.New("the gradients cannot be applied")
	// errTooLarge says that a step takes more memory, or a message more bytes, than there may be;
	// nothing was applied.
	errTooLarge = errors.New("the step is too large")
	// errDiverged says that no record can be learnt any more, whatever it holds.
	errDiverged = errors.New("records fail one after the other, so the model is at fault rather than they")
)

// oddInARow is how many records in a row may fail by themselves before the model is to
// blame rather than they.
const oddInARow = 16

// takeable is an errGradients unless every gradient is finite and within what shards take.
func (s *step) takeable() error {
	check := func(what string, grads []float32) error {
		for _, g := range grads {
			if !(g >= -table.MaxGradient && g <= table.MaxGradient) { // written so that NaN fails
				return fmt.Errorf("%w: one of %s is %g, not finite or beyond %g", errGradients, what, g, float32(table.MaxGradient))
			}
		}
		return nil
	}
	for i, v := range s.e.Variables() {
		if err := check("variable "+v.Name, s.batch.Dense[i]); err != nil {
			return err
		}
	}
	for shard := range s.e.Shards() {
		for _, b := range s.batch.Blocks(shard) {
			if err := check("table "+b.Table, b.Grads); err != nil {
				return err
			}
		}
	}
	return nil
}

// refused says whether err is about the content of a batch: trying the same again is no
// use, a part of it may do.
func refused(err error) bool {
	return errors.Is(err, errGradients) || errors.Is(err, errTooLarge) || refusal(err) == rowwire.Invalid
}

// halving learns [from, to) in one step or, where that is refused, in halves, down to the
// records that cannot be learnt at all, which are parked.
func (l *learner) halving(soft, hard context.Context, recs []kafka.Record, from, to int64) error {
	err := l.learn(soft, hard, recs, from, to, at{})
	if !refused(err) || len(recs) == 0 {
		if err == nil && l.step.samples() > 0 {
			l.learns()
		}
		return err
	}
	if len(recs) == 1 {
		if !errors.Is(err, errTooLarge) { // which is the record's fault alone
			if err := l.tooOdd(soft, from, to, err); err != nil {
				return err
			}
		}
		if err := l.park(soft, rejected{recs[0], err.Error()}); err != nil {
			return err
		}
		l.s.m.rejected.Inc()
		return l.learn(soft, hard, nil, from, to, at{}) // its offset counts as learnt
	}
	half := len(recs) / 2
	if errors.Is(err, errTooLarge) && l.step.fitted > 0 {
		half = l.step.fitted
	}
	middle := recs[half].Offset
	if err := l.halving(soft, hard, recs[:half], from, middle); err != nil {
		return err
	}
	return l.halving(soft, hard, recs[half:], middle, to)
}

// sifted is halving for deterministic mode, where a batch is one turn whatever is left of
// it: the records that cannot be learnt by themselves are found first.
func (l *learner) sifted(soft, hard context.Context, recs []kafka.Record, from, to int64, when at) error {
	err := l.learn(soft, hard, recs, from, to, when)
	if errors.Is(err, errTooLarge) {
		return l.tooLarge(soft, hard, recs, from, to, when, err)
	}
	if !errors.Is(err, errGradients) {
		if err == nil && l.step.samples() > 0 {
			l.learns()
		}
		return err
	}
	why := err
	good, bad, err := l.sift(soft, recs, when)
	if err != nil {
		return err
	}
	if len(bad) == 0 { // each could be learnt, but not all in one turn
		return l.fails(soft, from, to, why)
	}
	if len(good) == 0 && l.odd+len(bad) >= oddInARow { // none is parked: the turn is to be learnt whole
		return l.fails(soft, from, to, why)
	}
	l.odd += len(bad)
	for _, r := range bad {
		if err := l.park(soft, r); err != nil {
			return err
		}
		l.s.m.rejected.Inc()
	}
	if err = l.learn(soft, hard, good, from, to, when); errors.Is(err, errGradients) {
		return l.fails(soft, from, to, err)
	}
	if err == nil && len(good) > 0 {
		l.learns()
	}
	return err
}

// tooLarge parks the records that are too large by themselves; where none is, the turn is.
func (l *learner) tooLarge(soft, hard context.Context, recs []kafka.Record, from, to int64, when at, why error) error {
	var good []kafka.Record
	for i, r := range recs {
		err := l.step.load(recs[i : i+1])
		switch {
		case errors.Is(err, errTooLarge):
			if err := l.park(soft, rejected{r, err.Error()}); err != nil {
				return err
			}
			l.s.m.rejected.Inc()
		case err != nil:
			return err
		default:
			good = append(good, r)
		}
	}
	if len(good) == len(recs) {
		return fmt.Errorf("offsets %d to %d of partition %d cannot be learnt in one turn: %w: begin the job again with a lower --batch", from, to, l.partition, why)
	}
	return l.sifted(soft, hard, good, from, to, when)
}

// sift parts the records that can be learnt from those that cannot, by the rows and
// variables of the turn. It applies nothing.
func (l *learner) sift(ctx context.Context, recs []kafka.Record, when at) (good []kafka.Record, bad []rejected, err error) {
	if err := l.step.load(recs); err != nil {
		return nil, nil, err
	}
	switch _, err := l.gradients(ctx, when); {
	case err == nil:
		return recs, nil, nil
	case !errors.Is(err, errGradients):
		return nil, nil, err
	case len(recs) == 1:
		return nil, []rejected{{recs[0], err.Error()}}, nil
	}
	half := len(recs) / 2
	for _, part := range [][]kafka.Record{recs[:half], recs[half:]} {
		g, b, err := l.sift(ctx, part, when)
		if err != nil {
			return nil, nil, err
		}
		good, bad = append(good, g...), append(bad, b...)
	}
	return good, bad, nil
}

// learns notes that a record was learnt.
func (l *learner) learns() { l.odd, l.diverged = 0, false }

// tooOdd counts a record that cannot be learnt by itself. One after the other means that
// the model is at fault: then they are not parked but wait for a better one.
func (l *learner) tooOdd(ctx context.Context, from, to int64, why error) error {
	if l.odd++; l.odd < oddInARow {
		return nil
	}
	return l.fails(ctx, from, to, why)
}

// fails says, once, that the model diverges.
func (l *learner) fails(ctx context.Context, from, to int64, why error) error {
	err := fmt.Errorf("%w: %w: if it diverges, go back to an earlier checkpoint and train with a lower learning rate or smaller batches", errDiverged, why)
	if l.diverged {
		return err
	}
	if terr := l.s.tell(ctx, &training.Event{Body: &training.Event_HealthFailed{HealthFailed: &training.HealthFailed{
		Reason: err.Error(), Partition: l.partition, From: from, To: to,
	}}}); terr != nil {
		return errors.Join(err, terr)
	}
	l.diverged = true
	return err
}
