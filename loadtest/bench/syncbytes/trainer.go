package syncbytes

import (
	"context"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/bench/psrole"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// trainer has the shard learn records by the trainer role's own steps, one after the other: in which step a record is
// learnt must not depend on the clock, as it does for the role.
type trainer struct {
	set  *shards.Set
	pool *rowwire.Pool
	step *step.Step
	lane runtime.Lane
	w    *runtime.Weights
	size int // records of a step
}

func newTrainer(spec *model.ModelSpec, s *trainingShard, size int) (*trainer, error) {
	e, err := step.New(spec, 1, size)
	if err != nil {
		return nil, err
	}
	fleet := follow.New(s.Bus.Log(), registry.Fleet.Only(psrole.BZID), follow.Options{})
	s.Go(fleet.Run)
	pool := s.Local.NewPool(nil)
	return &trainer{set: shards.New(psrole.Job, 1, fleet, pool, nil, health.New()), pool: pool, step: e.NewStep(), size: size}, nil
}

func (t *trainer) close() { t.pool.Close() }

// learn takes the records in, and returns the bytes of the rows that they touched, each once, as float32.
func (t *trainer) learn(ctx context.Context, records []kafka.Record) (raw int, err error) {
	type row struct {
		table string
		id    int64
	}
	touched := map[row]struct{}{}
	for recs := range slices.Chunk(records, t.size) {
		if err := t.take(ctx, step.Span{Recs: recs, From: recs[0].Offset, To: recs[len(recs)-1].Offset + 1}); err != nil {
			return 0, err
		}
		for _, b := range t.step.Batch.Blocks(0) {
			for _, id := range b.IDs {
				if _, twice := touched[row{b.Table, id}]; !twice {
					touched[row{b.Table, id}] = struct{}{}
					raw += 4 * b.Dim
				}
			}
		}
	}
	return raw, nil
}

// take is one step, from its records to the shard's answer.
func (t *trainer) take(ctx context.Context, at step.Span) (err error) {
	if err := t.step.Load(at); err != nil {
		return err
	}
	if t.step.Unfit != nil {
		return t.step.Unfit
	}
	for _, r := range t.step.Bad {
		return fmt.Errorf("record %d: %s", r.Record.Offset, r.Reason)
	}
	if t.w, err = shards.FetchDense(ctx, t.set, t.step.Engine, 0, 0, t.w); err != nil {
		return err
	}
	if p, ok := t.step.Asks(0, rowwire.LookupRequest{Model: psrole.Job}); ok {
		if _, err := shards.Call(ctx, t.set, 0, p.LookUp); err != nil {
			return err
		}
		if err := p.Landed(); err != nil {
			return err
		}
	}
	if _, err := t.step.Train(&t.lane, t.w); err != nil {
		return err
	}
	for _, part := range t.step.Tells(0, rowwire.ApplyRequest{Job: psrole.Job, Epoch: 1, From: at.From, To: at.To, RecordUnix: t.step.Newest}) {
		_, err := shards.Call(ctx, t.set, 0, func(ctx context.Context, c rowwire.Conn) (*rowwire.ApplyResponse, error) { return c.Apply(ctx, &part) })
		if err != nil {
			return err
		}
	}
	return nil
}
