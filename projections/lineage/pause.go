package lineage

import (
	"slices"

	"github.com/monolith-go/monolith/events/training"
)

// Pause is a job that takes no more records for now.
type Pause struct {
	Seq     uint64   `json:"seq"`           // of jobPaused; 0: the job is not paused
	For     uint64   `json:"for,omitempty"` // sequence of the machineFailed for which the chief paused it; 0: somebody asked
	Reason  string   `json:"reason,omitempty"`
	Resting []string `json:"resting,omitempty"` // trainers that have nothing under way any more, by name
}

// maxResting bounds the names of one pause: trainers that come back under ever new names while it lasts.
const maxResting = 4096

// rests folds a trainer that pauses. Readers hold on to the old list.
func (p *Pause) rests(t *training.TrainerPaused) {
	i, known := slices.BinarySearch(p.Resting, t.GetTrainer())
	if known || t.GetPause() != p.Seq || len(p.Resting) >= maxResting {
		return
	}
	p.Resting = slices.Insert(slices.Clone(p.Resting), i, t.GetTrainer())
}
