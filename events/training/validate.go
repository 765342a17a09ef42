// Package training holds the facts of training jobs. The job's chief trainer owns them,
// each trainer those under its own name.
package training

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/events"
)

// maxTopicID bounds a topic's id: Kafka's have 22 bytes.
const maxTopicID = 64

// maxPatterns bounds what is remembered of how files were named.
const maxPatterns = 1000

// maxOverrides bounds what is kept of a run configuration, which has fewer keys.
const maxOverrides = 256

// MaxSlots bounds the slots whose rows a checkpoint names.
const MaxSlots = 1024

func checkFiles(r *events.Rules, f *FileSet) {
	r.Check(f.GetRecords() >= 0 && f.GetBytes() >= 0 && f.GetMaxSteps() >= 0, "files of %d records and %d bytes, and %d steps: none may be negative", f.GetRecords(), f.GetBytes(), f.GetMaxSteps())
	r.Check(len(f.GetPatterns()) <= maxPatterns, "files of %d patterns, at most %d are taken", len(f.GetPatterns()), maxPatterns)
}

func checkOffsets(r *events.Rules, offsets map[int32]int64) {
	for p, o := range offsets {
		r.Check(p >= 0 && o >= 0, "partition %d at offset %d: neither may be negative", p, o)
	}
}

// Validate reports the rules that e breaks on the subject of aggregate, <job> or
// <job>/<trainer>, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the job", aggregate)
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_JobStarted:
		j := b.JobStarted
		r.Check(j.GetJob() == aggregate, "the body is job %q, its subject %q", j.GetJob(), aggregate)
		r.Named("the model", j.GetModelName())
		r.Named("the topic", j.GetTopic())
		r.Check(j.GetPartitions() > 0, "a job needs partitions")
		r.Check(len(j.GetSpecHash()) <= 64, "spec hash %q is no SHA-256 in hexadecimal", j.GetSpecHash())
		r.Check(j.GetShards() > 0, "a job needs parameter-server shards")
		r.Check(len(j.GetTopicId()) <= maxTopicID, "the topic's id has %d bytes, at most %d are taken", len(j.GetTopicId()), maxTopicID)
		checkOffsets(&r, j.GetEnds())
		checkOffsets(&r, j.GetBegins())
		checkFiles(&r, j.GetFiles())
		r.Check(len(j.GetOverrides()) <= maxOverrides, "%d overrides, at most %d are kept", len(j.GetOverrides()), maxOverrides)
	case *Event_CheckpointSaved:
		c := b.CheckpointSaved.GetCheckpoint()
		r.Check(c.GetId() > 0, "a checkpoint's id must be positive")
		r.Check(filepath.IsAbs(c.GetDir()), "dir %q must be absolute", c.GetDir())
		r.Check(len(c.GetShards()) > 0, "a checkpoint needs its shards")
		for _, f := range c.GetShards() {
			r.Check(len(f.GetSlots()) == 0, "shard %d names its slots: a checkpoint has the sums of all in slots of its own", f.GetShard())
		}
		checkOffsets(&r, c.GetOffsets())
		r.Check(len(c.GetSlots()) <= MaxSlots, "rows of %d slots, at most %d are named", len(c.GetSlots()), MaxSlots)
		r.Check(ascending(b.CheckpointSaved.GetRemovedCheckpoints()), "removed checkpoints rise from 1, at most %d", maxRemoved)
		r.Check(ascending(b.CheckpointSaved.GetRemovedExports()), "removed exports rise from 1, at most %d", maxRemoved)
	case *Event_CheckpointStarted:
		r.Check(b.CheckpointStarted.GetId() > 0, "a checkpoint's id must be positive")
	case *Event_CheckpointKept:
		r.Check(b.CheckpointKept.GetId() > 0, "a checkpoint's id must be positive")
	case *Event_CheckpointReleased:
		r.Check(b.CheckpointReleased.GetId() > 0, "a checkpoint's id must be positive")
	case *Event_JobRestored:
		r.Check(b.JobRestored.GetCheckpoint() > 0, "a checkpoint's id must be positive")
		r.Reason("a restore", b.JobRestored.GetReason())
	case *Event_CheckpointFailed:
		r.Reason("a failed checkpoint", b.CheckpointFailed.GetReason())
	case *Event_ModelExported:
		m := b.ModelExported
		r.Check(m.GetVersion() > 0, "an export needs its version")
		r.Check(filepath.IsAbs(m.GetModelDir()), "model_dir %q must be absolute", m.GetModelDir())
		r.Check(len(m.GetSubModels()) > 0, "an export needs its sub-models")
		for sub, part := range m.GetParts() {
			r.Check(slices.Contains(m.GetSubModels(), sub), "part %q is no sub-model of the export", sub)
			r.Check(sha256Hex(part.GetExport()), "export %q of part %q is no SHA-256 in hexadecimal", part.GetExport(), sub)
		}
	case *Event_PartitionTaken:
		t := b.PartitionTaken
		r.Check(t.GetPartition() >= 0, "partition %d is negative", t.GetPartition())
		r.Check(t.GetEpoch() > 0, "a lease epoch is positive")
		r.Named("the trainer", t.GetTrainer())
		r.Check(t.GetLeaderEpoch() >= 0, "leader epoch %d is negative: leave out one that is not known", t.GetLeaderEpoch())
	case *Event_TopicUpdated:
		u := b.TopicUpdated
		r.Check(u.GetPartitions() >= 0, "%d partitions: the number must not be negative", u.GetPartitions())
		r.Check(u.GetPartitions() > 0 || u.GetTopicId() != "" || len(u.GetEnds()) > 0, "nothing of the topic is named")
		r.Check(len(u.GetTopicId()) <= maxTopicID, "the topic's id has %d bytes, at most %d are taken", len(u.GetTopicId()), maxTopicID)
		checkOffsets(&r, u.GetEnds())
	case *Event_HealthFailed:
		r.Check(b.HealthFailed.GetReason() != "", "a failure needs its reason")
	case *Event_TrainerPaused:
		r.Named("the trainer", b.TrainerPaused.GetTrainer())
		r.Check(b.TrainerPaused.GetPause() > 0, "a trainer pauses behind the sequence of a jobPaused, which is positive")
	case *Event_FeatureDumpStarted:
		r.Check(b.FeatureDumpStarted.GetBatches() > 0, "a dump of no batches is none")
	case *Event_FeaturesDumped:
		d := b.FeaturesDumped
		r.Named("the trainer", d.GetTrainer())
		r.Check(filepath.IsAbs(d.GetPath()), "path %q must be absolute", d.GetPath())
	case *Event_MetricReported:
		r.Named("the metric", b.MetricReported.GetName())
	}
	return r.Err()
}

// maxRemoved bounds what one fact says was deleted.
const maxRemoved = 1024

func ascending(ids []int64) bool {
	for i, id := range ids {
		if id < 1 || i > 0 && id <= ids[i-1] {
			return false
		}
	}
	return len(ids) <= maxRemoved
}

// sha256Hex says whether text is a SHA-256 in hexadecimal.
func sha256Hex(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size
}
