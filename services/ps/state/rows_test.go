package state

import (
	"math"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// A page of a scan has what a quarter of a frame holds, and no more than was asked for.
func TestPagesOfAScan(t *testing.T) {
	const most = rowwire.MaxFrame / 4
	for _, tc := range []struct {
		limit      uint32
		slots      bool
		dim, state int
		want       int
	}{
		{0, false, 1 << 14, 5, most / (20 + 4<<14)}, {0, true, 1 << 14, 1 << 14, most / (20 + 8<<14)}, {0, true, 1 << 14, 0, most / (20 + 4<<14)},
		{1, false, 1 << 14, 0, 1}, {math.MaxUint32, false, 1 << 14, 0, most / (20 + 4<<14)}, {7, true, 4, 4, 7}, {0, false, 0, 0, min(most/20, rowwire.MaxIDs)},
	} {
		if got := pageSize(&rowwire.ScanRequest{Limit: tc.limit, Slots: tc.slots}, tc.dim, tc.state); got != tc.want {
			t.Errorf("%d rows of %d values and %d slots (wanted: %v): %d, want %d", tc.limit, tc.dim, tc.state, tc.slots, got, tc.want)
		}
	}
}

// What is asked for at once takes half a frame at most.
func TestAnswersOfHalfAFrame(t *testing.T) {
	const size = 1 << 20 // of a row and of a variable
	s := standing(t, Config{})
	s.dims["user"] = size // its table knows nothing of it, and refuses what gets that far
	s.bands[bandID{name: "wide"}] = modelspec.Band{Name: "wide", Size: size}
	s.dense[bandID{name: "wide"}] = &variable{values: make([]float32, size)}
	ids, names := make([]int64, rowwire.MaxFrame/2/(4*size)+1), []string(nil)
	for i := range ids {
		ids[i] = int64(i)
		names = append(names, "wide")
	}
	for n, much := range map[int]bool{len(ids) - 1: false, len(ids): true} {
		err := s.Lookup(t.Context(), &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: ids[:n]}}}, new(rowwire.LookupResponse))
		if got := err != nil && strings.Contains(err.Error(), "ask for fewer"); got != much {
			t.Errorf("%d rows of %d bytes: %v", n, 4*size, err)
		}
		var res rowwire.DenseResponse
		err = s.Dense(t.Context(), &rowwire.DenseRequest{Job: job, Names: names[:n]}, &res)
		if (err != nil) != much || err == nil && len(res.Tensors) != n {
			t.Errorf("%d variables of %d bytes: %v", n, 4*size, err)
		}
	}
}
