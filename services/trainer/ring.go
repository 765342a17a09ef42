package trainer

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/input/itempool"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
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
type ring struct {
	steps [3]*work
	pool  *itempool.Pool // of the partition
}

// work is a step, and how far the learner is with it.
type work struct {
	*step.Step
	err error // which keeps it, and what comes behind it, from being learnt

	looked  bool // what follows is set
	weights *runtime.Weights
	lent    *shards.Copy // whose the weights are; nil in deterministic mode
	begin   time.Time
	span    trace.Span // nil: nobody wants one
	parent  string     // its traceparent
}

// load takes up the records of a span, with nothing looked up yet.
func (w *work) load(of step.Span) error {
	w.end()
	return w.Step.Load(of)
}

// end gives back what was looked up, and ends the span.
func (w *work) end() {
	if w.span != nil {
		w.span.End()
	}
	if w.lent != nil {
		w.lent.Done()
	}
	w.looked, w.weights, w.lent, w.span, w.parent = false, nil, nil, nil, ""
}

// newRing makes the memory of a partition's steps.
func newRing(e *step.Engine) (r ring) {
	r.pool = itempool.New()
	for i := range r.steps {
		r.steps[i] = &work{Step: e.NewStep()}
		r.steps[i].Draw(r.pool)
	}
	return r
}

// learnFrom learns on from where the shards stand.
func (l *learner) learnFrom(soft, hard context.Context, pos shards.Position) error {
	take, learn := l.unordered, l.halving
	if l.s.cfg.Deterministic {
		take, learn = l.inTurns, l.sifted
	}
	if err := l.fill(soft, pos); err != nil {
		return err
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

	free := make(chan *work, len(l.ring.steps))
	for _, st := range l.ring.steps {
		free <- st
	}
	decoded := make(chan *work)
	stages.Go(func() { decode(ctx, o, free, decoded) })
	ready := decoded
	if l.ahead() {
		ready = make(chan *work)
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
		if err := l.takes(soft, st.At.From, st.At.Leader); err != nil {
			return err
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
func decode(ctx context.Context, o order, free <-chan *work, decoded chan<- *work) {
	for {
		st, err := receive(ctx, free)
		if err != nil {
			return
		}
		var s step.Span
		if s, st.err = o.next(ctx); st.err == nil {
			st.err = st.load(s)
		}
		if last := st.err != nil; !send(ctx, decoded, st) || last {
			return
		}
	}
}

// lookAhead gets the rows of one step while the one before it is learnt: nobody takes it sooner.
func (l *learner) lookAhead(ctx context.Context, decoded <-chan *work, ready chan<- *work) {
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

func receive(ctx context.Context, from <-chan *work) (*work, error) {
	select {
	case st := <-from:
		return st, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func send(ctx context.Context, to chan<- *work, st *work) bool {
	select {
	case to <- st:
		return true
	case <-ctx.Done():
		return false
	}
}
