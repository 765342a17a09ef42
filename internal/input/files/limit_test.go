package files

import (
	"maps"
	"testing"
)

func TestEnds(t *testing.T) {
	s := &Set{ends: []int64{25, 0, 9, 40}}
	for _, tc := range []struct {
		steps int64
		want  map[int32]int64
	}{
		{0, map[int32]int64{0: 25, 1: 0, 2: 9, 3: 40}},
		{1, map[int32]int64{0: 10, 1: 0, 2: 0, 3: 0}},
		{2, map[int32]int64{0: 10, 1: 0, 2: 9, 3: 0}},
		{4, map[int32]int64{0: 20, 1: 0, 2: 9, 3: 10}},
		{7, map[int32]int64{0: 25, 1: 0, 2: 9, 3: 30}},
		{8, map[int32]int64{0: 25, 1: 0, 2: 9, 3: 40}},
		{1 << 60, map[int32]int64{0: 25, 1: 0, 2: 9, 3: 40}},
	} {
		if got := s.Ends(10, tc.steps); !maps.Equal(got, tc.want) {
			t.Errorf("%d steps end at %v, want %v", tc.steps, got, tc.want)
		}
	}
}
