package ps

import (
	"maps"
	"slices"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
)

// maxSlots bounds what a shard's answer names: ids of that many slots are no model's, but a sender's mistake.
const maxSlots = 8192

// slotRows counts the rows of each table by slot, tables by name and slots ascending; nil where they are of too
// many slots to be told, and then the chief tells none of the checkpoint's.
func slotRows(tables map[string][]table.Row) (out []*training.SlotRows) {
	counts := make([]uint64, modelspec.MaxSlot+1)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		clear(counts)
		rows := tables[name]
		for i := range rows {
			counts[modelspec.SlotOf(rows[i].ID)&modelspec.MaxSlot]++
		}
		for slot, n := range counts {
			if n > 0 {
				out = append(out, &training.SlotRows{Table: name, Slot: uint32(slot), Rows: n})
			}
		}
	}
	if len(out) > maxSlots {
		return nil
	}
	return out
}
