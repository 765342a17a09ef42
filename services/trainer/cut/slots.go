package cut

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/modeldir"
)

// slotRows adds up the rows by table and slot that shards have answered, and takes them out of their answers.
func slotRows(files []*training.ShardFile) []*training.SlotRows {
	type place struct {
		table string
		slot  uint32
	}
	sums := map[place]*training.SlotRows{}
	var out []*training.SlotRows
	for _, f := range files {
		for _, s := range f.GetSlots() {
			at := place{s.GetTable(), s.GetSlot()}
			if sums[at] == nil {
				sums[at] = &training.SlotRows{Table: at.table, Slot: at.slot}
				out = append(out, sums[at])
			}
			sums[at].Rows += s.GetRows()
		}
		f.Slots = nil
	}
	slices.SortFunc(out, func(a, b *training.SlotRows) int {
		return cmp.Or(cmp.Compare(a.GetTable(), b.GetTable()), cmp.Compare(a.GetSlot(), b.GetSlot()))
	})
	return out
}

// Info writes how many rows the checkpoint has of each slot into the original's file beside it, and leaves out of
// the checkpoint's fact what are too many for one.
func Info(c *training.Checkpoint) error {
	counts := map[int32]int64{}
	for _, s := range c.GetSlots() {
		counts[int32(s.GetSlot())] += int64(s.GetRows())
	}
	if len(c.GetSlots()) > training.MaxSlots {
		c.Slots = nil
	}
	return modeldir.WriteInfo(filepath.Join(c.GetDir(), infoFile(c.GetId())), counts)
}

// infoFile is its name below the job's folder.
func infoFile(id int64) string { return modeldir.InfoName(uint64(id)) }
