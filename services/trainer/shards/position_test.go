package shards

import (
	"errors"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

func TestPosition(t *testing.T) {
	at := func(next ...int64) (all []*rowwire.OffsetsResponse) {
		for _, n := range next {
			all = append(all, &rowwire.OffsetsResponse{Next: map[int32]int64{1: n}})
		}
		return all
	}
	for _, tc := range []struct {
		all   []*rowwire.OffsetsResponse
		from  int64
		cuts  []int64
		level bool
	}{
		{at(7, 7), 7, nil, true},
		{at(9, 7, 12, 9), 7, []int64{9, 12}, false},
		{at(0, 3), 0, []int64{3}, false},
	} {
		p := PositionOf(tc.all, 1)
		if p.From != tc.from || !slices.Equal(p.Cuts, tc.cuts) || p.Level != tc.level {
			t.Errorf("%v: %+v", tc, p)
		}
	}
	mixed := at(7, 7)
	mixed[1].Generation = 3
	mixed[0].Generation = 4
	if p := PositionOf(mixed, 1); p.Level || p.Generation != 3 {
		t.Errorf("two generations: %+v", p)
	}
}

func TestTheWorstErrorDecides(t *testing.T) {
	gap, fenced, other := rowwire.Errorf(rowwire.Gap, "gap"), rowwire.Errorf(rowwire.Fenced, "fenced"), errors.New("other")
	for _, tc := range []struct {
		errs []error
		want error
	}{{nil, nil}, {[]error{nil, nil}, nil}, {[]error{nil, gap, other}, gap}, {[]error{other, gap}, other}, {[]error{gap, nil, fenced}, fenced}, {[]error{fenced, gap}, fenced}} {
		if got := worst(tc.errs); got != tc.want {
			t.Errorf("the worst of %v is %v", tc.errs, got)
		}
	}
}
