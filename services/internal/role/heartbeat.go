package role

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/services"
)

const (
	// heartbeatTimeout bounds one call, below the time after which the registry gives a
	// silent container up.
	heartbeatTimeout = 2 * time.Second
	// heartbeatProblem is the name of the problem of a container whose heartbeats nobody
	// answers: nobody is sent to it any more.
	heartbeatProblem = "heartbeats"
)

// Heartbeats tell the replica-registry that a container is alive, and what it serves.
type Heartbeats struct {
	env     services.Env
	every   time.Duration
	current func() *replica.Heartbeat
	pulse   replica.Pulse
	soon    chan struct{} // holds one token while there is news

	// Answered, if any, is called after each call, with its error.
	Answered func(error)
}

// NewHeartbeats starts nothing. Current makes the next heartbeat, without what Pulse and
// Health add; nil: there is nothing to tell yet.
func NewHeartbeats(env services.Env, every time.Duration, current func() *replica.Heartbeat) *Heartbeats {
	return &Heartbeats{env: env, every: every, current: current, soon: make(chan struct{}, 1)}
}

// Soon has the next heartbeat sent at once: there is news.
func (h *Heartbeats) Soon() {
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

// Run sends a heartbeat at once, every interval, and after Soon, until ctx ends. One that is
// not answered is a matter of the log and of the role's health: the registry may come later.
func (h *Heartbeats) Run(ctx context.Context) {
	t := time.NewTicker(h.every)
	defer t.Stop()
	attempts := h.env.Health.Attempts(heartbeatProblem)
	defer attempts.Succeeded() // nobody tries any more
	failed := 0
	for {
		err := h.send(ctx, false)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failed > 0:
			h.env.Log.Info("the replica-registry answers heartbeats again")
			failed = 0
			attempts.Succeeded()
		case err != nil:
			if failed = attempts.Failed(err); failed == 1 {
				h.env.Log.Warn("the replica-registry does not answer heartbeats; going on", "err", err)
			}
		}
		select {
		case <-t.C:
		case <-h.soon:
		case <-ctx.Done():
			return
		}
	}
}

// Leave says that the container leaves, after Run. Without an answer the registry finds out
// by itself, a time-out later.
func (h *Heartbeats) Leave(ctx context.Context) {
	if err := h.send(context.WithoutCancel(ctx), true); err != nil {
		h.env.Log.Info("the replica-registry was not told that this container leaves; it will notice", "err", err)
	}
}

func (h *Heartbeats) send(ctx context.Context, leaving bool) error {
	beat := h.current()
	if beat == nil {
		return nil
	}
	beat.Leaving = leaving
	h.pulse.Stamp(beat)
	beat.Container.Problem = h.env.Health.Summary(heartbeatProblem) // which is over once this arrives
	body, err := events.Marshal(beat)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	_, err = h.env.Bus.Commands().Call(ctx, h.env.BZID, "pulse.registry.heartbeat", body)
	if h.Answered != nil {
		h.Answered(err)
	}
	return err
}
