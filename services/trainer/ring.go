package trainer

import (
	"context"
	"sync"
)

// ring is the steps of a partition, which are at work side by side: one is decoded, the next has its rows
// looked up, the one before computes and is applied.
//
//	order ──► decode, Seal ──► look up ──► compute, apply
//
// A step is looked up once the one before it has begun to compute, so its rows lack what that one, and
// no other step of the partition, changes in them: without the look-up ahead it lacks nothing. It is applied
// after the answer to the one before. A step that is refused ends the ring: those behind it have
// changed nothing, and their records are read again from where the shards stand.
type ring struct{ steps [3]*step }

// newRing makes the memory of a partition's steps.
func newRing(e *engine) (r ring) {
	for i := range r.steps {
		r.steps[i] = e.newStep()
	}
	return r
}

// learnFrom learns on from where the shards stand.
func (l *learner) learnFrom(soft, hard context.Context, pos position) error {
	take, learn := l.asTheyCome, l.halving
	if l.s.cfg.Deterministic {
		take, learn = l.inTurns, l.sifted
	}
	o, err := take(soft, pos)
	if err != nil {
		return err
	}
	defer o.close()
	ctx, cancel := context.WithCancel(soft)
	defer func() {
		for _, st := range l.ring.steps {
			st.end()
		}
	}()
	var stages sync.WaitGroup
	defer stages.Wait()
	defer cancel()

	free := make(chan *step, len(l.ring.steps))
	for _, st := range l.ring.steps {
		free <- st
	}
	decoded := make(chan *step)
	stages.Go(func() { decode(ctx, o, free, decoded) })
	ready := decoded
	if l.ahead() {
		ready = make(chan *step)
		stages.Go(func() { l.lookAhead(ctx, decoded, ready) })
	}
	for {
		st, err := receive(soft, ready)
		if err != nil {
			return err
		}
		if st.err != nil {
			return st.err
		}
		if err := learn(soft, hard, st); err != nil {
			return err
		}
		free <- st
	}
}

// ahead says whether rows are looked up while the step before computes. In deterministic mode a look-up
// waits for its turn.
func (l *learner) ahead() bool { return l.s.cfg.Pipeline == 1 && !l.s.cfg.Deterministic }

// decode loads steps in order until one has an error, which it hands on as the last.
func decode(ctx context.Context, o order, free <-chan *step, decoded chan<- *step) {
	for {
		st, err := receive(ctx, free)
		if err != nil {
			return
		}
		var s span
		if s, st.err = o.next(ctx); st.err == nil {
			st.err = st.load(s)
		}
		if last := st.err != nil; !send(ctx, decoded, st) || last {
			return
		}
	}
}

// lookAhead gets the rows of one step while the one before it is learnt: nobody takes it sooner.
func (l *learner) lookAhead(ctx context.Context, decoded <-chan *step, ready chan<- *step) {
	for {
		st, err := receive(ctx, decoded)
		if err != nil {
			return
		}
		if st.err == nil {
			st.err = l.lookUp(ctx, st)
		}
		if last := st.err != nil; !send(ctx, ready, st) || last {
			return
		}
	}
}

func receive(ctx context.Context, from <-chan *step) (*step, error) {
	select {
	case st := <-from:
		return st, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func send(ctx context.Context, to chan<- *step, st *step) bool {
	select {
	case to <- st:
		return true
	case <-ctx.Done():
		return false
	}
}
