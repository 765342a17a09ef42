package ps

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// divergence is the problem's name in the process's health.
const divergence = "model diverged"

// diverged stops the shard from answering and says so as a fact: what it holds must reach
// neither followers nor a checkpoint. The process stays, so that it follows when the job
// returns to a checkpoint; a restart restores the newest one.
func (s *Server) diverged(ctx context.Context, why error) error {
	why = fmt.Errorf("%w: declare smaller learning rates and return with trainer.%s.restore", why, s.cfg.Job)
	s.log.Error("the shard stops answering", "err", why)
	s.env.Health.Fail(divergence, why)
	s.st.Suspend(rowwire.Errorf(rowwire.Unavailable, "shard %d of job %q: %v", s.cfg.Shard, s.cfg.Job, why))
	_, err := patiently(ctx, s, "append HealthFailed", func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, busTimeout)
		defer cancel()
		return struct{}{}, s.tell(ctx, &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: why.Error(), Epoch: s.ready0.GetEpoch()}}})
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("that the model diverged was not recorded", "err", err)
	}
	return nil
}
