package cut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// ErrDamaged is a checkpoint of which a shard finds a part that is not what was written.
var ErrDamaged = errors.New("the checkpoint is damaged")

// Verify has every shard read back its part of a checkpoint that was just written, from its own disk, and
// has the checkpoint say so. Shards learn on meanwhile.
func (c *Cutter) Verify(ctx context.Context, made *training.Checkpoint) error {
	err := c.Job.check(ctx, made, true, snapshotTimeout, func(f *training.ShardFile) bool { return f.GetBytes() > 0 }) // a shard of an older build cannot
	if err != nil {
		return err
	}
	for _, f := range made.GetShards() {
		f.Verified = f.GetBytes() > 0
	}
	return nil
}

// Holds asks the shards whether they have their parts of a checkpoint, by sizes and manifests. The error is
// ErrDamaged where one says that it does not; any other is of shards that gave no answer.
func (j *Job) Holds(ctx context.Context, c *training.Checkpoint) error {
	return j.check(ctx, c, false, commandTimeout, func(*training.ShardFile) bool { return true })
}

// check asks each shard for the parts that it restores: its own, and all of those that another number of
// shards wrote.
func (j *Job) check(ctx context.Context, c *training.Checkpoint, deep bool, timeout time.Duration, asked func(*training.ShardFile) bool) error {
	all := c.GetShards()
	errs := make([]error, j.Shards.Len())
	_ = j.Shards.Each(func(i int) error {
		r := shardcmd.CheckRequest{Checkpoint: c.GetId(), Dir: c.GetDir(), Deep: deep}
		for _, f := range all {
			if own := len(all) != j.Shards.Len() || f.GetShard() == uint32(i); own && asked(f) {
				r.Parts = append(r.Parts, shardcmd.Part{Shard: f.GetShard(), Path: f.GetPath(), Hash: f.GetHash(), Rows: f.GetRows(), Bytes: f.GetBytes(), Manifest: f.GetManifest()})
			}
		}
		if len(r.Parts) > 0 {
			errs[i] = j.checkOf(ctx, i, r, c.GetOffsets(), timeout)
		}
		return nil
	})
	for _, err := range errs {
		if errors.Is(err, ErrDamaged) {
			return err
		}
	}
	return errors.Join(errs...)
}

// checkOf asks shard i.
func (j *Job) checkOf(ctx context.Context, i int, r shardcmd.CheckRequest, offsets map[int32]int64, timeout time.Duration) error {
	reply, err := j.askUnlessMoved(ctx, i, shardcmd.Check, r, timeout)
	if err != nil {
		return err
	}
	var a shardcmd.CheckResponse
	if err := json.Unmarshal(reply, &a); err != nil || len(a.Parts) != len(r.Parts) {
		return fmt.Errorf("check of shard %d: %d verdicts of %d parts, %w", i, len(a.Parts), len(r.Parts), err)
	}
	for k, v := range a.Parts {
		switch {
		case v.Shard != r.Parts[k].Shard:
			return fmt.Errorf("check of shard %d: it answered for part %d, not %d", i, v.Shard, r.Parts[k].Shard)
		case v.Fault != "":
			return fmt.Errorf("%w: shard %d says of part %d of checkpoint %d: %s", ErrDamaged, i, v.Shard, r.Checkpoint, v.Fault)
		case !maps.Equal(v.Offsets, offsets):
			return fmt.Errorf("%w: part %d of checkpoint %d stands at offsets %v, the cut at %v", ErrDamaged, v.Shard, r.Checkpoint, v.Offsets, offsets)
		}
	}
	return nil
}
