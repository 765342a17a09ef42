package lineage

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
)

const (
	// Kept bounds the checkpoints, and the exports, that a job's entry names: those that
	// the job has said it deleted are gone at once, and of what is left the oldest go.
	Kept = 512
	// keptCopies bounds the copies of one sub-model on one host.
	keptCopies = 64
)

// Restored is a job's last return to a checkpoint.
type Restored struct {
	Checkpoint int64  `json:"checkpoint"`
	Before     int64  `json:"before"` // greatest checkpoint id begun when the job returned
	Generation uint64 `json:"generation,omitempty"`
	SyncSeq    uint64 `json:"syncSeq,omitempty"` // assignments in deltas up to here are undone
	Seq        uint64 `json:"seq"`               // of the fact
}

// left says whether the checkpoint belongs to a timeline that the job has left.
func (r Restored) left(id int64) bool { return id > r.Checkpoint && id <= r.Before }

// Restorable lists the checkpoints of the job's timeline, the newest first: those that a
// shard may restore by itself.
func (j Job) Restorable() []*training.Checkpoint {
	var out []*training.Checkpoint
	for _, c := range j.Checkpoints {
		if !j.Restored.left(c.V.GetId()) {
			out = append(out, c.V)
		}
	}
	slices.SortFunc(out, func(a, b *training.Checkpoint) int { return cmp.Compare(b.GetId(), a.GetId()) })
	return out
}

// Left lists the checkpoints of timelines that the job has left, the newest first.
func (j Job) Left() []*training.Checkpoint {
	var out []*training.Checkpoint
	for _, c := range slices.Backward(j.Checkpoints) {
		if j.Restored.left(c.V.GetId()) {
			out = append(out, c.V)
		}
	}
	return out
}

// saved folds a checkpoint, and forgets what it says was deleted.
func (j *Job) saved(e *training.CheckpointSaved, unix int64) {
	c := e.GetCheckpoint()
	j.LastID, j.SavedUnix = max(j.LastID, c.GetId()), unix
	j.Checkpoints = without(j.Checkpoints, e.GetRemovedCheckpoints(), (*training.Checkpoint).GetId)
	j.Exports = without(j.Exports, e.GetRemovedExports(), (*training.ModelExported).GetVersion)
	j.Checkpoints = newest(append(j.Checkpoints, events.JSON[*training.Checkpoint]{V: c}))
}

// without is list without the messages of those ids, which ascend: a new one, since readers
// hold on to the old.
func without[M proto.Message](list []events.JSON[M], gone []int64, id func(M) int64) []events.JSON[M] {
	if len(gone) == 0 {
		return list
	}
	out := make([]events.JSON[M], 0, len(list))
	for _, x := range list {
		if _, found := slices.BinarySearch(gone, id(x.V)); !found {
			out = append(out, x)
		}
	}
	return out
}

// newest is the end of list, at most Kept of it.
func newest[T any](list []T) []T { return list[max(0, len(list)-Kept):] }

// copied folds a copy, and forgets the one of its sub-model on its host that was stated
// longest ago.
func (s *State) copied(c *transfer.ModelCopied) {
	key := CopyKey(c.GetModelName(), c.GetSubModel(), c.GetVersion(), c.GetHost())
	place := c.GetModelName() + "/" + c.GetSubModel() + "@" + c.GetHost()
	if s.Recent == nil {
		s.Recent = map[string][]string{}
	}
	keys := s.Recent[place]
	if _, again := s.Copies[key]; again {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == key })
	}
	if keys = append(keys, key); len(keys) > keptCopies {
		delete(s.Copies, keys[0])
		keys = slices.Clone(keys[1:])
	}
	s.Recent[place] = keys
	s.Copies[key] = events.JSON[*transfer.ModelCopied]{V: c}
}
