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
	// the job has said it deleted are gone at once, and of what is left the oldest go that
	// are not exempt.
	Kept = 512 + MaxExempt
	// MaxExempt bounds the checkpoints of a job that are exempt at one time.
	MaxExempt = 128
	// MaxReturned bounds the checkpoints that a job is known to have returned to.
	MaxReturned = 512
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

// returned folds a return, which stays known once its checkpoint is deleted: whoever asks for it again must learn that
// it was made. Readers hold on to the old list.
func (j *Job) returned(id int64) {
	i, known := slices.BinarySearch(j.Returned, id)
	if known || !j.onDisk(id) {
		return
	}
	j.Returned = slices.Insert(slices.Clone(j.Returned), i, id)
	if len(j.Returned) > MaxReturned {
		oldest := 0
		if i == oldest {
			oldest++
		}
		j.Returned = slices.Delete(j.Returned, oldest, oldest+1)
	}
}

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
	if j.KeptUnix == 0 {
		j.KeptUnix = unix
	}
	j.Checkpoints = without(j.Checkpoints, e.GetRemovedCheckpoints(), (*training.Checkpoint).GetId)
	j.Exports = without(j.Exports, e.GetRemovedExports(), (*training.ModelExported).GetVersion)
	j.Gone.deleted(e.GetRemovedCheckpoints(), e.GetRemovedExports())
	j.Kept = slices.DeleteFunc(slices.Clone(j.Kept), func(id int64) bool {
		return slices.Contains(e.GetRemovedCheckpoints(), id)
	})
	j.Checkpoints = firstGone(append(j.Checkpoints, events.JSON[*training.Checkpoint]{V: c}), func(c *training.Checkpoint) bool { return !j.Exempt(c.GetId()) })
}

// onDisk says whether the checkpoint is not known to be deleted.
func (j *Job) onDisk(id int64) bool {
	return slices.ContainsFunc(j.Checkpoints, func(c events.JSON[*training.Checkpoint]) bool { return c.V.GetId() == id })
}

// exported folds an export, whose version is the id of its checkpoint.
func (j *Job) exported(e *training.ModelExported) {
	j.Exports = firstGone(append(j.Exports, events.JSON[*training.ModelExported]{V: e}), func(e *training.ModelExported) bool { return !j.Exempt(e.GetVersion()) })
}

// keep folds the exemption of a checkpoint that there is. Readers hold on to the old list.
func (j *Job) keep(k *training.CheckpointKept, unix int64) {
	if k.GetByClock() {
		j.KeptUnix = unix
	}
	i, known := slices.BinarySearch(j.Kept, k.GetId())
	if known || !j.onDisk(k.GetId()) || len(j.Kept) >= MaxExempt {
		return
	}
	j.Kept = slices.Insert(slices.Clone(j.Kept), i, k.GetId())
}

// Exempt says whether the checkpoint stays on disk, however many newer ones there are.
func (j Job) Exempt(id int64) bool {
	_, kept := slices.BinarySearch(j.Kept, id)
	return kept
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

// firstGone is list without the first that may go, where it is longer than Kept. Readers hold on to the old.
func firstGone[M proto.Message](list []events.JSON[M], may func(M) bool) []events.JSON[M] {
	if len(list) <= Kept {
		return list
	}
	i := max(0, slices.IndexFunc(list, func(x events.JSON[M]) bool { return may(x.V) }))
	return slices.Concat(list[:i], list[i+1:])
}

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

// Checkpoint is the one with that id, nil if none is on disk.
func (j Job) Checkpoint(id int64) *training.Checkpoint {
	for _, c := range j.Checkpoints {
		if c.V.GetId() == id {
			return c.V
		}
	}
	return nil
}

// IDs are those of the checkpoints that are on disk, in the order in which they were saved.
func (j Job) IDs() (all []int64) {
	for _, c := range j.Checkpoints {
		all = append(all, c.V.GetId())
	}
	return all
}
