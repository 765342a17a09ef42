package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus"
)

// callPause is between two attempts at a command that nobody answers yet.
const callPause = 50 * time.Millisecond

// Call sends a command, again and again while nobody answers it yet or whoever does is not ready,
// until ctx ends; each attempt has patience. Other refusals end it.
func Call(ctx context.Context, b bus.Bus, bzid, command string, body []byte, patience time.Duration) ([]byte, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, patience)
		reply, err := b.Commands().Call(attempt, bzid, command, body)
		cancel()
		if err == nil {
			return reply, nil
		}
		var refused *bus.CommandError
		if !bus.Retryable(err) && (!errors.As(err, &refused) || refused.Code != bus.CodeUnavailable) {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", command, errors.Join(ctx.Err(), err))
		case <-time.After(callPause):
		}
	}
}
