package chief

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// restorePatience bounds the work of one command; a caller waits 30 s at most.
const restorePatience = 25 * time.Second

// handleRestore answers trainer.<job>.restore: the job returns to a checkpoint.
//
//	append jobRestored            | from here on every shard, restarted or not, goes there
//	wait until all shards have    | trainers rewind to the offsets that the shards stand at
//	make a checkpoint and export  | so that the newest of either is of the new timeline
//
// It works beside the chief's checkpoints and without healthy shards, since those are what
// it is called for. A repeat begins another return to the same place.
func (c *Chief) handleRestore(ctx context.Context, payload []byte) ([]byte, error) {
	var body struct {
		Checkpoint int64  `json:"checkpoint"`
		Reason     string `json:"reason"`
	}
	ctx, cancel := context.WithTimeout(ctx, restorePatience)
	defer cancel()
	if err := role.DecodeJSON(payload, &body, `{"checkpoint":12,"reason":"the model diverged"}`); err != nil {
		return nil, err
	}
	if err := c.caughtUp(ctx); err != nil {
		return nil, err
	}
	if err := c.restorable(ctx, body.Checkpoint); err != nil {
		return nil, err
	}
	end, err := c.Trainer.Env.Bus.Deltas().Last(ctx)
	if err != nil {
		return nil, bus.Refuse(bus.CodeUnavailable, "find the end of the deltas: %v: nothing was done, ask again", err)
	}
	why := requests.Request{Reason: cmp.Or(body.Reason, "on command")}
	var saved []int64
	_, seqs, err := c.append(ctx, why, func(j lineage.Job) []*training.Event {
		if saved = j.IDs(); !slices.Contains(saved, body.Checkpoint) {
			return nil
		}
		return []*training.Event{{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{
			Checkpoint: body.Checkpoint, Reason: why.Reason, Generation: c.Trainer.NextGeneration(), SyncSeq: end,
		}}}}
	})
	if err != nil {
		return nil, bus.Refuse(bus.CodeUnavailable, "return to checkpoint %d: %v: whether the job returns is not known, ask again", body.Checkpoint, err)
	}
	if len(seqs) == 0 {
		return nil, bus.Refuse(bus.CodeNotFound, "checkpoint %d of job %s is not on disk: return to one of %v", body.Checkpoint, c.Trainer.Job, saved)
	}
	c.Trainer.Log.Warn("the job returns to a checkpoint", "checkpoint", body.Checkpoint, "reason", why.Reason, "seq", seqs[0])
	answer := map[string]any{"checkpoint": body.Checkpoint, "seq": seqs[0]}
	if err := c.Trainer.AwaitReturn(ctx, seqs[0]); err != nil {
		return nil, bus.Refuse(bus.CodeUnavailable, "the job returns to checkpoint %d (event %d), and not all shards are there yet: look for their ready facts with restored %d", body.Checkpoint, seqs[0], seqs[0])
	}
	if made, ok := c.Export(ctx, fmt.Sprintf("returned to checkpoint %d", body.Checkpoint)); ok {
		answer["export"] = made
	}
	return json.Marshal(answer)
}

// restorable refuses a checkpoint of which a shard says that its part is damaged. A shard that says nothing
// is away, which may be why the job is to return.
func (c *Chief) restorable(ctx context.Context, id int64) error {
	saved := c.job().Checkpoint(id)
	if saved == nil {
		return nil // the fact's append says so
	}
	shards := c.cutJob()
	err := shards.Holds(ctx, saved)
	if errors.Is(err, cut.ErrDamaged) {
		return bus.Refuse(bus.CodeConflict, "job %s cannot return to checkpoint %d: %v: return to one of %v, or bring the part back", c.Trainer.Job, id, err, c.job().IDs())
	}
	if err != nil {
		c.Trainer.Log.Warn("not every shard says whether it has the checkpoint that the job returns to", "checkpoint", id, "err", err)
	}
	return nil
}

// Export has the chief make a checkpoint with an export, unless ctx ends before.
func (c *Chief) Export(ctx context.Context, reason string) (id int64, ok bool) {
	a, err := c.order(ctx, Order{Reason: reason, Export: true})
	return a.ID, err == nil && a.Err == nil
}

// NextGeneration is one that no shard of a deterministic job is in yet; 0 for others.
func (s *Trainer) NextGeneration() (g uint64) {
	for i := range s.NumShards {
		g = max(g, s.generation(i))
	}
	if s.Deterministic {
		g++
	}
	return g
}

// AwaitReturn waits until every shard is ready as one that follows the jobRestored at seq.
func (s *Trainer) AwaitReturn(ctx context.Context, seq uint64) error {
	for {
		changed := s.Fleet.Changed()
		there := true
		s.Fleet.Read(func(f fleet.State) {
			for i := range s.NumShards {
				x := f.Shards[s.Job][uint32(i)]
				there = there && x.Healthy && x.Ready.V.GetRestored() >= seq
			}
		})
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// generation is the deterministic timeline of shard i as the fleet knows it.
func (s *Trainer) generation(i int) (g uint64) {
	if s.Deterministic {
		s.Fleet.Read(func(f fleet.State) { g = f.Shards[s.Job][uint32(i)].Ready.V.GetGeneration() })
	}
	return g
}
