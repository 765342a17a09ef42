package cut

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/modeldir"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

// slotRows adds up the rows by table and slot that shards have answered, and takes them out of their answers. It is
// nil where a shard with rows names none, as one of an earlier build or with too many slots to be told: the sum of the
// others is not the checkpoint's.
func slotRows(files []*training.ShardFile) []*training.SlotRows {
	type place struct {
		table string
		slot  uint32
	}
	sums := map[place]*training.SlotRows{}
	var out []*training.SlotRows
	known := true
	for _, f := range files {
		for _, s := range f.GetSlots() {
			at := place{s.GetTable(), s.GetSlot()}
			if sums[at] == nil {
				sums[at] = &training.SlotRows{Table: at.table, Slot: at.slot}
				out = append(out, sums[at])
			}
			sums[at].Rows += s.GetRows()
		}
		known = known && (f.GetRows() == 0 || len(f.GetSlots()) > 0)
		f.Slots = nil
	}
	if !known {
		return nil
	}
	slices.SortFunc(out, func(a, b *training.SlotRows) int {
		return cmp.Or(cmp.Compare(a.GetTable(), b.GetTable()), cmp.Compare(a.GetSlot(), b.GetSlot()))
	})
	return out
}

// Info writes how many rows the checkpoint has of each slot into the original's file beside it, and leaves out of
// the checkpoint's fact what are too many for one. There is no such file where the rows' slots are not known.
func Info(c *training.Checkpoint) error {
	if len(c.GetSlots()) == 0 && slices.ContainsFunc(c.GetShards(), func(f *training.ShardFile) bool { return f.GetRows() > 0 }) {
		return nil
	}
	counts := map[int32]int64{}
	for _, s := range c.GetSlots() {
		counts[int32(s.GetSlot())] += int64(s.GetRows())
	}
	if len(c.GetSlots()) > training.MaxSlots {
		c.Slots = nil
	}
	if err := durable.MkdirAll(c.GetDir(), 0o755); err != nil { // the shards' machines have it, this one may not
		return err
	}
	return modeldir.WriteInfo(filepath.Join(c.GetDir(), checkpoint.InfoName(c.GetId())), counts)
}
