package table_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

func make1[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSegmentsFollowTheirOwnRules(t *testing.T) {
	tab := make1[*table.Table](t)(table.New(table.Config{Name: "seg", Seed: 4, Segments: []table.Segment{
		{Dim: 1, Optimizer: optim.SGD{LearningRate: 1}, Initializer: table.Zeros{}},
		{Dim: 3, Optimizer: adagrad, Initializer: uniform},
		{Dim: 2, Optimizer: adagrad, Initializer: uniform},
	}}))
	if tab.Dim() != 6 || tab.SlotSize() != 5 {
		t.Fatalf("dim %d, %d slots", tab.Dim(), tab.SlotSize())
	}
	g := []float32{1, 2, 3, 4, 5, 6}
	if err := tab.OptimizeAt([]int64{9}, g, 3, table.Rates{LearningRates: []float32{0.5, 0, 2}, GlobalStep: 7}); err != nil {
		t.Fatal(err)
	}
	fresh := make1[*table.Table](t)(table.New(table.Config{Name: "seg", Seed: 4, Dim: 3, Optimizer: adagrad, Initializer: uniform}))
	if err := fresh.Optimize([]int64{9}, g[1:4], 3); err != nil {
		t.Fatal(err)
	}
	rows, ok := tab.LookupEntries([]int64{9, 10})
	if !ok[0] || ok[1] || rows[1].ID != 10 {
		t.Fatal(ok, rows)
	}
	v, n := rows[0].Values, rows[0].Slots
	if v[0] != -.5 {
		t.Errorf("the first segment is %g, want -0.5", v[0])
	}
	w, slots := slices.Clone(v[1:4]), []float32{.1, .1, .1}
	start := make1[[]bool](t)(tab.Reinitialize([]int64{9, 10, 10}, 5))
	if !slices.Equal(start, []bool{true, false, true}) {
		t.Errorf("reinitialize says %v", start)
	}
	rows, _ = tab.LookupEntries([]int64{9})
	first := slices.Clone(rows[0].Values)
	adagrad.Update(rows[0].Values[1:4], slots, g[1:4], optim.Step{})
	if !slices.Equal(rows[0].Values[1:4], w) || !slices.Equal(slots, n[:3]) {
		t.Errorf("the second segment: %v %v, want %v %v", w, n[:3], rows[0].Values[1:4], slots)
	}
	slots = []float32{.1, .1}
	adagrad.Update(first[4:6], slots, g[4:6], optim.Step{LearningRate: 2})
	if !slices.Equal(first[4:6], v[4:6]) || !slices.Equal(slots, n[3:]) {
		t.Errorf("the third segment: %v %v, want %v %v", v[4:6], n[3:], first[4:6], slots)
	}
	if first[1] == first[4] {
		t.Error("two segments drew the same numbers")
	}
	for _, bad := range []table.Rates{{LearningRates: []float32{1}}, {LearningRates: []float32{1, 1, -1}}, {LearningRates: []float32{1, 1, float32(math.NaN())}}} {
		if err := tab.OptimizeAt([]int64{9}, g, 3, bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestLayoutsAreRefused(t *testing.T) {
	seg := table.Segment{Dim: 2, Optimizer: adagrad, Initializer: uniform}
	for name, c := range map[string]table.Config{
		"both segments":            {Name: "t", Dim: 2, Segments: []table.Segment{seg}},
		"no segments":              {Name: "t", Segments: []table.Segment{}},
		"segment 1: dim is 65535":  {Name: "t", Segments: []table.Segment{seg, {Dim: table.MaxDim - 1, Optimizer: adagrad, Initializer: uniform}}},
		"segment 1: no optimizer":  {Name: "t", Segments: []table.Segment{seg, {Dim: 2, Initializer: uniform}}},
		"no compressor":            {Name: "t", Dim: 2, Serving: true},
		"cannot skip zero":         {Name: "t", Dim: 2, Optimizer: adagrad, Initializer: uniform, SkipZero: true},
		"capacity is -1":           {Name: "t", Dim: 2, Optimizer: adagrad, Initializer: uniform, Capacity: -1},
		"limits of -1 rows":        {Name: "t", Dim: 2, Optimizer: adagrad, Initializer: uniform, MaxRows: -1},
		"limits of 0 rows and -5 ": {Name: "t", Dim: 2, Optimizer: adagrad, Initializer: uniform, MaxBytes: -5},
	} {
		if _, err := table.New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServingRowsAreCompressed(t *testing.T) {
	for _, c := range []table.Compressor{compress.FP32{}, compress.FP16{}, make1[compress.FixedR8](t)(compress.NewFixedR8(1)), make1[compress.OneBit](t)(compress.NewOneBit(200, 1, 1e4, .1))} {
		for _, dim := range []int{1, 7, 16, 64, 90} {
			t.Run(fmt.Sprint(c.Name(), dim), func(t *testing.T) {
				tab := make1[*table.Table](t)(table.New(table.Config{Name: "s", Dim: dim, Compressor: c, Serving: true}))
				r := rand.New(rand.NewPCG(1, uint64(dim)))
				ids, v := make([]int64, 300), make([]float32, 300*dim)
				want := make([]float32, len(v))
				for i := range ids {
					ids[i] = int64(i * i)
					row := v[i*dim : (i+1)*dim]
					for j := range row {
						row[j] = r.Float32() - .5
					}
					b := make([]byte, c.Size(dim))
					c.Encode(b, row)
					c.Decode(want[i*dim:(i+1)*dim], b)
				}
				if err := tab.Assign(ids, v, 1, 2); err != nil {
					t.Fatal(err)
				}
				got := make([]float32, len(v))
				if n, err := tab.Lookup(ids, got, nil); n != len(ids) || err != nil || !slices.Equal(got, want) {
					t.Fatal(n, err)
				}
				if err := tab.Optimize(ids, v, 1); err == nil {
					t.Error("a serving table learnt")
				}
				if _, err := tab.Reinitialize(ids, 1); err == nil {
					t.Error("a serving table was reinitialized")
				}
				// A training row's slots are of no use here.
				if err := tab.Restore([]table.Row{{ID: 5, Values: v[:dim], Slots: []float32{1}}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestTrainingSeesQuantizedRows(t *testing.T) {
	q := make1[compress.OneBit](t)(compress.NewOneBit(10, 1, 100, .5))
	tab := make1[*table.Table](t)(table.New(table.Config{Name: "q", Dim: 2, Optimizer: optim.SGD{LearningRate: 1}, Initializer: table.Zeros{}, Compressor: q}))
	if err := tab.Assign([]int64{1}, []float32{.25, -2}, 1, 0); err != nil {
		t.Fatal(err)
	}
	g, w := []float32{1, 1}, []float32{.25, -2}
	if err := tab.OptimizeAt([]int64{1}, g, 1, table.Rates{GlobalStep: 400}); err != nil {
		t.Fatal(err)
	}
	q.Grade(g, w, 400)
	want := []float32{.25 - g[0], -2 - g[1]}
	rows, _ := tab.LookupEntries([]int64{1})
	if !slices.Equal(rows[0].Values, want) {
		t.Errorf("the row is %v, want %v", rows[0].Values, want)
	}
	out := make([]float32, 2)
	if _, err := tab.Lookup([]int64{1}, out, nil); err != nil {
		t.Fatal(err)
	}
	q.Look(want, want, 400)
	if !slices.Equal(out, want) {
		t.Errorf("lookup %v, want %v", out, want)
	}
}

func TestSkipZero(t *testing.T) {
	tab := make1[*table.Table](t)(table.New(table.Config{Name: "z", Dim: 2, Compressor: compress.FP32{}, Serving: true, SkipZero: true}))
	if err := tab.Assign([]int64{1, 2, 3}, []float32{1, 0, 0, 1e-30, 0, 1e-15}, 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, ok := tab.LookupEntries([]int64{1, 2, 3}); !slices.Equal(ok, []bool{true, false, true}) {
		t.Errorf("kept %v", ok)
	}
	if err := tab.AssignAdd([]int64{1}, []float32{-1, 0}, 1, 0); err != nil || tab.Len() != 1 {
		t.Errorf("%d rows, %v", tab.Len(), err)
	}
	err := tab.Restore([]table.Row{{ID: 3, Values: []float32{0, 0}}, {ID: 4, Values: []float32{0, 0}}, {ID: 4, Values: []float32{1, 0}}})
	if _, ok := tab.LookupEntries([]int64{3, 4}); err != nil || !slices.Equal(ok, []bool{false, true}) {
		t.Errorf("kept %v, %v", ok, err)
	}
	// A format that has no zero drops them all the same.
	bit := make1[compress.OneBit](t)(compress.NewOneBit(200, 1, 10, .5))
	tab = make1[*table.Table](t)(table.New(table.Config{Name: "b", Dim: 2, Compressor: bit, Serving: true, SkipZero: true}))
	if err := tab.Assign([]int64{1, 2, 1, 3}, []float32{0, 0, 0, 0, 1, 0, 3, 3}, 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, ok := tab.LookupEntries([]int64{1, 2, 3}); !slices.Equal(ok, []bool{true, false, true}) {
		t.Errorf("of bits, kept %v", ok)
	}
}

type admitOdd map[int64]uint32

func (a admitOdd) Admit(id int64, count uint32) bool { a[id] += count; return id%2 != 0 }

func TestAdmission(t *testing.T) {
	asked := admitOdd{}
	tab := make1[*table.Table](t)(table.New(table.Config{Name: "a", Dim: 1, Optimizer: optim.SGD{LearningRate: 1}, Initializer: table.Zeros{}, Admitter: asked}))
	if err := tab.Optimize([]int64{1, 2, 3, 2, 2}, make([]float32, 5), 1); err != nil {
		t.Fatal(err)
	}
	if asked[2] != 3 || asked[1] != 1 || tab.Len() != 2 {
		t.Errorf("asked %v, %d rows", asked, tab.Len())
	}
	if err := tab.Restore([]table.Row{{ID: 2, Values: []float32{5}}}); err != nil {
		t.Fatal(err)
	}
	clear(asked)
	if err := tab.Optimize([]int64{1, 2, 4}, []float32{1, 1, 1}, 1); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[4] != 1 {
		t.Errorf("asked about %v, only 4 is missing", asked)
	}
	if rows, ok := tab.LookupEntries([]int64{2, 4}); rows[0].Values[0] != 4 || ok[1] {
		t.Error(rows, ok)
	}
	if err := tab.Assign([]int64{6, 7}, []float32{1, 1}, 1, 0); err != nil || tab.Len() != 4 {
		t.Errorf("%d rows, %v", tab.Len(), err)
	}
	had, err := tab.Reinitialize([]int64{8, 2}, 1)
	if err != nil || !slices.Equal(had, []bool{false, true}) || tab.Len() != 4 {
		t.Errorf("%v, %d rows, %v", had, tab.Len(), err)
	}
}

func TestLimits(t *testing.T) {
	tab := make1[*table.Table](t)(table.New(table.Config{Name: "l", Dim: 4, Optimizer: adagrad, Initializer: uniform, MaxBytes: 1 << 20}))
	ids, v := make([]int64, 1000), make([]float32, 4000)
	var err error
	for n := 0; err == nil; n += 1000 {
		for i := range ids {
			ids[i] = int64(n + i)
		}
		before := tab.Hash()
		if err = tab.Optimize(ids, v, 1); err != nil && tab.Hash() != before {
			t.Error("a refused call changed the table")
		}
	}
	if !errors.Is(err, table.ErrFull) || !strings.Contains(err.Error(), "MaxBytes, 1048576") {
		t.Error(err)
	}
	if n := tab.Len(); n < 15000 || n > 1<<20/48 {
		t.Errorf("%d rows of 36 bytes and 12 of index in 1 MiB", n)
	}
	if err := tab.Optimize([]int64{0, 1, 2}, v[:12], 1); err != nil {
		t.Errorf("rows that are there: %v", err)
	}
	tab.Remove(ids[:0])
	one := make1[*table.Table](t)(table.New(table.Config{Name: "l", Dim: 1, Optimizer: adagrad, Initializer: uniform, MaxRows: 2}))
	if err := one.Assign([]int64{1, 2, 1}, []float32{1, 1, 1}, 1, 0); err != nil {
		t.Fatal(err)
	}
	if err := one.Assign([]int64{1, 3}, []float32{9, 9}, 1, 0); !errors.Is(err, table.ErrFull) {
		t.Error(err)
	}
	if rows, _ := one.LookupEntries([]int64{1}); rows[0].Values[0] != 1 {
		t.Error("a refused call changed a row")
	}
	one.Remove([]int64{2})
	if err := one.Assign([]int64{3}, []float32{9}, 1, 0); err != nil {
		t.Error(err)
	}
}

func TestExpiryBoundary(t *testing.T) {
	id := func(slot, n int64) int64 { return slot<<48 | n }
	tab := newTable(t, 1, optim.SGD{LearningRate: 1}, table.Zeros{})
	const day = 86400
	for i, at := range []uint32{100*day - 1, 100 * day, 100*day + 1, 110 * day} {
		if err := tab.Assign([]int64{id(1, int64(i)), id(2, int64(i)), id(3, int64(i))}, []float32{1, 1, 1}, at, 0); err != nil {
			t.Fatal(err)
		}
	}
	policy := table.Expiry{Days: map[int]uint32{1: 10, 2: 0}, DefaultDays: 11}
	sweep := func() (n int) {
		for done := false; !done; {
			var k int
			k, done = tab.Expire(tab.Newest(), policy, 64)
			n += k
		}
		return n
	}
	if n := sweep(); n != 2 { // of slot 1 those 10 days old or older; slot 2 is for ever; slot 3 none
		t.Errorf("%d rows expired, want 2", n)
	}
	if n := sweep(); n != 0 {
		t.Errorf("an idle table forgot %d rows", n)
	}
	if err := tab.Assign([]int64{id(9, 1)}, []float32{1}, 111*day, 0); err != nil {
		t.Fatal(err)
	}
	if n := sweep(); n != 3 { // slot 1 once, slot 3 twice
		t.Errorf("%d rows expired a day later, want 3", n)
	}
}

func TestCeilingGathers(t *testing.T) {
	if _, err := table.NewCeiling(10, 65); err == nil {
		t.Error("65 bytes")
	}
	c := make1[*table.Ceiling](t)(table.NewCeiling(1000, 128))
	which, out := make([]uint32, 99), make([]byte, 99*128)
	for i := range which {
		which[i] = uint32(i * 10)
	}
	for updates := range 3 {
		c.Gather(which, out)
		for i := range which {
			for word := range 16 {
				if got, want := binary.LittleEndian.Uint64(out[i*128+8*word:]), uint64(i*10*16+word+updates); got != want {
					t.Fatalf("word %d of row %d is %d after %d updates, not %d", word, i*10, got, updates, want)
				}
			}
		}
		c.Update(which)
	}
}
