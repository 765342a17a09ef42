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
	reason := cmp.Or(body.Reason, "on command")
	seq, err := c.returnTo(ctx, body.Checkpoint, reason)
	if err != nil {
		return nil, err
	}
	c.Trainer.Log.Warn("the job returns to a checkpoint", "checkpoint", body.Checkpoint, "reason", reason, "seq", seq)
	answer := map[string]any{"checkpoint": body.Checkpoint, "seq": seq}
	if err := c.Trainer.AwaitReturn(ctx, seq); err != nil {
		return nil, bus.Refuse(bus.CodeUnavailable, "the job returns to checkpoint %d (event %d), and not all shards are there yet: look for their ready facts with restored %d", body.Checkpoint, seq, seq)
	}
	if made, ok := c.Export(ctx, fmt.Sprintf("returned to checkpoint %d", body.Checkpoint)); ok {
		answer["export"] = made
	}
	return json.Marshal(answer)
}

// returnTo appends that the job returns to a checkpoint, at that sequence. No checkpoint is deleted meanwhile, and what
// is deleted later leaves this one alone.
func (c *Chief) returnTo(ctx context.Context, id int64, reason string) (seq uint64, err error) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	if err := c.caughtUp(ctx); err != nil {
		return 0, err
	}
	if err := c.restorable(ctx, id); err != nil {
		return 0, err
	}
	end, err := c.Trainer.Env.Bus.Deltas().Last(ctx)
	if err != nil {
		return 0, bus.Refuse(bus.CodeUnavailable, "find the end of the deltas: %v: nothing was done, ask again", err)
	}
	_, seqs, err := c.append(ctx, requests.Request{Reason: reason}, func(j lineage.Job) []*training.Event {
		if j.Checkpoint(id) == nil {
			return nil
		}
		return []*training.Event{{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{
			Checkpoint: id, Reason: reason, Generation: c.Trainer.NextGeneration(), SyncSeq: end,
		}}}}
	})
	if err != nil {
		return 0, bus.Refuse(bus.CodeUnavailable, "return to checkpoint %d: %v: whether the job returns is not known, ask again", id, err)
	}
	if len(seqs) == 0 {
		return 0, c.notOnDisk(id)
	}
	return seqs[0], nil
}

// restorable refuses a checkpoint that is deleted, or of which a shard says that its part is damaged. A shard that says
// nothing is away, which may be why the job is to return. The caller holds sweeping.
func (c *Chief) restorable(ctx context.Context, id int64) error {
	saved := c.job().Checkpoint(id)
	if saved == nil {
		return nil // the fact's append says so
	}
	if slices.Contains(c.swept.Checkpoints, id) {
		return c.notOnDisk(id)
	}
	shards := c.cutJob()
	err := shards.Holds(ctx, saved)
	if errors.Is(err, cut.ErrDamaged) {
		return bus.Refuse(bus.CodeConflict, "job %s cannot return to checkpoint %d: %v: return to one of %v, or bring the part back", c.Trainer.Job, id, err, c.there())
	}
	if err != nil {
		c.Trainer.Log.Warn("not every shard says whether it has the checkpoint that the job returns to", "checkpoint", id, "err", err)
	}
	return nil
}

func (c *Chief) notOnDisk(id int64) error {
	return bus.Refuse(bus.CodeNotFound, "checkpoint %d of job %s is not on disk: return to one of %v", id, c.Trainer.Job, c.there())
}

// there are the checkpoints that are not deleted, those of which no fact says so yet included. The caller holds sweeping.
func (c *Chief) there() []int64 {
	return slices.DeleteFunc(c.job().IDs(), func(id int64) bool { return slices.Contains(c.swept.Checkpoints, id) })
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
