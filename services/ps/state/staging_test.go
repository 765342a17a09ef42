package state

import (
	"maps"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// parted is a standing shard of one table and one variable, and the parts of an apply to it.
func parted(t *testing.T) (s *Shard, parts func(epoch uint64, from int64, n int, change ...func(*rowwire.ApplyRequest)) []*rowwire.ApplyRequest) {
	s = standing(t, Config{})
	names := slices.SortedFunc(maps.Keys(s.bands), bandID.compare)
	return s, func(epoch uint64, from int64, n int, change ...func(*rowwire.ApplyRequest)) []*rowwire.ApplyRequest {
		var all []*rowwire.ApplyRequest
		for i := range n {
			r := &rowwire.ApplyRequest{Job: s.job, Epoch: epoch, From: from, To: from + 1, Part: uint32(i), Parts: uint32(n)}
			switch i {
			case 0:
				r.Tables = []rowwire.TableGrads{{Table: "user", IDs: []int64{1}, Grads: []float32{1, 2}}}
			case 1, 2:
				id := names[i-1]
				r.Dense = []rowwire.NamedTensor{{Name: id.name, At: uint32(id.at), Values: slices.Repeat([]float32{1}, s.bands[id].Size)}}
			}
			for _, f := range change {
				f(r)
			}
			all = append(all, r)
		}
		return all
	}
}

func TestPartsThatDoNotFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest // a: the apply; b: the same of the next epoch
		code rowwire.Code                                               // of the last one; 0: it is applied
	}{
		"all":                  {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest { return a }, 0},
		"from the start again": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest { return append(a[:2:2], a...) }, 0},
		"one is missing":       {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest { return []*rowwire.ApplyRequest{a[0], a[2]} }, rowwire.Unavailable},
		"one comes twice": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			return []*rowwire.ApplyRequest{a[0], a[1], a[1]}
		}, rowwire.Unavailable},
		"the next holder's":      {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest { return append(a[:2:2], b[2]) }, rowwire.Unavailable},
		"the next holder's, all": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest { return append(a[:2:2], b...) }, 0},
		"the last holder's": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			return []*rowwire.ApplyRequest{a[0], b[0], a[1]}
		}, rowwire.Fenced},
		"the last holder's, later": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			return []*rowwire.ApplyRequest{b[0], a[1], b[1], b[2]}
		}, 0},
		"a table twice": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			a[1].Tables = a[0].Tables
			return a[:2]
		}, rowwire.Invalid},
		"a variable twice": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			a[2].Dense = a[1].Dense
			return a
		}, rowwire.Invalid},
		"beyond the last": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			a[1].Part = 3
			return a[:2]
		}, rowwire.Invalid},
		"of none": {func(a, b []*rowwire.ApplyRequest) []*rowwire.ApplyRequest {
			a[1].Parts = 0
			return a[:2]
		}, rowwire.Invalid},
	} {
		s, parts := parted(t)
		all := tc.send(parts(1, 0, 3), parts(2, 0, 3))
		var res *rowwire.ApplyResponse
		var err error
		for i, r := range all {
			if res, err = s.Apply(t.Context(), r, ""); err == nil && res.Applied != (i == len(all)-1 && tc.code == 0) {
				t.Errorf("%s: request %d of %d: %+v", name, i, len(all), res)
			}
		}
		if rowwire.CodeOf(err) != tc.code && (err != nil || tc.code != 0) {
			t.Errorf("%s: %v, want %v", name, err, tc.code)
		}
		if learnt := s.step == 1; learnt != (tc.code == 0) || s.step > 1 {
			t.Errorf("%s: step %d", name, s.step)
		}
		if tc.code == 0 && (len(s.staged.of) > 0 || s.staged.bytes != 0) {
			t.Errorf("%s: %d bytes are left", name, s.staged.bytes)
		}
	}
}

// What is staged is bounded; whoever finds no room gives his up, and what was abandoned makes
// room.
func TestPartsAreBounded(t *testing.T) {
	s, parts := parted(t)
	for id, b := range s.bands {
		b.Size = 7 << 20 / 4
		s.bands[id] = b
		s.dense[id].values = make([]float32, b.Size)
	}
	begin := func(partition int32) error {
		t.Helper()
		for _, r := range parts(1, 0, 3, func(r *rowwire.ApplyRequest) { r.Partition = partition })[:2] {
			if _, err := s.Apply(t.Context(), r, ""); err != nil {
				return err
			}
		}
		return nil
	}
	n := int32(modelspec.MaxStagedBytes / (7 << 20))
	for p := range n {
		if err := begin(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(n); rowwire.CodeOf(err) != rowwire.Unavailable || s.staged.of[n] != nil || s.staged.bytes > modelspec.MaxStagedBytes {
		t.Errorf("one more: %v, %d bytes", err, s.staged.bytes)
	}
	s.staged.of[2].since = s.staged.of[2].since.Add(-2 * abandoned)
	if err := begin(n); err != nil || s.staged.of[2] != nil || s.staged.of[1] == nil {
		t.Errorf("in the place of one that was abandoned: %v", err)
	}
	s.Suspend(rowwire.Errorf(rowwire.Unavailable, "stopped"))
	if len(s.staged.of) != 0 || s.staged.bytes != 0 {
		t.Errorf("a shard that stopped keeps %d bytes", s.staged.bytes)
	}
}
