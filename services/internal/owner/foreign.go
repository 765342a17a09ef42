package owner

import (
	"context"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/services"
)

// ParkForeign parks, until ctx ends, what others put on the subjects of an owner that
// takes no requests; hint says what they should have done. The owner goes on behind what
// it parked before.
func ParkForeign(ctx context.Context, env services.Env, owner, hint string, contexts ...string) error {
	from, err := afterParked(ctx, env.Bus.DeadLetters(), owner)
	if err != nil {
		return err
	}
	r := react.New(react.Config{
		Log: env.Bus.Log(), Letters: env.Bus.DeadLetters(), Owner: owner,
		Logger: env.Log, Tracer: env.Tracer, Metrics: env.Metrics,
	})
	r.Handle(owner+".foreign", from, foreign(env.BZID, contexts...), park(hint))
	return r.Run(ctx)
}

// foreign matches what an owner that takes no requests finds on the subjects of its
// contexts and cannot be its own: what does not decode, and every request.
func foreign(bzid string, contexts ...string) func(events.Recorded) bool {
	return func(r events.Recorded) bool {
		p, err := r.Subject.Parse()
		if err != nil || p.BZID != bzid || (r.Err == nil && !p.Request) {
			return false
		}
		return slices.Contains(contexts, p.Context)
	}
}

// park is the reaction to what foreign matches: an error for which it is parked.
func park(hint string) func(context.Context, events.Recorded) ([]bus.Draft, error) {
	return func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
		if r.Err != nil {
			return nil, r.Err
		}
		return nil, fmt.Errorf("%w: %s", events.ErrInvalid, hint)
	}
}

// afterParked is the sequence behind the last one that the owner parked, 1 without any:
// it parks in the order of the log, so nothing before is left.
func afterParked(ctx context.Context, letters bus.DeadLetters, by string) (uint64, error) {
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
