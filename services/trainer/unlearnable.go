package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/internal/attempt"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// errDiverged says that no record can be learnt any more, whatever it holds.
var errDiverged = errors.New("records fail one after the other, so the model is at fault rather than they")

// oddInARow is how many records in a row may fail by themselves before the model is to
// blame rather than they.
const oddInARow = 16

// refused says whether err is about the content of a batch: trying the same again is no
// use, a part of it may do.
func refused(err error) bool {
	return errors.Is(err, step.ErrGradients) || errors.Is(err, step.ErrTooLarge) || attempt.Refusal(err) == rowwire.Invalid
}

// halving learns a step whole or, where that is refused, in halves, down to the records that
// cannot be learnt at all, which are parked.
func (l *learner) halving(soft, hard context.Context, st *work) error {
	s := st.At
	err := l.learn(soft, hard, st)
	if !refused(err) || len(s.Recs) == 0 {
		if err == nil && st.Samples() > 0 {
			l.learns()
		}
		return err
	}
	if len(s.Recs) == 1 {
		if !errors.Is(err, step.ErrTooLarge) { // which is the record's fault alone
			if err := l.tooOdd(soft, s, err); err != nil {
				return err
			}
		}
		if err := l.park(soft, step.Rejected{Record: s.Recs[0], Reason: err.Error()}); err != nil {
			return err
		}
		l.s.m.rejected.Inc()
		return l.again(soft, hard, st, step.Span{From: s.From, To: s.To}) // its offset counts as learnt
	}
	half := len(s.Recs) / 2
	if errors.Is(err, step.ErrTooLarge) && st.Fitted > 0 {
		half = st.Fitted
	}
	middle := s.Recs[half].Offset
	for _, part := range []step.Span{{Recs: s.Recs[:half], From: s.From, To: middle}, {Recs: s.Recs[half:], From: middle, To: s.To}} {
		if err := st.load(part); err != nil {
			return err
		}
		if err := l.halving(soft, hard, st); err != nil {
			return err
		}
	}
	return nil
}

// sifted is halving for deterministic mode, where a batch is one turn whatever is left of
// it: the records that cannot be learnt by themselves are found first.
func (l *learner) sifted(soft, hard context.Context, st *work) error {
	s := st.At
	err := l.learn(soft, hard, st)
	if errors.Is(err, step.ErrTooLarge) {
		return l.tooLarge(soft, hard, st, s, err)
	}
	if !errors.Is(err, step.ErrGradients) {
		if err == nil && st.Samples() > 0 {
			l.learns()
		}
		return err
	}
	why := err
	good, bad, err := l.sift(soft, st, s)
	if err != nil {
		return err
	}
	if len(bad) == 0 { // each could be learnt, but not all in one turn
		return l.fails(soft, s, why)
	}
	if len(good) == 0 && l.odd+len(bad) >= oddInARow { // none is parked: the turn is to be learnt whole
		return l.fails(soft, s, why)
	}
	l.odd += len(bad)
	for _, r := range bad {
		if err := l.park(soft, r); err != nil {
			return err
		}
		l.s.m.rejected.Inc()
	}
	s.Recs = good
	if err = l.again(soft, hard, st, s); errors.Is(err, step.ErrGradients) {
		return l.fails(soft, s, err)
	}
	if err == nil && len(good) > 0 {
		l.learns()
	}
	return err
}

// tooLarge parks the records that are too large by themselves; where none is, the turn is.
func (l *learner) tooLarge(soft, hard context.Context, st *work, s step.Span, why error) error {
	var good []kafka.Record
	for i, r := range s.Recs {
		alone := s
		alone.Recs = s.Recs[i : i+1]
		if err := st.load(alone); err != nil {
			return err
		}
		if st.Unfit == nil {
			good = append(good, r)
			continue
		}
		if err := l.park(soft, step.Rejected{Record: r, Reason: st.Unfit.Error()}); err != nil {
			return err
		}
		l.s.m.rejected.Inc()
	}
	if len(good) == len(s.Recs) {
		return fmt.Errorf("offsets %d to %d of partition %d cannot be learnt in one turn: %w: begin the job again with a lower --batch", s.From, s.To, l.partition, why)
	}
	s.Recs = good
	if err := st.load(s); err != nil {
		return err
	}
	return l.sifted(soft, hard, st)
}

// sift parts the records of a turn that can be learnt from those that cannot, by the rows and
// variables of the turn. It applies nothing.
func (l *learner) sift(ctx context.Context, st *work, s step.Span) (good []kafka.Record, bad []step.Rejected, err error) {
	if err := st.load(s); err != nil {
		return nil, nil, err
	}
	if err := l.lookUp(ctx, st); err != nil {
		return nil, nil, err
	}
	switch _, err := l.gradients(ctx, st); {
	case err == nil:
		return s.Recs, nil, nil
	case !errors.Is(err, step.ErrGradients):
		return nil, nil, err
	case len(s.Recs) == 1:
		return nil, []step.Rejected{{Record: s.Recs[0], Reason: err.Error()}}, nil
	}
	half := len(s.Recs) / 2
	for _, recs := range [][]kafka.Record{s.Recs[:half], s.Recs[half:]} {
		part := s
		part.Recs = recs
		g, b, err := l.sift(ctx, st, part)
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
func (l *learner) tooOdd(ctx context.Context, s step.Span, why error) error {
	if l.odd++; l.odd < oddInARow {
		return nil
	}
	return l.fails(ctx, s, why)
}

// fails says, once, that the model diverges.
func (l *learner) fails(ctx context.Context, s step.Span, why error) error {
	err := fmt.Errorf("%w: %w: if it diverges, go back to an earlier checkpoint and train with a lower learning rate or smaller batches", errDiverged, why)
	if l.diverged {
		return err
	}
	if terr := l.s.tell(ctx, &training.Event{Body: &training.Event_HealthFailed{HealthFailed: &training.HealthFailed{
		Reason: err.Error(), Partition: l.partition, From: s.From, To: s.To,
	}}}); terr != nil {
		return errors.Join(err, terr)
	}
	l.diverged = true
	return err
}
