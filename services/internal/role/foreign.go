package role

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
// takes no requests; hint says what they should have done. The reaction remembers how far
// it has come.
func ParkForeign(ctx context.Context, env services.Env, owner, hint string, contexts ...string) error {
	r := react.New(Reactions(env, owner))
	r.Handle(owner+".foreign", 1, foreign(env.BZID, contexts...), park(hint))
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

// Reactions is the configuration of an owner's reactions.
func Reactions(env services.Env, owner string) react.Config {
	return react.Config{
		Log: env.Bus.Log(), Letters: env.Bus.DeadLetters(), Owner: owner, BZID: env.BZID,
		Asked: env.Bus.Commands().Asked, Health: env.Health, Logger: env.Log, Tracer: env.Tracer, Metrics: env.Metrics,
	}
}
