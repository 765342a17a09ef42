package state

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// A table's clock goes on by a bounded step, and is what rows set by hand get.
func TestClocksOfTables(t *testing.T) {
	s := standing(t, Config{ClockStep: 100 * time.Second}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
	s.expiry["user"] = &expiry{}
	now := time.Unix(777, 0)
	if got := s.assignTime("user", now); got != 777 {
		t.Errorf("before any record rows are set at %d", got)
	}
	for _, tc := range []struct{ clock, record, want uint32 }{{0, 5000, 5000}, {1000, 1000, 1000}, {1000, 999, 999}, {1000, 1001, 1001}, {1000, 1100, 1100}, {1000, 1101, 1100}, {1000, math.MaxUint32, 1100}} {
		s.expiry["user"].clock = tc.clock
		if got := s.recordTime("user", tc.record); got != tc.want {
			t.Errorf("a record of %d at %d counts as of %d, want %d", tc.record, tc.clock, got, tc.want)
		}
	}
	if got := s.recordTime("movie", 9999); got != 9999 {
		t.Errorf("a table whose rows stay: %d", got)
	}
	s.expiry["user"].clock = 1
	if got := s.assignTime("user", now); got != 1 {
		t.Errorf("after a record of second 1 rows are set at %d", got)
	}
	if got := s.assignTime("movie", now); got != 777 {
		t.Errorf("in a table whose rows stay: %d", got)
	}
	for _, tc := range []struct{ before, at, want uint32 }{{10, 9, 10}, {10, 10, 10}, {10, 11, 11}} {
		s.expiry["user"].clock = tc.before
		if s.aged("user", tc.at); s.expiry["user"].clock != tc.want {
			t.Errorf("the clock went from %d to %d, want %d", tc.before, s.expiry["user"].clock, tc.want)
		}
	}
}

// A sweep begins once a table's clock has moved on far enough, and never within a cut.
func TestWhenASweepBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Shard)
		want   int
	}{
		"in time":              {func(s *Shard) { s.expiry["user"].swept = s.expiry["user"].clock - sweepEvery }, 3},
		"too early":            {func(s *Shard) { s.expiry["user"].swept = s.expiry["user"].clock - sweepEvery + 1 }, 0},
		"the clock went back":  {func(s *Shard) { s.expiry["user"].swept = s.expiry["user"].clock + sweepEvery }, 0},
		"a round is under way": {func(s *Shard) { e := s.expiry["user"]; e.swept, e.running = e.clock, true }, 3},
		"the shard refuses":    {func(s *Shard) { s.refuse = rowwire.Errorf(rowwire.Unavailable, "x") }, 0},
		"a cut holds it":       {func(s *Shard) { s.cuts.now = &cut{} }, 0},
		"a deterministic job":  {func(s *Shard) { s.schema.deterministic = true }, 0},
	} {
		s := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
		s.expiry["user"] = &expiry{clock: 10 * day}
		if err := s.tables["user"].Assign([]int64{1, 2, 3}, make([]float32, 6), day, 0); err != nil {
			t.Fatal(err)
		}
		tc.change(s)
		if got := s.Sweep(); got != tc.want || s.tables["user"].Len() != 3-tc.want {
			t.Errorf("%s: %d rows were removed, want %d", name, got, tc.want)
		}
	}
}

func TestLimitsInWords(t *testing.T) {
	for _, tc := range []struct {
		rows, bytes uint64
		want        string
	}{{5, 0, "max_rows, 5"}, {0, 7, "max_bytes, 7"}, {5, 7, "max_rows, 5, or max_bytes, 7"}} {
		if got := limits(&model.Table{MaxRows: tc.rows, MaxBytes: tc.bytes}); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestWhichTablesExpire(t *testing.T) {
	for name, tc := range map[string]struct {
		expire *model.Expire
		want   bool
	}{
		"none": {nil, false}, "never": {&model.Expire{}, false}, "all": {&model.Expire{Days: 1}, true},
		"one slot":           {&model.Expire{Slots: []*model.SlotDays{{Slot: 1, Days: 1}}}, true},
		"a slot that is not": {&model.Expire{Slots: []*model.SlotDays{{Slot: 1}}}, false},
		"all but one":        {&model.Expire{Days: 1, Slots: []*model.SlotDays{{Slot: 1}}}, true},
	} {
		s := standing(t, Config{}, func(m *model.ModelSpec) { m.Tables[0].Expire = tc.expire })
		if got := s.kinds["user"].expires; got != tc.want {
			t.Errorf("%s: rows expire: %v", name, got)
		}
	}
}

// TestSweepsAreBounded: a large table takes many steps, and lookups come between.
func TestSweepsAreBounded(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1, ClockStep: 2 * day * time.Second}, func() *model.ModelSpec {
		m := pstest.Counting()
		m.Tables[0].Expire = &model.Expire{Days: 1}
		return m
	}())
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(f)
	if err := s.Load(nil); err != nil {
		t.Fatal(err)
	}
	s.Resume(1, 0)
	const n = 100_000
	for from := range int64(n / 1000) {
		ids := make([]int64, 1000)
		for i := range ids {
			ids[i] = from*1000 + int64(i)
		}
		if _, err := s.Apply(context.Background(), pstest.OnDay(day, from, ids...), ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Sweep(); n != 0 {
		t.Fatalf("%d rows expired at once", n)
	}
	for s.expiry["user"].running {
		s.Sweep()
	}
	if _, err := s.Apply(context.Background(), pstest.OnDay(3*day, n/1000, n+1), ""); err != nil {
		t.Fatal(err)
	}
	steps, gone := 0, 0
	for again := true; again; again = s.expiry["user"].running {
		removed := s.Sweep()
		if removed > 6*sweepBuckets {
			t.Errorf("one step removes %d rows", removed)
		}
		gone += removed
		steps++
	}
	if gone != n || steps < n/(6*sweepBuckets) {
		t.Errorf("%d rows of %d went in %d steps", gone, n, steps)
	}
	if n := s.Sweep(); n != 0 {
		t.Errorf("an idle table is swept again: %d", n)
	}
}

// crowding are ids chosen by somebody who knows how tables hash, SplitMix64: the first 44 bits
// of their hashes are the same.
func crowding(n uint64) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		z := uint64(0xabcde)<<44 | uint64(i)
		z = (z ^ z>>31 ^ z>>62) * 0x319642b2d24d8ec3
		z = (z ^ z>>27 ^ z>>54) * 0x96de1b173f119089
		ids[i] = int64((z ^ z>>30 ^ z>>60) - 0x9e3779b97f4a7c15)
	}
	return ids
}

// Ids that were chosen to crowd a table are left out, whether they are set, added to or
// learnt: whoever sent one of them beside others must not stop the shard or lose those.
func TestCrowdingIdsAreLeftOut(t *testing.T) {
	const chosen, other = 1000, 7
	ids := append(crowding(chosen), other)
	ones := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = 1
		}
		return v
	}
	for name, tc := range map[string]struct {
		do   func(s *Shard) error
		want float32 // of a number of the other row
	}{
		"set":   {func(s *Shard) error { return s.set("user", ids, ones(2*len(ids)), 1000, false) }, 1},
		"added": {func(s *Shard) error { return s.set("user", ids, ones(2*len(ids)), 1000, true) }, 1},
		"learnt": {func(s *Shard) error {
			_, err := s.Apply(t.Context(), s.rangeOf(0, 1, func(r *rowwire.ApplyRequest) {
				r.Tables = []rowwire.TableGrads{{Table: "user", IDs: ids, Grads: ones(2 * len(ids))}}
			}), "")
			return err
		}, -1},
	} {
		s := standing(t, Config{})
		if err := s.tables["user"].Assign(ids[:chosen], make([]float32, 2*chosen), 1000, 0); !errors.Is(err, table.ErrCrowded) {
			t.Fatalf("%d chosen ids crowd no table: %v", chosen, err)
		}
		if err := tc.do(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		row := make([]float32, 2)
		if n, err := s.tables["user"].Lookup([]int64{other}, row, nil); err != nil || n != 1 || row[0] != tc.want {
			t.Errorf("%s: the other row is %v, %d found, %v, want %v", name, row, n, err, tc.want)
		}
	}
}
