package lineage_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/projections/lineage"
)

// fold appends facts of job j, one a minute.
type fold struct {
	s   lineage.State
	seq uint64
}

func (f *fold) add(e *training.Event) {
	f.seq++
	f.s = lineage.Fold(f.s, events.Recorded{Seq: f.seq, Time: time.Unix(int64(60*f.seq), 0), Subject: events.Join("b", "training", "j"), Event: e})
}

func (f *fold) saved(id int64, removed ...int64) {
	c := &training.Checkpoint{Id: id, Dir: "/srv/training/movies", Offsets: map[int32]int64{0: id, 1: id}}
	for k := range uint32(2) {
		c.Shards = append(c.Shards, &training.ShardFile{Shard: k, Path: fmt.Sprintf("model.ckpt-%d/ps_%d", id, k), Hash: fmt.Sprintf("%064d", id)})
	}
	f.add(&training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{Checkpoint: c, RemovedCheckpoints: removed, RemovedExports: removed}}})
	f.add(&training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: id, ModelDir: "/srv/training/movies/exported_models", SubModels: []string{"entry", "ps_0", "ps_1"}}}})
}

func (f *fold) restored(id int64) {
	f.add(&training.Event{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{Checkpoint: id, Reason: "r"}}})
}

// TestALongLogOfCheckpointsStaysSmall: what a job says it deleted leaves the view, and of a
// log that never says so the newest Kept stay, so that every follower's memory, its
// snapshots and the chief's sweep have a bound.
func TestALongLogOfCheckpointsStaysSmall(t *testing.T) {
	const n = 20 * lineage.Kept
	for name, keep := range map[string]int64{"deletions are told": 5, "nothing is told": math.MaxInt64} {
		t.Run(name, func(t *testing.T) {
			f := &fold{s: lineage.New()}
			most := 0
			for id := int64(1); id <= n; id++ {
				var removed []int64
				if id > keep {
					removed = []int64{id - keep}
				}
				f.saved(id, removed...)
				j := f.s.Jobs["j"]
				most = max(most, len(j.Checkpoints), len(j.Exports))
			}
			j := f.s.Jobs["j"]
			if want := int(min(keep, lineage.Kept)); most > want+1 || len(j.Checkpoints) != want || len(j.Exports) < want {
				t.Errorf("%d checkpoints, %d exports, up to %d; want %d", len(j.Checkpoints), len(j.Exports), most, want)
			}
			if j.LastID != n || j.Checkpoints[len(j.Checkpoints)-1].V.GetId() != n {
				t.Errorf("the newest is lost: last id %d", j.LastID)
			}
			text, err := json.Marshal(f.s)
			if err != nil || len(text) > lineage.Kept*1024 {
				t.Errorf("a snapshot of %d bytes, %v", len(text), err)
			}
		})
	}
}

// TestReadersKeepWhatTheyRead: a fold changes no list that a reader still holds.
func TestReadersKeepWhatTheyRead(t *testing.T) {
	f := &fold{s: lineage.New()}
	for id := int64(1); id <= 10; id++ {
		f.saved(id)
	}
	read := f.s.Jobs["j"]
	for id := int64(11); id <= 20; id++ {
		f.saved(id, id-10)
	}
	for i, c := range read.Checkpoints {
		if c.V.GetId() != int64(i+1) || read.Exports[i].V.GetVersion() != int64(i+1) {
			t.Fatalf("a reader's place %d became checkpoint %d", i, c.V.GetId())
		}
	}
}

// TestRestorable: a return to a checkpoint leaves what came after it, however often and in
// whichever direction the job returns.
func TestRestorable(t *testing.T) {
	f := &fold{s: lineage.New()}
	expect := func(what string, want, left []int64) {
		t.Helper()
		ids := func(cs []*training.Checkpoint) (ids []int64) {
			for _, c := range cs {
				ids = append(ids, c.GetId())
			}
			return ids
		}
		j := f.s.Jobs["j"]
		if got := ids(j.Restorable()); !slices.Equal(got, want) {
			t.Errorf("%s: restorable are %v, want %v", what, got, want)
		}
		if got := ids(j.Left()); !slices.Equal(got, left) {
			t.Errorf("%s: left are %v, want %v", what, got, left)
		}
	}
	expect("nothing was saved", nil, nil)
	for id := int64(1); id <= 4; id++ {
		f.saved(id)
	}
	expect("as saved", []int64{4, 3, 2, 1}, nil)
	f.add(&training.Event{Body: &training.Event_CheckpointStarted{CheckpointStarted: &training.CheckpointStarted{Id: 5}}})
	f.restored(2)
	expect("back to 2", []int64{2, 1}, []int64{4, 3})
	f.saved(5) // begun before the return, saved after it: of the timeline that was left
	expect("a late save", []int64{2, 1}, []int64{5, 4, 3})
	f.saved(6)
	f.saved(7)
	expect("onwards", []int64{7, 6, 2, 1}, []int64{5, 4, 3})
	f.restored(4)
	expect("the other way", []int64{4, 3, 2, 1}, []int64{7, 6, 5})
	if j := f.s.Jobs["j"]; j.Restored.Seq != f.seq || j.LastID != 7 {
		t.Errorf("restored at %d, last id %d", j.Restored.Seq, j.LastID)
	}
}

// TestCopiesAreBounded: a host's old copies of a sub-model leave the view, the one stated
// longest ago first, and others' stay.
func TestCopiesAreBounded(t *testing.T) {
	s, seq := lineage.New(), uint64(0)
	copied := func(sub, host string, version int64) {
		seq++
		c := &transfer.ModelCopied{ModelName: "m", SubModel: sub, Version: version, Host: host, Path: "/c"}
		s = lineage.Fold(s, events.Recorded{Seq: seq, Subject: events.Join("b", "sync", "m/"+sub+"/"+host), Event: &transfer.Event{Body: &transfer.Event_ModelCopied{ModelCopied: proto.CloneOf(c)}}})
	}
	copied("ps_0", "other", 1)
	for v := int64(1); v <= 1000; v++ {
		copied("ps_0", "host", v)
		copied("ps_0", "host", 1) // a model rolled back again and again
	}
	_, rolled := s.Copies[lineage.CopyKey("m", "ps_0", 1, "host")]
	_, newest := s.Copies[lineage.CopyKey("m", "ps_0", 1000, "host")]
	_, other := s.Copies[lineage.CopyKey("m", "ps_0", 1, "other")]
	if len(s.Copies) > 100 || !rolled || !newest || !other {
		t.Errorf("%d copies; the one in use %v, the newest %v, another host's %v", len(s.Copies), rolled, newest, other)
	}
}
