package itempool

import (
	"testing"

	"github.com/monolith-go/monolith/internal/model/samplerule"
)

// An item that comes often is not drawn more often than others.
func TestEachItemIsDrawnOnce(t *testing.T) {
	p := New()
	of := func(int) samplerule.Negatives { return samplerule.Negatives{Count: 1, Items: 1000, Records: 1000} }
	for offset := range int64(400) {
		key := int64(1)
		if offset%4 == 3 {
			key = 2 + offset/4%4
		}
		p.Put(offset, []Found{{0, Item{Key: key}}}, of)
	}
	count := map[int64]int{}
	for k := range uint64(2000) {
		item, ok := p.Draw(0, 400, 5, k*0x9e3779b97f4a7c15)
		if !ok {
			t.Fatal("nothing is drawn")
		}
		count[item.Key]++
	}
	if count[5] > 0 || len(count) != 4 {
		t.Fatalf("%v", count)
	}
	for key, n := range count {
		if n < 350 || n > 650 {
			t.Errorf("item %d is drawn %d of 2000 times, of four", key, n)
		}
	}
}

// What no later record can draw is forgotten.
func TestTrim(t *testing.T) {
	p := New()
	of := func(int) samplerule.Negatives { return samplerule.Negatives{Count: 1, Items: 20, Records: 50} }
	for offset := range int64(200) {
		p.Put(offset, []Found{{0, Item{Key: offset % 7}}}, of)
	}
	p.Trim(200)
	if r := p.rules[0]; len(r.items) != 20 || r.items[0].offset != 180 || len(r.newest) != 7 {
		t.Errorf("%d items are kept from offset %d on, of %d keys; 20 are drawn", len(r.items), r.items[0].offset, len(r.newest))
	}
}
