package state

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

func TestDenseGoesOutWithEveryNthPublication(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, pstest.Counting())
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(f)
	if err := s.Load(nil); err != nil {
		t.Fatal(err)
	}
	s.Resume(1, 0)
	p := new(publish.Publisher)
	var got []bool
	var next int64
	for _, learnt := range []bool{false, true, true, true, true, true, false, false} {
		if learnt {
			r := pstest.Teach(0, 0, next, next+1, 1, 1)
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1}}}
			if _, err := s.Apply(t.Context(), r, ""); err != nil {
				t.Fatal(err)
			}
			next++
		}
		h := s.CollectDirty(p.Due(2))
		got = append(got, h != nil && len(h.Dense) > 0)
	}
	// Fresh variables at once; then with every second; then, in the pause, what is left.
	if want := []bool{true, false, true, false, true, false, true, false}; !reflect.DeepEqual(got, want) {
		t.Errorf("variables went out %v, want %v", got, want)
	}
}

func TestRangesOfOnePartitionAreJoined(t *testing.T) {
	s := new(Shard)
	for _, r := range []*delta.Range{
		{Partition: 0, From: 0, To: 5, Epoch: 1}, {Partition: 1, From: 0, To: 2, Epoch: 1}, {Partition: 0, From: 5, To: 9, Epoch: 1},
		{Partition: 0, From: 9, To: 12, Epoch: 2}, {Partition: 1, From: 2, To: 3, Epoch: 1}, {Partition: 0, From: 12, To: 13, Epoch: 2},
	} {
		s.ranges = join(s.ranges, r)
	}
	want := []*delta.Range{{Partition: 0, From: 0, To: 9, Epoch: 1}, {Partition: 1, From: 0, To: 3, Epoch: 1}, {Partition: 0, From: 9, To: 13, Epoch: 2}}
	if !slices.EqualFunc(s.ranges, want, func(a, b *delta.Range) bool { return proto.Equal(a, b) }) {
		t.Errorf("pending %v, want %v", s.ranges, want)
	}
}

// Rows, variables or ranges alone are enough for a publication; what is gone without
// having been published is none.
func TestWhatMakesAPublication(t *testing.T) {
	never, always0 := func(int) bool { return false }, func(int) bool { return true }
	for name, tc := range map[string]struct {
		change func(*Shard)
		dense  func(int) bool
		want   string // rows, ranges, variables; "": none
	}{
		"nothing":          {func(*Shard) {}, always0, ""},
		"variables":        {func(s *Shard) { s.denseTouched = true }, always0, "0 rows, 0 ranges, variables"},
		"variables, later": {func(s *Shard) { s.denseTouched = true }, never, ""},
		"ranges":           {func(s *Shard) { s.ranges = join(s.ranges, &delta.Range{To: 1}) }, never, "0 rows, 1 ranges"},
		"a row": {func(s *Shard) {
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
		}, never, "1 rows, 0 ranges"},
		"a row that nobody has heard of": {func(s *Shard) {
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
			s.tables["user"].Remove([]int64{1})
		}, never, ""},
		"a row that went": {func(s *Shard) { s.miss("user", []int64{1}) }, never, "1 rows, 0 ranges"},
		"a row that went and came back": {func(s *Shard) {
			s.miss("user", []int64{1})
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
		}, never, "1 rows, 0 ranges"},
	} {
		s := standing(t, Config{})
		tc.change(s)
		later := s.denseTouched && !tc.dense(0)
		h := s.CollectDirty(tc.dense)
		got := ""
		if h != nil {
			if got = fmt.Sprintf("%d rows, %d ranges", len(h.Rows), len(h.Ranges)); len(h.Dense) > 0 {
				got += ", variables"
			}
		}
		if got != tc.want || s.denseTouched != later || h != nil && h.Bad != nil {
			t.Errorf("%s: %q, want %q; variables are left: %v", name, got, tc.want, s.denseTouched)
		}
		if again := s.CollectDirty(never); again != nil {
			t.Errorf("%s: published twice", name)
		}
	}
}

// What is published is finite; the greatest number is.
func TestWhatIsFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	two := &publish.Dirty{Rows: []publish.Rows{{Table: "user", Dim: 2, IDs: []int64{1, 2}, Values: []float32{math.MaxFloat32, 0, 0, nan}}}}
	if err := standing(t, Config{}).finite(two); err == nil || !strings.Contains(err.Error(), "row 2 of") {
		t.Errorf("behind the greatest number one that is none: %v", err)
	}
	for _, tc := range []struct {
		x  float32
		ok bool
	}{{0, true}, {math.MaxFloat32, true}, {-math.MaxFloat32, true}, {inf, false}, {-inf, false}, {nan, false}} {
		for at := range 4 {
			values := make([]float32, 4)
			values[at] = tc.x
			s := standing(t, Config{})
			rows := &publish.Dirty{Rows: []publish.Rows{{Table: "user", Dim: 2, IDs: []int64{1, 2}, Values: values}}}
			if err := s.finite(rows); (err == nil) != tc.ok || err != nil && (!errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), fmt.Sprintf("row %d of", at/2+1))) {
				t.Errorf("%v at %d of two rows: %v", tc.x, at, err)
			}
			id := s.bandIDs[0]
			s.dense[id].values = values
			if err := s.finite(&publish.Dirty{Dense: []*delta.Variable{{Name: id.name}}}); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrDiverged) {
				t.Errorf("%v at %d of a variable: %v", tc.x, at, err)
			}
		}
	}
}
