package cut

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// Each shard reads back its own part of a cut; one whose build cannot is not asked, and its part is not
// said to be verified.
func TestShardsReadBackTheirParts(t *testing.T) {
	b := newBus(t)
	all := trainertest.Shards(t, b, 5, 5)
	all[0].Bytes = 70
	c := &Cutter{Job: jobOn(t, b, 2, &trainertest.Lines{}), Name: "cut", Chief: 1}
	made, err := c.Make(t.Context(), false, func(context.Context) (int64, error) { return 7, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context(), made.Checkpoint); err != nil {
		t.Fatal(err)
	}
	if f := made.Checkpoint.GetShards(); !f[0].GetVerified() || f[1].GetVerified() || len(all[1].Checked) != 0 {
		t.Errorf("verified: %v", f)
	}
	want := shardcmd.CheckRequest{Checkpoint: 7, Dir: c.Job.Dir, Deep: true, Parts: []shardcmd.Part{{Path: "p", Hash: "h", Bytes: 70}}}
	if got := all[0].Checked; len(got) != 1 || got[0].Checkpoint != 7 || !got[0].Deep || got[0].Dir != want.Dir || !slices.Equal(got[0].Parts, want.Parts) {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	all[0].Fault = "its disk lies"
	if err := c.Verify(t.Context(), made.Checkpoint); !errors.Is(err, ErrDamaged) || Passes(err) {
		t.Errorf("a part that is damaged: %v", err)
	}
	all[0].Fault, all[0].State.Next = "", map[int32]int64{0: 6}
	if err := c.Verify(t.Context(), made.Checkpoint); !errors.Is(err, ErrDamaged) {
		t.Errorf("a part of another cut: %v", err)
	}
}

// What is held is asked of all shards, by manifests. Of a checkpoint of another number of shards each has
// all parts; a shard that is away is no damage.
func TestWhatShardsHold(t *testing.T) {
	b := newBus(t)
	all := trainertest.Shards(t, b, 5, 5)
	job := jobOn(t, b, 2, &trainertest.Lines{})
	saved := &training.Checkpoint{Id: 3, Dir: job.Dir, Offsets: map[int32]int64{0: 5}, Shards: []*training.ShardFile{{Shard: 0}, {Shard: 1}, {Shard: 2}}}
	if err := job.Holds(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if r := s.Checked; len(r) != 1 || len(r[0].Parts) != 3 || r[0].Deep {
			t.Errorf("shard %d was asked %+v", i, r)
		}
	}
	all[1].Fault = "it is not on this machine"
	if err := job.Holds(t.Context(), saved); !errors.Is(err, ErrDamaged) {
		t.Errorf("without a part: %v", err)
	}
	away := jobOn(t, newBus(t), 1, &trainertest.Lines{})
	if err := away.Holds(t.Context(), saved); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("of a shard that is away: %v", err)
	}
}

// Every shard deletes from its own disk, and one that does not is told.
func TestShardsDiscardTheirParts(t *testing.T) {
	b := newBus(t)
	all := trainertest.Shards(t, b, 5, 5)
	job := jobOn(t, b, 2, &trainertest.Lines{})
	if err := job.Discard(t.Context(), 4, nil, nil); err != nil || len(all[0].Discarded) != 0 {
		t.Errorf("nothing to delete: %v, %v", err, all[0].Discarded)
	}
	if err := job.Discard(t.Context(), 4, []int64{1, 2}, []int64{2}); err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if r := s.Discarded; len(r) != 1 || r[0].Chief != 4 || r[0].Dir != job.Dir || !slices.Equal(r[0].Checkpoints, []int64{1, 2}) || !slices.Equal(r[0].Exports, []int64{2}) {
			t.Errorf("shard %d was told %+v", i, r)
		}
	}
	all[1].Full = true
	if err := job.Discard(t.Context(), 4, []int64{1}, nil); err == nil {
		t.Error("a shard that keeps its part is passed over")
	}
}
