package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

const (
	// callTimeout bounds one attempt; it outlasts the longest hold of a checkpoint.
	callTimeout = 15 * time.Second
	// lookAgain is how often a shard that does not answer is looked up and asked again.
	lookAgain = 100 * time.Millisecond
	// longestLook is how seldom that is after many attempts.
	longestLook = time.Second
)

// illAfter is how many attempts without an answer are told: some are lost whenever a
// shard comes back.
const illAfter = 10

// Call asks shard i until it answers or refuses; while nobody answers it tries again at
// whatever address the shard has by then. A refusal is a *rowwire.Error.
func Call[R any](ctx context.Context, s *Set, i int, ask func(context.Context, rowwire.Conn) (R, error)) (R, error) {
	var zero R
	pauses := retry.New(lookAgain, longestLook)
	for tries := 1; ; tries++ {
		changed := s.fleet.Changed()
		addr, near, err := s.Address(i)
		if err != nil {
			return zero, err
		}
		err = errors.New("it is not there, or not ready")
		if addr != "" {
			var r R
			r, err = attempt(ctx, s, addr, near, ask)
			if err == nil {
				s.answers(i, nil)
				return r, nil
			}
			if ctx.Err() != nil {
				return zero, context.Cause(ctx)
			}
			if rowwire.CodeOf(err) != rowwire.Unavailable {
				s.answers(i, nil)
				return zero, fmt.Errorf("shard %d: %w", i, err)
			}
			s.retries.Inc()
		}
		if tries >= illAfter {
			s.answers(i, err)
		}
		t := time.NewTimer(pauses.Next())
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
			t.Stop()
			return zero, context.Cause(ctx)
		}
		t.Stop()
	}
}

func attempt[R any](ctx context.Context, s *Set, addr string, near []string, ask func(context.Context, rowwire.Conn) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.pool.Get(ctx, addr, near...)
	if err != nil {
		var zero R
		return zero, err
	}
	s.requests.WithLabelValues(c.Road()).Inc()
	return ask(ctx, c)
}
