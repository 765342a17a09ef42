package hold

import (
	"context"
	"slices"
	"time"

	"github.com/monolith-go/monolith/projections/fleet"
)

// restPatience is how long the answer to a pause waits for trainers to come to rest.
const restPatience = 10 * time.Second

// Status is what a job's chief tells of it.
type Status struct {
	Job        string  `json:"job"`
	Running    bool    `json:"running"`              // started, and not stopped
	Paused     bool    `json:"paused"`               // takes no records for now
	Reason     string  `json:"reason,omitempty"`     // of the pause
	Seq        uint64  `json:"seq,omitempty"`        // of the pause, or of what the command has led to
	Blocked    []int   `json:"blocked"`              // indices of live trainers that have nothing under way in the pause
	Unblocked  []int   `json:"unblocked"`            // of the others
	GlobalStep *uint64 `json:"globalStep,omitempty"` // applies that every shard has; absent: a shard is away
	Checkpoint int64   `json:"checkpoint,omitempty"` // the newest
	Kept       []int64 `json:"kept,omitempty"`       // checkpoints that stay, however many newer ones there are
}

// Status is how the job stands; how far its shards are is not asked.
func (h *Job) Status() Status {
	j := h.job()
	st := Status{Job: h.Name, Running: runs(j), Paused: j.Paused.Seq > 0, Reason: j.Paused.Reason, Seq: j.Paused.Seq, Blocked: []int{}, Unblocked: []int{}, Kept: j.Kept}
	if n := len(j.Checkpoints); n > 0 {
		st.Checkpoint = j.Checkpoints[n-1].V.GetId()
	}
	h.Fleet.Read(func(f fleet.State) {
		for id, x := range f.Containers {
			v := x.Container.V
			if !x.Alive || !h.Takes(v) {
				continue
			}
			if _, rests := slices.BinarySearch(j.Paused.Resting, id); rests {
				st.Blocked = append(st.Blocked, int(v.GetIndex()))
			} else {
				st.Unblocked = append(st.Unblocked, int(v.GetIndex()))
			}
		}
	})
	slices.Sort(st.Blocked)
	slices.Sort(st.Unblocked)
	return st
}

// rested is the status once every live trainer rests, the job goes on, or patience ends.
func (h *Job) rested(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	for {
		moved, fleet := h.Lineage.Changed(), h.Fleet.Changed()
		st := h.Status()
		if !st.Paused || len(st.Unblocked) == 0 {
			return st
		}
		select {
		case <-moved:
		case <-fleet:
		case <-ctx.Done():
			return st
		}
	}
}
