package trainer

import (
	"context"
	"time"
)

const (
	pauseAfterError     = time.Second           // of the chief, between attempts at what it leads
	pauseBeforeCommands = 20 * time.Millisecond // a shard that is ready takes commands within about this time
)

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
