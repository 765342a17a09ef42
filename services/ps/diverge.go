package ps

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/vec"
)

// divergence is the problem's name in the process's health.
const divergence = "model diverged"

// errDiverged is a parameter that is no finite number: nothing can be learnt from it, and
// no table takes it back from a checkpoint.
var errDiverged = errors.New("the model has diverged")

// finite complains about rows and variables of h that are not finite. The caller holds mu.
func (s *state) finite(h *dirtyRows) error {
	for i := range h.rows {
		r := &h.rows[i]
		if vec.MaxAbs(r.values) <= math.MaxFloat32 {
			continue
		}
		for k, id := range r.ids {
			if row := r.values[k*r.dim : (k+1)*r.dim]; !(vec.MaxAbs(row) <= math.MaxFloat32) {
				return fmt.Errorf("%w: row %d of table %q is %v after step %d", errDiverged, id, r.table, row[:min(len(row), 4)], h.step)
			}
		}
	}
	for _, v := range h.dense {
		if !(vec.MaxAbs(s.dense[bandIDOf(v.GetName(), v.GetAt())].values) <= math.MaxFloat32) {
			return fmt.Errorf("%w: variable %q holds a NaN or an infinite number after step %d", errDiverged, v.GetName(), h.step)
		}
	}
	return nil
}

// diverged stops the shard from answering and says so as a fact: what it holds must reach
// neither followers nor a checkpoint. The process stays, so that it follows when the job
// returns to a checkpoint; a restart restores the newest one.
func (s *Server) diverged(ctx context.Context, why error) error {
	why = fmt.Errorf("%w: declare smaller learning rates and return with trainer.%s.restore", why, s.cfg.Job)
	s.log.Error("the shard stops answering", "err", why)
	s.env.Health.Fail(divergence, why)
	s.st.suspend(rowwire.Errorf(rowwire.Unavailable, "shard %d of job %q: %v", s.cfg.Shard, s.cfg.Job, why))
	_, err := patiently(ctx, s, "append HealthFailed", func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, busTimeout)
		defer cancel()
		return struct{}{}, s.endEpoch(ctx, &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: why.Error(), Epoch: s.ready0.GetEpoch()}}})
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("that the model diverged was not recorded", "err", err)
	}
	return nil
}
