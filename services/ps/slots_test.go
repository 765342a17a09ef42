package ps

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/table"
)

func rowsOf(fids ...int64) (rows []table.Row) {
	for _, id := range fids {
		rows = append(rows, table.Row{ID: id})
	}
	return rows
}

func TestSlotRows(t *testing.T) {
	got := slotRows(map[string][]table.Row{
		"movie": rowsOf(modelspec.FID(2, 1), modelspec.FID(9, 1), modelspec.FID(2, 7), modelspec.FID(modelspec.MaxSlot, modelspec.MaxID)),
		"user":  rowsOf(1),
		"empty": nil,
	})
	want := []*training.SlotRows{
		{Table: "movie", Slot: 2, Rows: 2}, {Table: "movie", Slot: 9, Rows: 1}, {Table: "movie", Slot: modelspec.MaxSlot, Rows: 1},
		{Table: "user", Rows: 1}, // slot 0, as in the original's own test
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	var many []table.Row
	for slot := range uint32(maxSlots + 1) {
		many = append(many, table.Row{ID: modelspec.FID(slot, 1)})
	}
	if got := slotRows(map[string][]table.Row{"t": many}); got != nil {
		t.Errorf("%d slots are told, at most %d are", len(got), maxSlots)
	}
	if got := slotRows(map[string][]table.Row{"t": many[1:]}); len(got) != maxSlots {
		t.Errorf("%d slots are told, %d there are", len(got), maxSlots)
	}
}

func BenchmarkSlotRows(b *testing.B) {
	rows := make([]table.Row, 1_000_000)
	for i := range rows {
		rows[i].ID = modelspec.FID(uint32(i%7), int64(i))
	}
	tables := map[string][]table.Row{"t": rows}
	for b.Loop() {
		if got := slotRows(tables); len(got) != 7 {
			b.Fatal(got)
		}
	}
}
