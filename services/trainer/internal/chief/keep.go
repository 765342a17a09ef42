package chief

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// keeps are the facts by which the checkpoint id, begun at that time, is exempt from those that are
// deleted: because somebody asked for that, or as the one of KeepEvery. They are appended with the
// checkpoint's own fact, so that no sweep comes in between.
func (s *Trainer) keeps(now lineage.Job, why requests.Request, id int64, begun time.Time) []*training.Event {
	k := &training.CheckpointKept{Id: id}
	switch {
	case len(now.Kept) >= lineage.MaxExempt:
		if why.Keep || s.KeepEvery > 0 {
			s.Log.Warn("no more checkpoints can be exempt: release some", "checkpoint", id, "kept", len(now.Kept))
		}
		return nil
	case why.Keep:
		k.Reason = why.Reason
	case s.KeepEvery > 0 && now.KeptUnix > 0 && begun.Sub(time.Unix(now.KeptUnix, 0)) >= s.KeepEvery:
		k.Reason, k.ByClock = "one every "+s.KeepEvery.String(), true
	default:
		return nil
	}
	return []*training.Event{{Body: &training.Event_CheckpointKept{CheckpointKept: k}}}
}

// keepRequest is the body of trainer.<job>.keep and trainer.<job>.release.
type keepRequest struct {
	Checkpoint int64  `json:"checkpoint"`
	Reason     string `json:"reason"`
}

// handleKeep answers trainer.<job>.keep: a checkpoint stays on disk, and its export, until it is
// released. It is refused of one that is gone, also where no fact says so yet.
func (c *Chief) handleKeep(ctx context.Context, payload []byte) ([]byte, error) {
	var body keepRequest
	if err := role.DecodeJSON(payload, &body, `{"checkpoint":12,"reason":"before the campaign"}`); err != nil {
		return nil, err
	}
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	if err := c.onDisk(ctx, body.Checkpoint); err != nil {
		return nil, err
	}
	return c.keeping(ctx, body, func(j lineage.Job) (*training.Event, error) {
		switch {
		case j.Checkpoint(body.Checkpoint) == nil:
			return nil, c.noCheckpoint(body.Checkpoint)
		case j.Exempt(body.Checkpoint):
			return nil, nil
		case len(j.Kept) >= lineage.MaxExempt:
			return nil, bus.Refuse(bus.CodeConflict, "job %s keeps %d checkpoints, which is all that it may: release one first", c.Job, len(j.Kept))
		}
		return &training.Event{Body: &training.Event_CheckpointKept{CheckpointKept: &training.CheckpointKept{
			Id: body.Checkpoint, Reason: cmp.Or(body.Reason, "on command"),
		}}}, nil
	})
}

// onDisk refuses a checkpoint of which not every shard says that it has its part, and one that was deleted, also where
// somebody has brought it back: the next checkpoint says that it is gone. The caller holds sweeping.
func (c *Chief) onDisk(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, CommandPatience)
	defer cancel()
	if err := c.caughtUp(ctx); err != nil {
		return err
	}
	saved := c.job().Checkpoint(id)
	if saved.GetDir() != c.Dir || slices.Contains(c.swept.Checkpoints, id) {
		return c.noCheckpoint(id)
	}
	shards := c.cutJob()
	switch err := shards.Holds(ctx, saved); {
	case errors.Is(err, cut.ErrDamaged):
		return bus.Refuse(bus.CodeNotFound, "checkpoint %d of job %s cannot be kept: %v: keep another one that trainer.%s.state lists", id, c.Job, err, c.Job)
	case err != nil:
		return bus.Refuse(bus.CodeUnavailable, "not every shard says whether it has checkpoint %d: %v: ask again", id, err)
	}
	return nil
}

func (c *Chief) noCheckpoint(id int64) error {
	return bus.Refuse(bus.CodeNotFound, "checkpoint %d of job %s is not on disk: keep one that trainer.%s.state lists", id, c.Job, c.Job)
}

// handleRelease answers trainer.<job>.release: the checkpoint counts again, and goes with the next one
// that is saved where it is too old.
func (c *Chief) handleRelease(ctx context.Context, payload []byte) ([]byte, error) {
	var body keepRequest
	if err := role.DecodeJSON(payload, &body, `{"checkpoint":12,"reason":"the campaign is over"}`); err != nil {
		return nil, err
	}
	return c.keeping(ctx, body, func(j lineage.Job) (*training.Event, error) {
		if !j.Exempt(body.Checkpoint) {
			return nil, bus.Refuse(bus.CodeNotFound, "checkpoint %d of job %s is not kept: release one of %v", body.Checkpoint, c.Job, j.Kept)
		}
		return &training.Event{Body: &training.Event_CheckpointReleased{CheckpointReleased: &training.CheckpointReleased{
			Id: body.Checkpoint, Reason: cmp.Or(body.Reason, "on command"),
		}}}, nil
	})
}

// caughtUp waits until the job's view holds all that anybody has seen of it. A command that is refused is
// no append, which would conflict where the view is behind.
func (c *Chief) caughtUp(ctx context.Context) error {
	last, err := c.Env.Bus.Log().Last(ctx)
	if err == nil {
		err = c.Lineage.Wait(ctx, last)
	}
	if err != nil {
		return bus.Refuse(bus.CodeUnavailable, "the job's facts cannot be read: %v: nothing was done, ask again", err)
	}
	return nil
}

// keeping appends what decide makes of the job, nothing where it is so already, and answers with the
// checkpoints that are exempt then.
func (c *Chief) keeping(ctx context.Context, body keepRequest, decide func(lineage.Job) (*training.Event, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, CommandPatience)
	defer cancel()
	if err := c.caughtUp(ctx); err != nil {
		return nil, err
	}
	var refused error
	_, seqs, err := c.append(ctx, requests.Request{}, func(j lineage.Job) []*training.Event {
		e, err := decide(j)
		if refused = err; e == nil {
			return nil
		}
		return []*training.Event{e}
	})
	if refused != nil {
		return nil, refused
	}
	if err == nil && len(seqs) > 0 {
		err = c.Lineage.Wait(ctx, seqs[0])
	}
	if err != nil {
		return nil, bus.Refuse(bus.CodeUnavailable, "whether checkpoint %d is kept is not known: %v: ask again", body.Checkpoint, err)
	}
	answer := map[string]any{"checkpoint": body.Checkpoint, "kept": append([]int64{}, c.job().Kept...)}
	if len(seqs) > 0 {
		answer["seq"] = seqs[0]
	}
	return json.Marshal(answer)
}
