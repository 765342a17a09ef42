package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// learn takes a step that is loaded, whether its rows are looked up or not, to its end. With an
// errGradients nothing of it was applied.
func (l *learner) learn(soft, hard context.Context, st *step) error {
	if st.unfit != nil {
		return st.unfit
	}
	if err := l.lookUp(soft, st); err != nil {
		return err
	}
	defer st.end()
	res, err := l.gradients(soft, st)
	if err != nil {
		return err
	}
	for _, r := range st.bad {
		if err := l.park(soft, r); err != nil {
			return err
		}
	}
	if soft.Err() != nil {
		return context.Cause(soft) // nothing was applied yet
	}
	if err := l.apply(hard, st); err != nil {
		return err
	}
	l.steps++
	l.s.dense.learnt()
	l.s.env.Health.OK(l.named("learning"))
	l.s.m.learnt(st.e.Tasks(), st.batch, res, len(st.bad), time.Since(st.begin))
	return nil
}

// again learns some of a step's records in its place.
func (l *learner) again(soft, hard context.Context, st *step, s span) error {
	if err := st.load(s); err != nil {
		return err
	}
	return l.learn(soft, hard, st)
}

// lookUp gets the rows of a step and the dense variables, unless it has them.
func (l *learner) lookUp(ctx context.Context, st *step) (err error) {
	if st.looked || st.unfit != nil {
		return nil
	}
	st.begin = time.Now()
	if st.trace != "" {
		ctx, st.span = l.s.tracer.Start(tracectx.With(ctx, st.trace), "trainer.step", trace.WithAttributes(
			attribute.String("job", l.s.cfg.Job), attribute.Int("partition", int(l.partition)),
			attribute.Int64("from", st.at.from), attribute.Int64("to", st.at.to), attribute.Int("samples", st.samples()),
		))
		st.parent = tracectx.Of(ctx)
	}
	if st.samples() > 0 || l.s.cfg.Deterministic { // in deterministic mode an empty step waits for its turn, too
		if err := l.fetch(ctx, st); err != nil {
			st.end()
			return err
		}
	}
	st.looked = true
	return nil
}

// gradients computes those of a step whose rows are looked up, and checks that shards take them.
func (l *learner) gradients(ctx context.Context, st *step) (res runtime.Result, err error) {
	if st.samples() == 0 {
		return res, nil
	}
	lane, err := l.s.env.Lanes.Get(ctx)
	if err != nil {
		return res, err
	}
	res, err = st.train(lane)
	l.s.env.Lanes.Put(lane)
	return res, err
}

// apply sends every shard its share of the gradients and waits for all answers.
func (l *learner) apply(hard context.Context, st *step) error {
	sh := l.s.shards
	return sh.each(func(i int) error {
		parts := st.tells(i, rowwire.ApplyRequest{
			Job: sh.job, Shard: uint32(i), Partition: l.partition, Epoch: l.epoch, From: st.at.from, To: st.at.to,
			RecordUnix: st.newest, Turn: st.at.when.turn, Generation: st.at.when.generation, Traceparent: st.parent,
		})
		_, err := call(hard, sh, i, func(ctx context.Context, c rowwire.Conn) (struct{}, error) {
			for i := range parts { // all again where one did not arrive: the shard may have been another meanwhile
				if _, err := c.Apply(ctx, &parts[i]); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		return err
	})
}

// fetch gets the rows of the batch and the dense variables side by side.
func (l *learner) fetch(ctx context.Context, st *step) error {
	sh, when := l.s.shards, st.at.when
	got := make(chan error, 1)
	go func() {
		var err error
		if l.s.cfg.Deterministic {
			st.weights, err = fetchDense(ctx, sh, st.e, when.turn, when.generation)
		} else {
			st.weights, err = l.s.dense.get(ctx)
		}
		got <- err
	}()
	err := sh.each(func(i int) error {
		p, ok := st.asks(i, rowwire.LookupRequest{Model: sh.job, Shard: uint32(i), Turn: when.turn, Generation: when.generation})
		if !ok {
			return nil
		}
		if _, err := call(ctx, sh, i, p.lookUp); err != nil {
			return err
		}
		if err := p.answer.Landed(p.rows, nil); err != nil {
			return fmt.Errorf("shard %d: %s", i, err) // without its code: the records are not to blame
		}
		return nil
	})
	return errors.Join(err, <-got)
}

// lookUp is one attempt at the rows of a part.
func (p *part) lookUp(ctx context.Context, c rowwire.Conn) (struct{}, error) {
	p.answer.Into(p.rows, nil)
	return struct{}{}, c.LookupInto(ctx, &p.lookup, &p.answer)
}
