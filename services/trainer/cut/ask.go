package cut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// ask sends one command to shard i.
func (j *Job) ask(ctx context.Context, i int, endpoint string, body any, timeout time.Duration) ([]byte, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := j.Bus.Commands().Call(ctx, j.BZID, shardcmd.Command(j.Name, i, endpoint), payload)
	if err != nil {
		return nil, fmt.Errorf("%s of shard %d: %w", endpoint, i, err)
	}
	return reply, nil
}

// askUnlessMoved is ask for what may take long. A shard that is killed meanwhile leaves its
// caller without an answer, and the chief, which waits for it, makes no other checkpoint:
// the wait is over once the shard is back as another. The other shards are waited for as
// before, since what this attempt has written is deleted behind it.
func (j *Job) askUnlessMoved(ctx context.Context, i int, endpoint string, body any, timeout time.Duration) ([]byte, error) {
	ctx, stop := j.Shards.FollowOne(ctx, i)
	defer stop()
	reply, err := j.ask(ctx, i, endpoint, body, timeout)
	if err != nil && errors.Is(context.Cause(ctx), shards.ErrMoved) {
		return nil, fmt.Errorf("%w: %s of shard %d: %w", errNotNow, endpoint, i, shards.ErrMoved)
	}
	return reply, err
}
