package cut

import (
	"context"
	"errors"

	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// Discard has every shard delete its parts of checkpoints and exports from its own disk. Without an error
// none of them is left.
func (j *Job) Discard(ctx context.Context, chief uint64, checkpoints, exports []int64) error {
	if len(checkpoints)+len(exports) == 0 {
		return nil
	}
	errs := make([]error, j.Shards.Len())
	_ = j.Shards.Each(func(i int) error {
		r := shardcmd.DiscardRequest{Chief: chief, Dir: j.Dir, Checkpoints: checkpoints, Exports: exports}
		_, errs[i] = j.askUnlessMoved(ctx, i, shardcmd.Discard, r, commandTimeout) // one that takes longer goes on there
		return nil
	})
	return errors.Join(errs...)
}
