package state

import (
	"maps"
	"slices"
	"testing"
	"time"

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

// Parts may take just as much as is kept. What its trainer has not gone on with for long makes room only
// where room is needed.
func TestPartsFillWhatIsKept(t *testing.T) {
	now := time.Unix(1000, 0)
	first := func(partition int32, numbers int) *rowwire.ApplyRequest {
		return &rowwire.ApplyRequest{Partition: partition, Parts: 2, Dense: []rowwire.NamedTensor{{Name: "v", Values: make([]float32, numbers)}}}
	}
	for name, tc := range map[string]struct {
		numbers int
		since   time.Duration // the other part came
		kept    bool
		stays   bool // the other
	}{
		"there is room":                   {2, abandoned + 1, true, true},
		"in the place of one long past":   {4, abandoned + 1, true, false},
		"the other may still go on":       {4, abandoned, false, true},
		"more than the other makes place": {5, abandoned + 1, false, false},
	} {
		g := staging{bytes: modelspec.MaxStagedBytes - 8, of: map[int32]*staged{9: {bytes: 8, since: now.Add(-tc.since)}}}
		err := g.keep(first(1, tc.numbers), now)
		if (err == nil) != tc.kept || (g.of[1] != nil) != tc.kept || (g.of[9] != nil) != tc.stays {
			t.Errorf("%s: %v; kept %v, the other stays %v", name, err, g.of[1] != nil, g.of[9] != nil)
		}
		if g.bytes > modelspec.MaxStagedBytes {
			t.Errorf("%s: %d bytes are kept", name, g.bytes)
		}
	}
}

// Rows and variables are counted by what they take.
func TestWhatPartsTake(t *testing.T) {
	var g staging
	for part := range uint32(2) {
		r := &rowwire.ApplyRequest{Part: part, Parts: 3}
		if part == 0 {
			r.Tables = []rowwire.TableGrads{{Table: "user", IDs: []int64{1, 2, 3}, Grads: make([]float32, 6)}, {Table: "movie", IDs: []int64{1}, Grads: make([]float32, 3)}}
		} else {
			r.Dense = []rowwire.NamedTensor{{Name: "v", Values: make([]float32, 5)}, {Name: "w", Values: make([]float32, 1)}}
		}
		if err := g.keep(r, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if want := 4*8 + 9*4 + 6*4; g.bytes != want || g.of[0].bytes != want {
		t.Errorf("%d bytes are kept, %d of the apply; want %d", g.bytes, g.of[0].bytes, want)
	}
	if g.forget(0); g.bytes != 0 || len(g.of) != 0 {
		t.Errorf("forgotten, %d bytes are left", g.bytes)
	}
}

// A part is one of the apply that was begun: of the same range, holder, turn and number of parts.
func TestPartsOfAnotherApply(t *testing.T) {
	a := &staged{apply: rowwire.ApplyRequest{Part: 1, Parts: 3, Epoch: 4, From: 10, To: 20, Turn: 5, Generation: 6}}
	for name, change := range map[string]func(*rowwire.ApplyRequest){
		"another part": func(r *rowwire.ApplyRequest) { r.Part++ }, "of more parts": func(r *rowwire.ApplyRequest) { r.Parts++ },
		"of another holder": func(r *rowwire.ApplyRequest) { r.Epoch++ }, "from another offset": func(r *rowwire.ApplyRequest) { r.From++ },
		"to another offset": func(r *rowwire.ApplyRequest) { r.To++ }, "of another turn": func(r *rowwire.ApplyRequest) { r.Turn++ },
		"of another generation": func(r *rowwire.ApplyRequest) { r.Generation++ },
	} {
		r := a.apply
		if change(&r); a.continues(&r) {
			t.Errorf("%s: it is taken for the next one", name)
		}
	}
	if r := a.apply; !a.continues(&r) || (*staged)(nil).continues(&r) {
		t.Error("the next part is not taken for that, or one is of an apply that nobody began")
	}
	bands := &staged{apply: rowwire.ApplyRequest{Dense: []rowwire.NamedTensor{{Name: "v", At: 8}}}}
	for id, again := range map[bandID]bool{{"v", 8}: true, {"v", 0}: false, {"w", 8}: false} {
		err := bands.repeats(&rowwire.ApplyRequest{Dense: []rowwire.NamedTensor{{Name: id.name, At: uint32(id.at)}}})
		if (err != nil) != again {
			t.Errorf("a band of %q at %d: %v", id.name, id.at, err)
		}
	}
}
