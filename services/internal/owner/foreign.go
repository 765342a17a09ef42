package owner

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// Foreign matches what an owner that takes no requests finds on the subjects of its
// contexts and cannot be its own: what does not decode, and every request.
func Foreign(bzid string, contexts ...string) func(events.Recorded) bool {
	return func(r events.Recorded) bool {
		p, err := r.Subject.Parse()
		if err != nil || p.BZID != bzid || (r.Err == nil && !p.Request) {
			return false
		}
		for _, c := range contexts {
			if c == p.Context {
				return true
			}
		}
		return false
	}
}

// Park is the reaction to what Foreign matches: an error for which it is parked.
func Park(hint string) func(context.Context, events.Recorded) ([]bus.Draft, error) {
	return func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		if r.Err != nil {
			return nil, r.Err
		}
		return nil, fmt.Errorf("%w: %s", events.ErrInvalid, hint)
	}
}

// AfterParked is the sequence behind the last one that the owner parked, 1 without any:
// it parks in the order of the log, so nothing before is left.
func AfterParked(ctx context.Context, letters bus.DeadLetters, by string) (uint64, error) {
	all, err := letters.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("list dead letters: %w", err)
	}
	from := uint64(1)
	for _, l := range all {
		if l.By == by {
			from = max(from, l.StreamSeq+1)
		}
	}
	return from, nil
}

// Await is false when ctx ends before ready is closed.
func Await(ctx context.Context, ready <-chan struct{}) bool {
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}
