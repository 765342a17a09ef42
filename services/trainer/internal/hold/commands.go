package hold

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

func holdReason(payload []byte, example string) (requests.Request, error) {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := role.DecodeJSON(payload, &body, example); err != nil {
		return requests.Request{}, err
	}
	return requests.Request{Reason: cmp.Or(body.Reason, "on command")}, nil
}

// HandlePause answers trainer.<job>.pause.
func (h *Job) HandlePause(ctx context.Context, payload []byte) ([]byte, error) {
	why, err := holdReason(payload, `{"reason":"the upgrade of the shards"}`)
	if err != nil {
		return nil, err
	}
	st, err := h.Pause(ctx, why)
	if err != nil {
		return nil, err
	}
	return json.Marshal(st)
}

// HandleResume answers trainer.<job>.resume.
func (h *Job) HandleResume(ctx context.Context, payload []byte) ([]byte, error) {
	why, err := holdReason(payload, `{"reason":"the shards are upgraded"}`)
	if err != nil {
		return nil, err
	}
	st, err := h.Resume(ctx, why)
	if err != nil {
		return nil, err
	}
	return json.Marshal(st)
}

// HandleStatus answers trainer.<job>.status.
func (h *Job) HandleStatus(ctx context.Context, payload []byte) ([]byte, error) {
	if err := role.DecodeJSON(payload, &struct{}{}, `{}`); err != nil {
		return nil, err
	}
	st := h.Status()
	if step, err := h.Shards.GlobalStep(ctx); err == nil {
		st.GlobalStep = &step
	}
	return json.Marshal(st)
}
