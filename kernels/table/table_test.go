package table_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

func newTable(t testing.TB, dim int, o optim.Optimizer, i table.Initializer) *table.Table {
	t.Helper()
	tab, err := table.New(table.Config{Name: "user", Dim: dim, Optimizer: o, Initializer: i, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

var (
	adagrad = optim.Adagrad{LearningRate: 0.05, InitialAccumulator: 0.1}
	uniform = table.RandomUniform{Min: -0.05, Max: 0.05}
)

func TestNewRefuses(t *testing.T) {
	ok := table.Config{Name: "t", Dim: 4, Optimizer: adagrad, Initializer: uniform}
	for name, tc := range map[string]struct {
		change func(*table.Config)
		says   string
	}{
		"no name":        {func(c *table.Config) { c.Name = "" }, "no name"},
		"dim 0":          {func(c *table.Config) { c.Dim = 0 }, "dim is 0"},
		"negative dim":   {func(c *table.Config) { c.Dim = -1 }, "dim is -1"},
		"great dim":      {func(c *table.Config) { c.Dim = table.MaxDim + 1 }, "dim is 65537"},
		"no optimizer":   {func(c *table.Config) { c.Optimizer = nil }, "no optimizer"},
		"no initializer": {func(c *table.Config) { c.Initializer = nil }, "no initializer"},
	} {
		c := ok
		tc.change(&c)
		if _, err := table.New(c); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Numbers computed apart from this code, from the documented formulas.
func TestInitialValuesAreTheDocumentedOnes(t *testing.T) {
	if got := table.Key(1, "user", 42); got != 0x10d9bc2acf53692a {
		t.Errorf("Key = %#x", got)
	}
	got := make([]float32, 4)
	uniform.Init(got, table.Key(1, "user", 42))
	if want := []float32{-0.014152862131595612, -0.0467534177005291, -0.005753248929977417, 0.04453861340880394}; !slices.Equal(got, want) {
		t.Errorf("values %v, want %v", got, want)
	}
}

func TestLookupOfMissingIsZeroAndInsertsNothing(t *testing.T) {
	tab := newTable(t, 2, adagrad, uniform)
	if err := tab.Assign([]int64{5}, []float32{1, 2}, 10, 77); err != nil {
		t.Fatal(err)
	}
	out, tags := []float32{9, 9, 9, 9, 9, 9}, []uint64{9, 9, 9}
	found, err := tab.Lookup([]int64{4, 5, 5}, out, tags)
	if err != nil || found != 2 || !slices.Equal(out, []float32{0, 0, 1, 2, 1, 2}) || !slices.Equal(tags, []uint64{0, 77, 77}) {
		t.Errorf("found %d, %v, %v, %v", found, out, tags, err)
	}
	if tab.Len() != 1 {
		t.Errorf("%d rows after lookups, want 1", tab.Len())
	}
	if _, err := tab.Lookup([]int64{4, 5}, make([]float32, 3), nil); err == nil {
		t.Error("room for 3 floats was accepted for 2 ids of 2")
	}
	if _, err := tab.Lookup([]int64{4, 5}, make([]float32, 4), make([]uint64, 1)); err == nil {
		t.Error("room for one tag was accepted for 2 ids")
	}
}

func TestOptimizeSumsEqualIDsFirst(t *testing.T) {
	one, two := newTable(t, 2, adagrad, uniform), newTable(t, 2, adagrad, uniform)
	if err := one.Optimize([]int64{1, 2, 1}, []float32{.5, 1, 3, 3, .25, -2}, 5); err != nil {
		t.Fatal(err)
	}
	if err := two.Optimize([]int64{1, 2}, []float32{.75, -1, 3, 3}, 5); err != nil {
		t.Fatal(err)
	}
	if one.Hash() != two.Hash() {
		t.Error("duplicates are not the same as their sum")
	}
	row, _ := one.Rows(table.NoID, 1)
	w := make([]float32, 2)
	uniform.Init(w, table.Key(1, "user", 1))
	n := []float32{.1, .1}
	adagrad.Update(w, n, []float32{.75, -1}, optim.Step{})
	if !slices.Equal(row[0].Values, w) || !slices.Equal(row[0].Slots, n) || row[0].UnixSec != 5 {
		t.Errorf("row %+v, want %v %v at 5", row[0], w, n)
	}
}

func TestErrorsLeaveTheTableUnchanged(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tab := newTable(t, 2, adagrad, uniform)
	if err := tab.Optimize([]int64{1, 2}, []float32{1, 1, 1, 1}, 1); err != nil {
		t.Fatal(err)
	}
	before := tab.Hash()
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"short":            {tab.Optimize([]int64{1, 3}, []float32{1, 1, 1}, 2), "needs 4 floats, not 3"},
		"long":             {tab.Optimize(nil, []float32{1}, 2), "needs 0 floats, not 1"},
		"NaN":              {tab.Optimize([]int64{3, 42}, []float32{1, 1, 1, nan}, 2), "id 42 is NaN at position 1"},
		"infinite":         {tab.Optimize([]int64{3, 42}, []float32{1, 1, -inf, 0}, 2), "id 42 is -Inf"},
		"infinite in sum":  {tab.Optimize([]int64{3, 3}, []float32{3e38, 1, 3e38, 1}, 2), "id 3"},
		"beyond the bound": {tab.Optimize([]int64{3}, []float32{2e15, 1}, 2), "id 3"},
		"reserved":         {tab.Optimize([]int64{1, table.NoID}, make([]float32, 4), 2), "reserved"},
		"assign NaN":       {tab.Assign([]int64{1, 3}, []float32{5, 5, 5, nan}, 2, 2), "id 3 is NaN"},
		"assign short":     {tab.Assign([]int64{1}, []float32{5}, 2, 2), "needs 2 floats"},
		"assign reserved":  {tab.Assign([]int64{table.NoID}, []float32{5, 5}, 2, 2), "reserved"},
		"restore values":   {tab.Restore([]table.Row{{ID: 1, Values: []float32{1, 1}}, {ID: 2, Values: []float32{1}}}), "id 2 has 1 values"},
		"restore slots":    {tab.Restore([]table.Row{{ID: 1, Values: []float32{1, 1}, Slots: []float32{1}}}), "id 1 has 1 slots"},
		"restore NaN":      {tab.Restore([]table.Row{{ID: 7, Values: []float32{1, 1}, Slots: []float32{1, nan}}}), "id 7"},
		"restore reserved": {tab.Restore([]table.Row{{ID: table.NoID, Values: []float32{1, 1}}}), "reserved"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
	if tab.Hash() != before || tab.Len() != 2 {
		t.Error("a refused call changed the table")
	}
}

func TestRestoreIsWhatSnapshotSaw(t *testing.T) {
	tab := newTable(t, 3, adagrad, uniform)
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		ids, grads := make([]int64, 40), make([]float32, 120)
		for i := range ids {
			ids[i] = r.Int64N(300) - 100
		}
		for i := range grads {
			grads[i] = r.Float32() - .5
		}
		if err := tab.Optimize(ids, grads, r.Uint32()); err != nil {
			t.Fatal(err)
		}
	}
	tab.Remove([]int64{0, 1, 2, 3})
	rows := tab.Snapshot()
	if !slices.IsSortedFunc(rows, func(a, b table.Row) int { return cmp.Compare(a.ID, b.ID) }) {
		t.Error("the snapshot is not in id order")
	}
	twin := newTable(t, 3, adagrad, uniform)
	r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	if err := twin.Restore(rows); err != nil {
		t.Fatal(err)
	}
	if twin.Hash() != tab.Hash() || twin.Len() != tab.Len() {
		t.Fatal("a restored table differs")
	}
	// Every part of a row counts in the hash, the tag does not.
	for what, change := range map[string]func(*table.Row){
		"id": func(r *table.Row) { r.ID = 9999 }, "value": func(r *table.Row) { r.Values[2] += 1e-6 },
		"slot": func(r *table.Row) { r.Slots[2] += 1e-6 }, "time": func(r *table.Row) { r.UnixSec++ },
	} {
		row := twin.Snapshot()[7]
		tab.Clear()
		rest := slices.Concat(twin.Snapshot()[:7], twin.Snapshot()[8:])
		change(&row)
		if err := errors.Join(tab.Restore(rest), tab.Restore([]table.Row{row})); err != nil {
			t.Fatal(err)
		}
		if tab.Hash() == twin.Hash() {
			t.Errorf("another %s has the same hash", what)
		}
	}
	before := twin.Hash()
	row := twin.Snapshot()[7]
	row.Tag = 12345
	if err := twin.Restore([]table.Row{row}); err != nil || twin.Hash() != before {
		t.Errorf("the tag counts in the hash: %v", err)
	}
	// Without slots, as in an export, the optimizer starts afresh.
	row.Slots = nil
	if err := twin.Restore([]table.Row{row}); err != nil || !slices.Equal(twin.Snapshot()[7].Slots, []float32{.1, .1, .1}) {
		t.Errorf("slots %v, %v", twin.Snapshot()[7].Slots, err)
	}
}

func TestRowsPagesInOrder(t *testing.T) {
	tab := newTable(t, 1, optim.SGD{LearningRate: 1}, table.Zeros{})
	var want []int64
	for i := int64(-500); i < 500; i++ {
		want = append(want, i*i*i)
	}
	slices.Sort(want)
	if err := tab.Assign(want, make([]float32, len(want)), 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 7, 1000, 5000} {
		var got []int64
		after, more := int64(table.NoID), true
		for more {
			var rows []table.Row
			rows, more = tab.Rows(after, limit)
			if len(rows) > limit || len(rows) == 0 {
				t.Fatalf("%d rows for a limit of %d", len(rows), limit)
			}
			for _, r := range rows {
				got = append(got, r.ID)
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %d ids, or in another order", limit, len(got))
		}
	}
	if rows, more := tab.Rows(want[len(want)-1], 5); len(rows) != 0 || more {
		t.Error("rows behind the last")
	}
	if rows, more := tab.Rows(table.NoID, 0); len(rows) != 0 || !more {
		t.Error("a limit of 0 gave rows, or no more of them")
	}
	tab.Remove(want[:1])
	if rows, _ := tab.Rows(table.NoID, 1); rows[0].ID != want[1] {
		t.Error("a removed row is still listed")
	}
}

// The model is a plain map; places of removed rows are used again.
func TestTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, err := table.New(table.Config{Name: "m", Dim: 2, Optimizer: optim.SGD{LearningRate: 1}, Initializer: uniform, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		type row struct {
			v   [2]float32
			ts  uint32
			tag uint64
		}
		model := map[int64]row{}
		id := rapid.Int64Range(0, 40)
		t.Repeat(map[string]func(*rapid.T){
			"optimize": func(t *rapid.T) {
				ids := rapid.SliceOfN(id, 0, 6).Draw(t, "ids")
				ts := rapid.Uint32().Draw(t, "ts")
				grads := make([]float32, 2*len(ids))
				sum := map[int64][2]float32{}
				for i, k := range ids {
					g := float32(rapid.IntRange(-8, 8).Draw(t, "g")) / 8
					grads[2*i], grads[2*i+1] = g, -g
					s := sum[k]
					sum[k] = [2]float32{s[0] + g, s[1] - g}
				}
				if err := tab.Optimize(ids, grads, ts); err != nil {
					t.Fatal(err)
				}
				for k, g := range sum {
					r, ok := model[k]
					if !ok {
						uniform.Init(r.v[:], table.Key(3, "m", k))
					}
					r.v = [2]float32{r.v[0] - g[0], r.v[1] - g[1]}
					r.ts = ts
					model[k] = r
				}
			},
			"assign": func(t *rapid.T) {
				k, v, tag := id.Draw(t, "id"), rapid.Float32Range(-1, 1).Draw(t, "v"), rapid.Uint64().Draw(t, "tag")
				if err := tab.Assign([]int64{k, k}, []float32{8, 8, v, v}, 4, tag); err != nil {
					t.Fatal(err)
				}
				model[k] = row{[2]float32{v, v}, 4, tag}
			},
			"remove": func(t *rapid.T) {
				ids := rapid.SliceOfN(id, 0, 6).Draw(t, "ids")
				want := 0
				for _, k := range ids {
					if _, ok := model[k]; ok {
						want++
						delete(model, k)
					}
				}
				if got := tab.Remove(ids); got != want {
					t.Fatalf("removed %d, want %d", got, want)
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					tab.Clear()
					clear(model)
				}
			},
			"": func(t *rapid.T) {
				if tab.Len() != len(model) {
					t.Fatalf("%d rows, want %d", tab.Len(), len(model))
				}
				for _, r := range tab.Snapshot() {
					if m, ok := model[r.ID]; !ok || [2]float32(r.Values) != m.v || r.UnixSec != m.ts || r.Tag != m.tag {
						t.Fatalf("row %+v, want %+v", r, m)
					}
				}
			},
		})
	})
}

// Every writer leaves all weights of a row equal, so a reader that sees two different
// ones has seen half an update. Snapshots must hold whole calls: all rows of a call
// carry its tag.
func TestReadersSeeWholeRows(t *testing.T) {
	const dim, ids, calls = 64, 16, 400
	tab := newTable(t, dim, optim.SGD{LearningRate: 1}, table.Zeros{})
	all := make([]int64, ids)
	for i := range all {
		all[i] = int64(i)
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 2 {
		writers.Go(func() {
			block := make([]float32, ids*dim)
			for c := range calls {
				tag := uint64(w*calls + c)
				for i := range block {
					block[i] = float32(tag)
				}
				var err error
				if w == 0 {
					err = tab.Assign(all, block, 0, tag)
				} else {
					err = tab.Optimize(all, block, 0)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for r := range 2 {
		readers.Go(func() {
			out := make([]float32, ids*dim)
			for {
				select {
				case <-done:
					return
				default:
				}
				if r == 0 {
					if _, err := tab.Lookup(all, out, nil); err != nil {
						t.Error(err)
					}
				} else {
					rows := tab.Snapshot()
					for i, row := range rows {
						copy(out[i*dim:], row.Values)
						if row.Tag != rows[0].Tag {
							t.Error("a snapshot holds half a call")
						}
					}
					clear(out[len(rows)*dim:])
				}
				for i, v := range out {
					if v != out[i/dim*dim] {
						t.Error("a reader saw half an update")
						return
					}
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// The paper's Table 1: hashing into a fixed table merges users and movies.
func TestHashTrickCollides(t *testing.T) {
	for _, tc := range []struct {
		name             string
		ids, wantBuckets int
	}{{"users", 162541, 149970}, {"movies", 59047, 57361}} {
		t.Run(tc.name, func(t *testing.T) {
			h, err := table.NewHashTrick(1_000_000, 1)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[int]bool{}
			ids := make([]int64, tc.ids)
			for i := range ids {
				ids[i] = int64(i)
				seen[h.Index(int64(i))] = true
				h.Row(int64(i))[0] = float32(i)
			}
			if len(seen) != tc.wantBuckets {
				t.Errorf("%d ids share %d rows, the paper says %d", tc.ids, len(seen), tc.wantBuckets)
			}
			values := make([]float32, len(ids))
			wrong := 0
			for i := range ids {
				values[i] = float32(i)
				if h.Row(int64(i))[0] != float32(i) {
					wrong++
				}
			}
			if wrong == 0 {
				t.Error("colliding ids kept their own values")
			}
			tab := newTable(t, 1, optim.SGD{LearningRate: 1}, table.Zeros{})
			if err := tab.Assign(ids, values, 0, 0); err != nil {
				t.Fatal(err)
			}
			out := make([]float32, len(ids))
			if found, err := tab.Lookup(ids, out, nil); err != nil || found != tc.ids || tab.Len() != tc.ids || !slices.Equal(out, values) {
				t.Errorf("collisionless: found %d of %d, %d rows, %v", found, tc.ids, tab.Len(), err)
			}
		})
	}
	for _, bad := range [][2]int{{0, 1}, {-1, 1}, {1, 0}, {1, -4}, {1 << 40, 1}} {
		if _, err := table.NewHashTrick(bad[0], bad[1]); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func ExampleTable_Optimize() {
	t, err := table.New(table.Config{Name: "user", Dim: 2, Optimizer: optim.SGD{LearningRate: 0.5}, Initializer: table.Zeros{}})
	if err != nil {
		panic(err)
	}
	// Id 7 comes twice: its gradients are added up before the one update.
	if err := t.Optimize([]int64{7, 9, 7}, []float32{1, 0, 0, 2, 1, 4}, 0); err != nil {
		panic(err)
	}
	out := make([]float32, 4)
	found, _ := t.Lookup([]int64{7, 8}, out, nil)
	fmt.Println(found, out)
	// Output: 1 [-1 -2 0 0]
}
