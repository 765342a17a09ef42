package table

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/optim"
)

// scanned pages through the table; between calls change has its way.
func scanned(t *testing.T, tab *Table, limit int, change func()) (ids []int64) {
	t.Helper()
	after := int64(NoID)
	for {
		rows, more := tab.Rows(after, limit)
		if len(rows) > limit {
			t.Fatalf("%d rows in a page of %d", len(rows), limit)
		}
		for _, r := range rows {
			if r.ID <= after {
				t.Fatalf("id %d came behind %d", r.ID, after)
			}
			after = r.ID
			ids = append(ids, r.ID)
		}
		if !more {
			return ids
		}
		change()
	}
}

// TestPagesOfAChangingTable: every row that is there all the time comes exactly once, in
// order, whatever comes and goes between the pages and during them.
func TestPagesOfAChangingTable(t *testing.T) {
	for _, limit := range []int{1, 7, 100, 5000} {
		tab, err := New(Config{Name: "t", Segments: []Segment{{Dim: 1, Optimizer: sgd(t), Initializer: Zeros{}}}})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(3, uint64(limit)))
		add := func(id int64) {
			if err := tab.OptimizeAt([]int64{id}, []float32{1}, 1, Rates{}); err != nil {
				t.Fatal(err)
			}
		}
		var want []int64
		for range 700 {
			want = append(want, int64(r.Uint64()>>1)&^1) // even ones stay
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for _, id := range want {
			add(id)
		}
		check := func(what string, got []int64) {
			t.Helper()
			even := slices.DeleteFunc(slices.Clone(got), func(id int64) bool { return id&1 == 1 })
			if !slices.Equal(even, want) {
				t.Errorf("limit %d, %s: %d rows of %d", limit, what, len(even), len(want))
			}
		}
		check("at rest", scanned(t, tab, limit, func() {}))
		check("at rest again", scanned(t, tab, limit, func() {}))
		check("changing between pages", scanned(t, tab, limit, func() { add(int64(r.Uint64()>>1) | 1) }))
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(9, 9))
			for range 3000 { // a page looks at each row, so without a bound a slow reader never ends
				select {
				case <-stop:
					return
				default:
					_ = tab.OptimizeAt([]int64{int64(rnd.Uint64()>>1) | 1}, []float32{1}, 1, Rates{})
				}
			}
		})
		check("changing during pages", scanned(t, tab, limit, func() {}))
		close(stop)
		wg.Wait()
	}
}

// TestAPageOfAChangingTableSortsNotAll: of a table to which rows come all the time, a page
// costs a look at each row and no sort of them all.
func TestAPageOfAChangingTableSortsNotAll(t *testing.T) {
	tab, err := New(Config{Name: "t", Segments: []Segment{{Dim: 1, Optimizer: sgd(t), Initializer: Zeros{}}}})
	if err != nil {
		t.Fatal(err)
	}
	const n = 300_000
	ids, grads := make([]int64, 1000), make([]float32, 1000)
	r := rand.New(rand.NewPCG(1, 2))
	for range n / len(ids) {
		for i := range ids {
			ids[i] = int64(r.Uint64() >> 1)
		}
		if err := tab.OptimizeAt(ids, grads, 1, Rates{}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if tab.ids(); tab.sortAt == 0 {
		t.Fatal("nothing was sorted")
	}
	sorting, after := time.Since(began), int64(NoID)
	began = time.Now()
	const pages = 20
	for page := range pages {
		if err := tab.OptimizeAt([]int64{int64(page)}, []float32{1}, 1, Rates{}); err != nil {
			t.Fatal(err)
		}
		sorted := tab.sortAt
		rows, more := tab.Rows(after, 1000)
		if len(rows) != 1000 || !more || tab.sortAt != sorted {
			t.Fatalf("page %d: %d rows, more %v, sorted at %d before and %d after", page, len(rows), more, sorted, tab.sortAt)
		}
		after = rows[len(rows)-1].ID
	}
	t.Logf("a sort of all takes %v, a page %v", sorting, time.Since(began)/pages)
}

func sgd(t *testing.T) optim.Optimizer {
	t.Helper()
	o, err := optim.NewSGD(1)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A page whose rows all went while it was made is no end: the next one is looked at.
func TestAPageOfRowsThatWent(t *testing.T) {
	tab := plainTable(t, 1)
	for range 2 { // as it changes, and as it stays
		if rows, more := tab.Rows(NoID, 5); len(rows) != 0 || more {
			t.Errorf("an empty table has %d rows, more: %v", len(rows), more)
		}
	}
	if err := tab.Assign([]int64{5, 6, 9}, make([]float32, 3), 1, 0); err != nil {
		t.Fatal(err)
	}
	// As if 1 to 4 and 7 had gone between the list of ids and a look at their rows.
	tab.sorted, tab.sortAt = []int64{1, 2, 3, 4, 5, 6, 7, 9}, tab.form.Load()
	if got := scanned(t, tab, 2, func() {}); !slices.Equal(got, []int64{5, 6, 9}) {
		t.Errorf("rows %v, want 5, 6 and 9", got)
	}
	for after, want := range map[int64]struct {
		ids  []int64
		more bool
	}{NoID: {[]int64{5, 6}, true}, 2: {[]int64{5, 6}, true}, 5: {[]int64{6}, true}, 6: {[]int64{9}, false}} {
		var got []int64
		rows, more := tab.Rows(after, 2)
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want.ids) || more != want.more {
			t.Errorf("behind %d: %v, more %v; want %v", after, got, more, want)
		}
	}
}
