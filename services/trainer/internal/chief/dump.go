package chief

import (
	"context"
	"encoding/json"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/requests"
)

// handleDump answers trainer.<job>.dump: each trainer of the job writes the features of its next batches.
func (c *Chief) handleDump(ctx context.Context, payload []byte) ([]byte, error) {
	var body struct {
		Batches uint64 `json:"batches"`
		Reason  string `json:"reason"`
	}
	if err := role.DecodeJSON(payload, &body, `{"batches":100,"reason":"a look at the features"}`); err != nil {
		return nil, err
	}
	if body.Batches == 0 {
		return nil, bus.Refuse(bus.CodeInvalid, `a dump needs a number of batches: {"batches":100}`)
	}
	_, seqs, err := c.append(ctx, requests.Request{Reason: body.Reason}, func(j lineage.Job) []*training.Event {
		if j.Started.V == nil || j.Stopped {
			return nil
		}
		return []*training.Event{{Body: &training.Event_FeatureDumpStarted{FeatureDumpStarted: &training.FeatureDumpStarted{Batches: body.Batches, Reason: body.Reason}}}}
	})
	switch {
	case err != nil:
		return nil, bus.Refuse(bus.CodeUnavailable, "dump: %v: whether it was started is not known", err)
	case len(seqs) == 0:
		return nil, bus.Refuse(bus.CodeConflict, "job %s does not run: start it first", c.Job)
	}
	return json.Marshal(map[string]any{"batches": body.Batches, "seq": seqs[0], "dir": c.Dir})
}
