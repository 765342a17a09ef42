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
	"github.com/monolith-go/monolith/services/trainer/hostcall"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// learn takes a step that is loaded, whether its rows are looked up or not, to its end. With an
// ErrGradients nothing of it was applied.
func (l *learner) learn(soft, hard context.Context, st *work) error {
	if st.Unfit != nil {
		return st.Unfit
	}
	if err := l.lookUp(soft, st); err != nil {
		return err
	}
	defer st.end()
	res, err := l.gradients(soft, st)
	if err != nil {
		return err
	}
	for _, r := range st.Bad {
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
	l.lag.Learnt(st.At.To)
	l.ring.pool.Trim(st.At.To)
	l.s.dense.Learnt()
	l.s.env.Health.OK(l.named("learning"))
	l.s.m.learnt(st.Step, res, time.Since(st.begin))
	l.s.dump(hard, st.Step)
	l.s.calls.Learnt(soft, hostcall.Step{
		Tasks: st.Engine.Tasks(), Variables: st.Engine.Variables(), Batch: st.Batch, Shards: st.Engine.Shards(), Lines: st.Lines(), Result: res,
	})
	return nil
}

// again learns some of a step's records in its place.
func (l *learner) again(soft, hard context.Context, st *work, s step.Span) error {
	if err := st.load(s); err != nil {
		return err
	}
	return l.learn(soft, hard, st)
}

// lookUp gets the rows of a step and the dense variables, unless it has them.
func (l *learner) lookUp(ctx context.Context, st *work) (err error) {
	if st.looked || st.Unfit != nil {
		return nil
	}
	st.begin = time.Now()
	if st.Trace != "" {
		ctx, st.span = l.s.tracer.Start(tracectx.With(ctx, st.Trace), "trainer.step", trace.WithAttributes(
			attribute.String("job", l.s.cfg.Job), attribute.Int("partition", int(l.partition)),
			attribute.Int64("from", st.At.From), attribute.Int64("to", st.At.To), attribute.Int("samples", st.Samples()),
		))
		st.parent = tracectx.Of(ctx)
	}
	if st.Samples() > 0 || l.s.cfg.Deterministic { // in deterministic mode an empty step waits for its turn, too
		if err := l.fetch(ctx, st); err != nil {
			st.end()
			return err
		}
	}
	st.looked = true
	return nil
}

// gradients computes those of a step whose rows are looked up, and checks that shards take them.
func (l *learner) gradients(ctx context.Context, st *work) (res runtime.Result, err error) {
	if st.Samples() == 0 {
		return res, nil
	}
	lane, err := l.s.env.Lanes.Get(ctx)
	if err != nil {
		return res, err
	}
	res, err = st.Train(lane, st.weights)
	l.s.env.Lanes.Put(lane)
	return res, err
}

// apply sends every shard its share of the gradients and waits for all answers.
func (l *learner) apply(hard context.Context, st *work) error {
	sh := l.s.shards
	return sh.Each(func(i int) error {
		parts := st.Tells(i, rowwire.ApplyRequest{
			Job: sh.Job, Shard: uint32(i), Partition: l.partition, Epoch: l.epoch, From: st.At.From, To: st.At.To,
			RecordUnix: st.Newest, Turn: st.At.When.Turn, Generation: st.At.When.Generation, Traceparent: st.parent,
		})
		_, err := shards.Call(hard, sh, i, func(ctx context.Context, c rowwire.Conn) (struct{}, error) {
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
func (l *learner) fetch(ctx context.Context, st *work) error {
	sh, when := l.s.shards, st.At.When
	got := make(chan error, 1)
	go func() {
		var err error
		if l.s.cfg.Deterministic {
			st.weights, err = shards.FetchDense(ctx, sh, st.Engine, when.Turn, when.Generation, nil)
		} else if st.lent, err = l.s.dense.Get(ctx); err == nil {
			st.weights = st.lent.Weights
		}
		got <- err
	}()
	err := sh.Each(func(i int) error {
		p, ok := st.Asks(i, rowwire.LookupRequest{Model: sh.Job, Shard: uint32(i), Turn: when.Turn, Generation: when.Generation})
		if !ok {
			return nil
		}
		if _, err := shards.Call(ctx, sh, i, p.LookUp); err != nil {
			return err
		}
		if err := p.Landed(); err != nil {
			return fmt.Errorf("shard %d: %s", i, err) // without its code: the records are not to blame
		}
		return nil
	})
	return errors.Join(err, <-got)
}
