package table

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
)

// plainTable is a table of sums: SGD on zeros.
func plainTable(t *testing.T, dim int, change ...func(*Config)) *Table {
	t.Helper()
	c := Config{Name: "t", Dim: dim, Optimizer: testSGD, Initializer: Zeros{}}
	for _, f := range change {
		f(&c)
	}
	tab, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// Whatever place a number that is not finite has, the row is refused.
func TestNoPlaceIsOverlooked(t *testing.T) {
	adagrad := must(optim.NewAdagrad(1, 0.1, 0))
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for at := range 3 {
			v := []float32{1, 1, 1}
			v[at] = bad
			ok := []float32{1, 1, 1}
			tab := plainTable(t, 3, func(c *Config) { c.Optimizer = adagrad })
			for name, err := range map[string]error{
				"values": tab.Restore([]Row{{ID: 1, Values: v}}), "slots": tab.Restore([]Row{{ID: 1, Values: ok, Slots: v}}),
				"assign": tab.Assign([]int64{1}, v, 1, 1), "assign_add": tab.AssignAdd([]int64{1}, v, 1, 1), "optimize": tab.Optimize([]int64{1}, v, 1),
			} {
				if err == nil {
					t.Errorf("%s: %v at %d is taken", name, bad, at)
				}
			}
			if tab.Len() != 0 {
				t.Errorf("%d rows", tab.Len())
			}
		}
	}
	if notFinite([]float32{1, 2}) != -1 || notFinite(nil) != -1 || notFinite([]float32{float32(math.NaN()), 1}) != 0 {
		t.Error("the first that is not finite")
	}
}

func TestGradientsAtTheirBound(t *testing.T) {
	above := math.Nextafter32(MaxGradient, math.MaxFloat32)
	for name, tc := range map[string]struct {
		ids   []int64
		grads []float32
		ok    bool
	}{
		"the greatest":        {[]int64{1}, []float32{MaxGradient, -MaxGradient}, true},
		"beyond":              {[]int64{1}, []float32{0, above}, false},
		"beyond, below 0":     {[]int64{1}, []float32{-above, 0}, false},
		"a sum at it":         {[]int64{1, 1}, []float32{MaxGradient / 2, 0, MaxGradient / 2, 0}, true},
		"a sum beyond":        {[]int64{1, 1}, []float32{MaxGradient, 0, MaxGradient / 4, 0}, false},
		"one is none's":       {[]int64{1, 1, 2}, []float32{1, 1, 1, 1, MaxGradient, 0}, true},
		"a sum that goes out": {[]int64{1, 1}, []float32{MaxGradient, 0, -MaxGradient, 0}, true},
	} {
		tab := plainTable(t, 2)
		if err := tab.Optimize(tc.ids, tc.grads, 1); (err == nil) != tc.ok {
			t.Errorf("%s: Optimize = %v", name, err)
		}
		tab = plainTable(t, 2)
		if err := tab.AssignAdd(tc.ids, tc.grads, 1, 0); (err == nil) != tc.ok {
			t.Errorf("%s: AssignAdd = %v", name, err)
		}
	}
}

// What is refused for want of room says how much there is, to the row.
func TestLimitsToTheRow(t *testing.T) {
	tab := plainTable(t, 1, func(c *Config) { c.MaxRows = 5 })
	if err := tab.Assign([]int64{1, 2, 3}, make([]float32, 3), 1, 0); err != nil {
		t.Fatal(err)
	}
	if err := tab.Assign([]int64{3, 4, 5, 6}, make([]float32, 4), 1, 0); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), ": 3 rows and 3 new ones are more than MaxRows, 5") {
		t.Error(err)
	}
	if err := tab.Assign([]int64{4, 5, 5, 1}, make([]float32, 4), 1, 0); err != nil || tab.Len() != 5 {
		t.Errorf("as many as may be: %v, %d rows", err, tab.Len())
	}
	// The index grows in steps; a limit is what a table of so many rows takes just then.
	probe := plainTable(t, 1)
	ids := make([]int64, 2000)
	for i := range ids {
		ids[i] = int64(i)
	}
	if err := probe.Assign(ids, make([]float32, len(ids)), 1, 0); err != nil {
		t.Fatal(err)
	}
	tab = plainTable(t, 1, func(c *Config) { c.MaxBytes = probe.bytesFor(2000) })
	if err := tab.Assign(ids, make([]float32, len(ids)), 1, 0); err != nil {
		t.Errorf("as many bytes as may be: %v", err)
	}
	had := tab.Len()
	more := make([]int64, 100_000)
	for i := range more {
		more[i] = int64(5000 + i)
	}
	if err := tab.Assign(more, make([]float32, len(more)), 1, 0); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), fmt.Sprintf(": %d rows and %d new ones take", had, len(more))) {
		t.Error(err)
	}
	exact := plainTable(t, 1, func(c *Config) { c.MaxBytes = 10_000_000 })
	most := exact.cfg.MaxBytes / int64(exact.rows.Size()+exact.times.Size()+12)
	if err := exact.reserve(most); err != nil {
		t.Errorf("%d rows within %d bytes: %v", most, exact.cfg.MaxBytes, err)
	}
	exact.reserved.Add(-most)
	if err := exact.reserve(most + 1); !errors.Is(err, ErrFull) || exact.reserved.Load() != 0 {
		t.Errorf("a row more: %v, %d reserved", err, exact.reserved.Load())
	}
	whole := plainTable(t, 1, func(c *Config) { c.MaxBytes = 100 * int64(exact.rows.Size()+exact.times.Size()+12) })
	if whole.index() <= 1200 { // the rows decide
		if err := whole.reserve(100); err != nil {
			t.Errorf("to the byte: %v", err)
		}
	}
}

func TestLayoutsAtTheirBounds(t *testing.T) {
	two := func(a, b int) Config {
		return Config{Name: "t", Segments: []Segment{{Dim: a, Optimizer: testSGD, Initializer: Zeros{}}, {Dim: b, Optimizer: testSGD, Initializer: Zeros{}}}}
	}
	for _, tc := range []struct {
		c    Config
		says string
	}{
		{two(1, MaxDim-1), ""}, {two(2, MaxDim-1), "segment 1: dim is 65535: give 1 to 65534"}, {two(1, 0), "segment 1: dim is 0: give 1 to 65535"},
		{Config{Name: "t", Dim: MaxDim, Optimizer: testSGD, Initializer: Zeros{}}, ""},
		{Config{Name: "t", Dim: MaxDim + 1, Optimizer: testSGD, Initializer: Zeros{}}, "table t: dim is 65537: give 1 to 65536"},
		{Config{Name: "t", Dim: -1, Optimizer: testSGD, Initializer: Zeros{}}, "dim is -1"},
		{Config{Name: "t", Dim: 1, Optimizer: testSGD, Initializer: Zeros{}, Capacity: math.MaxInt32 + 1}, "give 0 to 2147483647"},
		{Config{Name: "t", Dim: 1, Compressor: compress.FP16{}, Serving: true, SkipZero: true}, ""},
		{Config{Name: "t", Segments: []Segment{{Dim: 1, Compressor: compress.FP16{}}}, Serving: true}, ""},
		{Config{Name: "t", Dim: 1, Segments: []Segment{{Dim: 1, Compressor: compress.FP16{}}}, Serving: true}, "give either"},
		{Config{Name: "t", Compressor: compress.FP16{}, Segments: []Segment{{Dim: 1, Compressor: compress.FP16{}}}, Serving: true}, "give either"},
		{Config{Name: "t", Initializer: Zeros{}, Segments: []Segment{{Dim: 1, Compressor: compress.FP16{}}}, Serving: true}, "give either"},
		{Config{Name: "t", Optimizer: testSGD, Segments: []Segment{{Dim: 1, Compressor: compress.FP16{}}}, Serving: true}, "give either"},
	} {
		if _, err := New(tc.c); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc.c, err)
		}
	}
}

// asking is an optimizer that asks for so many slots, and sized a compressor of so many bytes.
type asking struct {
	optim.Optimizer
	slots int
}

func (a asking) SlotSize(int) int { return a.slots }

type sized struct {
	compress.FP16
	bytes int
}

func (s sized) Size(int) int { return s.bytes }

// What an optimizer or a compressor of somebody else asks for is bounded.
func TestSizesOfARow(t *testing.T) {
	for slots, ok := range map[int]bool{-1: false, 0: true, 1: true, 8 * MaxDim: true, 8*MaxDim + 1: false} {
		c := Config{Name: "t", Dim: 1, Optimizer: asking{testSGD, slots}, Initializer: Zeros{}}
		if l, err := newLayout(&c); (err == nil) != ok || ok && (l.slots != slots || l.rowBytes != 4+4*slots) {
			t.Errorf("%d slots: %d in %d bytes, %v", slots, l.slots, l.rowBytes, err)
		}
	}
	for bytes, ok := range map[int]bool{-1: false, 0: false, 1: true, 4 * MaxDim: true, 4*MaxDim + 1: false} {
		c := Config{Name: "t", Dim: 1, Compressor: sized{bytes: bytes}, Serving: true}
		if l, err := newLayout(&c); (err == nil) != ok || ok && l.rowBytes != bytes {
			t.Errorf("%d bytes: %d, %v", bytes, l.rowBytes, err)
		}
	}
	for _, tc := range []struct {
		rows     int
		capacity int
		bytes    int64
		ok       bool
	}{{0, 0, 0, true}, {0, math.MaxInt32, 0, true}, {0, math.MaxInt32 + 1, 0, false}, {0, -1, 0, false}, {-1, 0, 0, false}, {0, 0, -1, false}, {1, 1, 1, true}} {
		c := Config{Capacity: tc.capacity, MaxRows: tc.rows, MaxBytes: tc.bytes}
		if err := c.checkLimits(); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestUniformBounds(t *testing.T) {
	big := float32(math.MaxFloat32)
	for _, tc := range []struct {
		lo, hi float32
		ok     bool
	}{{0, 0, true}, {-1, 1, true}, {1, 0, false}, {-big, big, false}, {0, float32(math.Inf(1)), false}, {float32(math.NaN()), 1, false}, {0, float32(math.NaN()), false}, {0, big, true}} {
		if _, err := NewRandomUniform(tc.lo, tc.hi); (err == nil) != tc.ok {
			t.Errorf("from %g to %g: %v", tc.lo, tc.hi, err)
		}
	}
}

func TestBaselinesAtTheirBounds(t *testing.T) {
	for _, tc := range []struct {
		size, dim int
		ok        bool
	}{{1, 1, true}, {1, MaxDim, true}, {1, MaxDim + 1, false}, {0, 1, false}, {1, 0, false}, {1<<31 + 1, 1, false}} {
		if h, err := NewHashTrick(tc.size, tc.dim); (err == nil) != tc.ok || err == nil && (h.Len() != tc.size || len(h.Row(5)) != tc.dim) {
			t.Errorf("%d rows of %d: %v", tc.size, tc.dim, err)
		}
	}
	for _, tc := range []struct {
		rows, width int
		ok          bool
	}{{1, line, true}, {0, line, false}, {1, 0, false}, {1, line - 1, false}, {1, 2*line - 1, false}, {1, 2 * line, true}, {1, 4 * MaxDim, true}, {1, 4*MaxDim + line, false}, {4<<30/line + 1, line, false}} {
		if _, err := NewCeiling(tc.rows, tc.width); (err == nil) != tc.ok {
			t.Errorf("%d rows of %d bytes: %v", tc.rows, tc.width, err)
		}
	}
	c := must(NewCeiling(3, line))
	c.Gather(nil, nil)
	c.Update(nil)
	c.Gather([]uint32{2}, make([]byte, line))
	for name, f := range map[string]func(){
		"a row beyond the last": func() { c.Update([]uint32{3}) }, "too little room": func() { c.Gather([]uint32{1}, make([]byte, line-1)) },
		"gather beyond": func() { c.Gather([]uint32{3}, make([]byte, line)) }, "too much room": func() { c.Gather(nil, make([]byte, line)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s passes", name)
				}
			}()
			f()
		}()
	}
}

func TestExpiredToTheSecond(t *testing.T) {
	const day = 86400
	e := Expiry{Days: map[int]uint32{1: 0, 2: 5, 3: math.MaxUint32}, DefaultDays: 2}
	for _, tc := range []struct {
		slot      int64
		last, now uint32
		want      bool
	}{
		{0, 100, 100 + 2*day - 1, false}, {0, 100, 100 + 2*day, true}, {0, 100, 99, false}, {0, 100, 100, false}, {0, 500000, 0, false},
		{1, 0, math.MaxUint32, false}, {2, 7, 7 + 5*day - 1, false}, {2, 7, 7 + 5*day, true}, {3, 0, math.MaxUint32, false}, {0, 0, math.MaxUint32, true},
	} {
		if got := e.Expired(tc.slot<<48|9, tc.last, tc.now); got != tc.want {
			t.Errorf("slot %d, updated at %d, at %d: expired %v", tc.slot, tc.last, tc.now, got)
		}
	}
	if (Expiry{}).Expired(1, 0, math.MaxUint32) {
		t.Error("without days rows go")
	}
}

// A row is dropped as zero where its norm is below the least normal number.
func TestAlmostZero(t *testing.T) {
	for _, tc := range []struct {
		v    []float32
		want bool
	}{{nil, true}, {[]float32{0, 0}, true}, {[]float32{0x1p-63}, false}, {[]float32{-0x1p-63}, false}, {[]float32{0x1p-64, 0x1p-64}, true}, {[]float32{0x1p-64, 0x1p-64, 0x1p-64, 0x1p-64}, false}} {
		if got := almostZero(tc.v); got != tc.want {
			t.Errorf("%v is almost zero: %v", tc.v, got)
		}
	}
	tab := plainTable(t, 1, func(c *Config) {
		*c = Config{Name: "t", Dim: 1, Compressor: compress.FP32{}, Serving: true, SkipZero: true}
	})
	// A row that somebody has set anew since it became zero stays.
	if err := tab.Assign([]int64{8, 9}, []float32{1, 1}, 1, 0); err != nil {
		t.Fatal(err)
	}
	tab.dropZeros([]zeroRow{{7, []byte{0, 0, 0, 0}}, {8, []byte{0, 0, 0, 0}}, {9, []byte{0, 0, 0x80, 0x3f}}})
	if ids := tab.ids(); !slices.Equal(ids, []int64{8}) {
		t.Errorf("rows %v, want the one that is not as it was", ids)
	}
	tab.Clear()
	if err := tab.Restore([]Row{{ID: 1, Values: []float32{1}}, {ID: 2, Values: []float32{5}}, {ID: 1, Values: []float32{0}}, {ID: 3, Values: []float32{0}}, {ID: 3, Values: []float32{2}}}); err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for _, r := range tab.Snapshot() {
		ids = append(ids, r.ID)
	}
	if !slices.Equal(ids, []int64{2, 3}) {
		t.Errorf("rows %v", ids)
	}
}

// Calls that bring the same rows about at the same time make one of each.
func TestTheSameNewRowsFromManyAtOnce(t *testing.T) {
	for _, b := range runnable() {
		for round := range 10 {
			tab := plainTable(t, 1)
			tab.backend = b
			const n, callers = 3000, 4
			ids, grads := make([]int64, n), make([]float32, n)
			for i := range ids {
				ids[i], grads[i] = int64(round*n+i), -1
			}
			var start, calls sync.WaitGroup
			start.Add(1)
			for range callers {
				calls.Go(func() {
					start.Wait()
					if err := tab.Optimize(ids, grads, 1); err != nil {
						t.Error(err)
					}
				})
			}
			start.Done()
			calls.Wait()
			rows := tab.Snapshot()
			if len(rows) != n || tab.Len() != n {
				t.Fatalf("%d rows of %d ids, the table says %d", len(rows), n, tab.Len())
			}
			for _, r := range rows {
				if r.Values[0] != callers*testSGD.LearningRate {
					t.Fatalf("id %d learnt %v times of %d", r.ID, r.Values[0], callers)
				}
			}
		}
	}
}

func TestPagesAtTheirBounds(t *testing.T) {
	tab := plainTable(t, 1)
	if err := tab.Assign([]int64{-5, 0, 7}, make([]float32, 3), 1, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 { // as it changes, and as it stays
		for _, tc := range []struct {
			after int64
			limit int
			want  []int64
			more  bool
		}{
			{NoID, 3, []int64{-5, 0, 7}, false}, {NoID, 2, []int64{-5, 0}, true}, {NoID, 0, nil, true}, {NoID, -1, nil, true}, {-5, 5, []int64{0, 7}, false}, {-6, 1, []int64{-5}, true},
			{6, 1, []int64{7}, false}, {7, 1, nil, false}, {math.MaxInt64, 9, nil, false}, {1, math.MaxInt, []int64{7}, false},
		} {
			rows, more := tab.Rows(tc.after, tc.limit)
			var ids []int64
			for _, r := range rows {
				ids = append(ids, r.ID)
			}
			if !slices.Equal(ids, tc.want) || more != tc.more {
				t.Errorf("%d behind %d: %v, more %v; want %v, %v", tc.limit, tc.after, ids, more, tc.want, tc.more)
			}
		}
	}
}

// The clock of a table is the newest time of a row, whichever call it came with.
func TestTheNewestTimeStays(t *testing.T) {
	tab := plainTable(t, 1)
	for _, at := range []uint32{5, 3, 5, 9, 1} {
		if err := tab.Assign([]int64{int64(at)}, []float32{1}, at, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Restore([]Row{{ID: 1, Values: []float32{1}, UnixSec: 8}, {ID: 2, Values: []float32{1}, UnixSec: 11}, {ID: 3, Values: []float32{1}, UnixSec: 10}}); err != nil || tab.Newest() != 11 {
		t.Errorf("%d, %v", tab.Newest(), err)
	}
	if had, err := tab.Reinitialize([]int64{2, 77, 77, 2}, 12); err != nil || !slices.Equal(had, []bool{true, false, true, true}) || tab.Newest() != 12 {
		t.Errorf("%v, %v, newest %d", had, err, tab.Newest())
	}
}

// A sweep looks at so many buckets at a time, whether or not all their places are taken.
func TestASweepOfFullBuckets(t *testing.T) {
	tab := plainTable(t, 1)
	s := &tab.shards[0]
	tab.reset(s, 64)
	tab.times.Ensure(0)
	for i := range 64 + tail(64) {
		bucketAt(s.head.cur, i).state = inUse
	}
	calls := 1
	for {
		removed, end := tab.sweepShard(s, 1, Expiry{}, nil)
		if removed != 0 {
			t.Fatalf("%d rows that never expire are gone", removed)
		}
		if end {
			break
		}
		calls++
	}
	if want := int(64+tail(64)+sweepSome-1) / sweepSome; calls != want {
		t.Errorf("%d buckets were done in %d calls, want %d", 64+tail(64), calls, want)
	}
}
