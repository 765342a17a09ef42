// Package lineage is the view of where models come from: training jobs, the cuts and
// exports they made, who learns which partition, and which copies lie on which host.
package lineage

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "lineage"
	Version = 10
)

// State is the lineage after the event at Seq.
type State struct {
	Seq     uint64                                        `json:"seq"`
	Jobs    map[string]Job                                `json:"jobs"`
	Copies  map[string]events.JSON[*transfer.ModelCopied] `json:"copies"`            // by CopyKey
	Recent  map[string][]string                           `json:"recent,omitempty"`  // "<model>/<sub-model>@<host>" -> keys of Copies, the last stated last
	Sources map[string]Source                             `json:"sources,omitempty"` // by host, of those that hand out what lies there; at most MaxSources
	Skipped fold.Skipped                                  `json:"skipped,omitempty"`
}

// Job is one training job. An entry exists as soon as anything was stored on a subject
// of the job.
type Job struct {
	Started     events.JSON[*training.JobStarted]               `json:"started,omitzero"`      // with what topicUpdated said since; nil V: not yet
	Checkpoints []events.JSON[*training.Checkpoint]             `json:"checkpoints,omitempty"` // that are not known to be deleted, in the order saved; at most Kept
	Exports     []events.JSON[*training.ModelExported]          `json:"exports,omitempty"`     // likewise, in the order made
	LastID      int64                                           `json:"lastId,omitempty"`      // greatest checkpoint id ever begun
	SavedUnix   int64                                           `json:"savedUnix,omitempty"`   // when the newest checkpoint was saved, by the log's clock
	Restored    Restored                                        `json:"restored,omitzero"`     // the last return to a checkpoint
	Returned    []int64                                         `json:"returned,omitempty"`    // checkpoints to which the job has ever returned, on disk or not, ascending; at most MaxReturned
	Gone        Gone                                            `json:"gone,omitzero"`         // what it has deleted
	Kept        []int64                                         `json:"kept,omitempty"`        // checkpoints that are exempt from the number that stays, ascending; at most MaxExempt
	KeptUnix    int64                                           `json:"keptUnix,omitempty"`    // when the clock last kept one, or the first was saved, by the log's clock
	Stopped     bool                                            `json:"stopped"`
	StoppedSeq  uint64                                          `json:"stoppedSeq,omitempty"` // of the last jobStopped; other facts of a stopped job do not move it
	Paused      Pause                                           `json:"paused,omitzero"`      // the pause that lasts
	Guarded     uint64                                          `json:"guarded,omitempty"`    // greatest sequence of a machineFailed for which the job was ever paused
	Dump        Dump                                            `json:"dump,omitzero"`        // the last that was started
	Partitions  map[int32]events.JSON[*training.PartitionTaken] `json:"partitions,omitempty"` // the highest epoch of each
	Seq         uint64                                          `json:"seq"`                  // last sequence of the subject training.<job>: what the next append expects; trainers' own subjects do not count
}

// Dump has each trainer write the features of its next batches.
type Dump struct {
	Seq     uint64 `json:"seq"` // of featureDumpStarted
	Batches uint64 `json:"batches"`
}

// New is the lineage before the first event.
func New() State {
	return State{Jobs: map[string]Job{}, Copies: map[string]events.JSON[*transfer.ModelCopied]{}}
}

// CopyKey names one copy: "<model>/<sub-model>/<version>@<host>".
func CopyKey(model, sub string, version int64, host string) string {
	return fmt.Sprintf("%s/%s/%d@%s", model, sub, version, host)
}

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	p, readable, mine := fold.Enter(&s.Seq, &s.Skipped, r, "training", "sync")
	if !mine {
		return s
	}
	known := true
	if p.Context == "sync" {
		known = !readable || s.applySync(r)
	} else {
		name, _, ofTrainer := strings.Cut(p.Aggregate, "/")
		j := s.Jobs[name]
		if !ofTrainer {
			j.Seq = r.Seq
		}
		known = !readable || j.apply(r)
		s.Jobs[name] = j
	}
	if !known {
		s.Skipped = s.Skipped.Count(fold.Unknown)
	}
	return s
}

// applySync is false for a body it does not know; so is apply.
func (s *State) applySync(r events.Recorded) bool {
	e, _ := r.Event.(*transfer.Event)
	switch b := e.GetBody().(type) {
	case *transfer.Event_ModelCopied:
		c := b.ModelCopied
		s.copied(c)
	case *transfer.Event_SourceOffered:
		s.offered(b.SourceOffered, r.Seq)
	case *transfer.Event_DeltasApplied, *transfer.Event_TargetFailed:
	default:
		return false
	}
	return true
}

func (j *Job) apply(r events.Recorded) bool {
	e, _ := r.Event.(*training.Event)
	switch b := e.GetBody().(type) {
	case *training.Event_JobStarted:
		j.Started.V, j.Stopped = b.JobStarted, false
	case *training.Event_CheckpointStarted:
		j.LastID = max(j.LastID, b.CheckpointStarted.GetId())
	case *training.Event_CheckpointSaved:
		j.saved(b.CheckpointSaved, r.Time.Unix())
	case *training.Event_ModelExported:
		j.exported(b.ModelExported)
	case *training.Event_JobRestored:
		to := b.JobRestored
		j.Restored = Restored{Checkpoint: to.GetCheckpoint(), Before: j.LastID, Generation: to.GetGeneration(), SyncSeq: to.GetSyncSeq(), Seq: r.Seq}
		j.returned(to.GetCheckpoint())
	case *training.Event_CheckpointKept:
		j.keep(b.CheckpointKept, r.Time.Unix())
	case *training.Event_CheckpointReleased:
		j.Kept = slices.DeleteFunc(slices.Clone(j.Kept), func(id int64) bool { return id == b.CheckpointReleased.GetId() })
	case *training.Event_JobStopped:
		j.Stopped, j.StoppedSeq, j.Paused = true, r.Seq, Pause{}
	case *training.Event_JobPaused:
		p := b.JobPaused
		j.Paused = Pause{Reason: p.GetReason(), Seq: r.Seq, For: p.GetMachineFailed()}
		j.Guarded = max(j.Guarded, p.GetMachineFailed())
	case *training.Event_JobResumed:
		j.Paused = Pause{}
	case *training.Event_TrainerPaused:
		j.Paused.rests(b.TrainerPaused)
	case *training.Event_FeatureDumpStarted:
		j.Dump = Dump{Seq: r.Seq, Batches: b.FeatureDumpStarted.GetBatches()}
	case *training.Event_TopicUpdated:
		j.updated(b.TopicUpdated)
	case *training.Event_PartitionTaken:
		t := b.PartitionTaken
		if j.Partitions == nil {
			j.Partitions = map[int32]events.JSON[*training.PartitionTaken]{}
		}
		if t.GetEpoch() >= j.Partitions[t.GetPartition()].V.GetEpoch() {
			j.Partitions[t.GetPartition()] = events.JSON[*training.PartitionTaken]{V: t}
		}
	case *training.Event_CheckpointRequested, *training.Event_StopRequested, *training.Event_StartRequested,
		*training.Event_PauseRequested, *training.Event_ResumeRequested, *training.Event_CheckpointFailed, *training.Event_MetricReported, *training.Event_HealthFailed, *training.Event_FeaturesDumped:
	default:
		return false
	}
	return true
}

// updated takes what of the topic belongs to the job now. Readers hold on to the old one.
func (j *Job) updated(u *training.TopicUpdated) {
	if j.Started.V == nil {
		return
	}
	b := proto.CloneOf(j.Started.V)
	if u.GetPartitions() > 0 {
		b.Partitions = u.GetPartitions()
	}
	if u.GetTopicId() != "" {
		b.TopicId = u.GetTopicId()
	}
	if len(u.GetEnds()) > 0 {
		b.Ends = u.GetEnds()
	}
	j.Started.V = b
}
