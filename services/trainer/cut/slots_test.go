package cut

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/modeldir"
)

// TestSlotCounts: shards' rows add up by table and slot, and the original's file has them by slot, also where they
// are too many for the fact.
func TestSlotCounts(t *testing.T) {
	files := []*training.ShardFile{
		{Rows: 13, Slots: []*training.SlotRows{{Table: "user", Slot: 1, Rows: 10}, {Table: "movie", Slot: 2, Rows: 3}}},
		{Shard: 1, Rows: 9, Slots: []*training.SlotRows{{Table: "movie", Slot: 2, Rows: 4}, {Table: "liked", Slot: 2, Rows: 5}}},
		{Shard: 2},
	}
	got := slotRows(files)
	want := []*training.SlotRows{{Table: "liked", Slot: 2, Rows: 5}, {Table: "movie", Slot: 2, Rows: 7}, {Table: "user", Slot: 1, Rows: 10}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, f := range files {
		if f.GetSlots() != nil {
			t.Errorf("shard %d still names its own", f.GetShard())
		}
	}
	dir := filepath.Join(t.TempDir(), "job") // which is not there on a machine without a shard
	info := func(c *training.Checkpoint) map[int32]int64 {
		t.Helper()
		if err := Info(c); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "ckpt.info-41"))
		if err != nil {
			t.Fatal(err)
		}
		var read modeldir.CkptInfo
		if err := prototext.Unmarshal(text, &read); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return read.GetSlotCounts()
	}
	c := &training.Checkpoint{Id: 41, Dir: dir, Slots: got}
	if counts := info(c); !cmp.Equal(counts, map[int32]int64{1: 10, 2: 12}) || len(c.GetSlots()) != 3 {
		t.Errorf("the file says %v, the checkpoint %v", counts, c.GetSlots())
	}
	c.Slots = nil
	for slot := range uint32(training.MaxSlots + 1) {
		c.Slots = append(c.Slots, &training.SlotRows{Table: "t", Slot: slot, Rows: 1})
	}
	if counts := info(c); len(counts) != training.MaxSlots+1 || c.GetSlots() != nil {
		t.Errorf("the file says %d slots, the checkpoint %d", len(counts), len(c.GetSlots()))
	}
}

// TestSlotsThatAreNotKnown: where one shard has rows and names no slots, nothing is said of the checkpoint's.
func TestSlotsThatAreNotKnown(t *testing.T) {
	files := []*training.ShardFile{
		{Rows: 10, Slots: []*training.SlotRows{{Table: "user", Slot: 1, Rows: 10}}},
		{Shard: 1, Rows: 12},
	}
	c := &training.Checkpoint{Id: 41, Dir: t.TempDir(), Shards: files, Slots: slotRows(files)}
	if c.GetSlots() != nil || files[0].GetSlots() != nil {
		t.Errorf("the checkpoint names %v, its first shard %v", c.GetSlots(), files[0].GetSlots())
	}
	if err := Info(c); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(c.GetDir()); err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}
