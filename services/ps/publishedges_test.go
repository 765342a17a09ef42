package ps

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
)

func TestFormatsOfSegments(t *testing.T) {
	bits := compress.OneBit{Amplitude: 1}
	for name, tc := range map[string]struct {
		segments   []compress.Compressor
		skip       bool
		want       compress.Compressor
		compressed bool
	}{
		"halves":         {[]compress.Compressor{compress.FP16{}}, false, compress.FP16{}, false},
		"all halves":     {[]compress.Compressor{compress.FP16{}, compress.FP16{}}, false, compress.FP16{}, false},
		"of two kinds":   {[]compress.Compressor{compress.FP16{}, compress.FP32{}}, false, compress.FP32{}, false},
		"bits":           {[]compress.Compressor{bits}, false, bits, true},
		"bits or none":   {[]compress.Compressor{bits}, true, compress.FP32{}, true},
		"halves or none": {[]compress.Compressor{compress.FP16{}}, true, compress.FP16{}, false},
	} {
		var segments []table.Segment
		for _, c := range tc.segments {
			segments = append(segments, table.Segment{Dim: 1, Compressor: c})
		}
		if f, compressed := formatOf(segments, tc.skip); f.Compressor != tc.want || compressed != tc.compressed {
			t.Errorf("%s: %T, compressed %v", name, f.Compressor, compressed)
		}
	}
	halves := format{compress.FP16{}}
	for x, want := range map[float32]compress.Compressor{maxHalf: compress.FP16{}, -maxHalf: compress.FP16{}, maxHalf + 8: compress.FP32{}, -maxHalf - 8: compress.FP32{}} {
		if got := halves.fit([]float32{1, x}); got.Compressor != want {
			t.Errorf("%v travels as %T", x, got.Compressor)
		}
	}
}

// Variables fill chunks up to their bound; one that is larger has its own.
func TestChunksOfVariablesAreFull(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, counting())
	if err != nil {
		t.Fatal(err)
	}
	v := func(n int) *delta.Variable { return &delta.Variable{Name: "abcd", Values: make([]byte, n-4-64)} }
	for name, tc := range map[string]struct {
		dense []*delta.Variable
		want  []int
	}{
		"none":           {nil, nil},
		"exactly full":   {[]*delta.Variable{v(chunkBytes / 2), v(chunkBytes / 2), v(100)}, []int{2, 1}},
		"a byte over":    {[]*delta.Variable{v(chunkBytes / 2), v(chunkBytes/2 + 1), v(100)}, []int{1, 2}},
		"one very large": {[]*delta.Variable{v(100), v(3 * chunkBytes), v(100), v(100)}, []int{1, 1, 2}},
	} {
		h := &dirtyRows{dense: tc.dense}
		var got []int
		ds := h.denseDeltas(f)
		for i, d := range ds {
			got = append(got, len(d.Dense))
			if int(d.Chunk) != i || int(d.Chunks) != len(ds) {
				t.Errorf("%s: chunk %d says %d of %d", name, i, d.Chunk, d.Chunks)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: chunks of %v variables, want %v", name, got, tc.want)
		}
	}
	if ds := (&dirtyRows{}).rowDeltas(f); ds != nil {
		t.Errorf("nothing makes %d deltas", len(ds))
	}
	if ds := (&dirtyRows{ranges: []*delta.Range{{To: 1}}}).rowDeltas(f); len(ds) != 1 || len(ds[0].Ranges) != 1 {
		t.Errorf("a range alone makes %v", ds)
	}
	big := make([]*delta.Delta, 0, 40)
	for range 40 {
		big = append(big, &delta.Delta{Dense: []*delta.Variable{{Values: make([]byte, 512<<10)}}})
	}
	groups, err := drafts("s", "id", "", big)
	if err != nil || len(groups) != 3 {
		t.Fatalf("20 MiB are %d groups, %v", len(groups), err)
	}
	n := 0
	for _, g := range groups {
		for _, d := range g {
			if d.ID != fmt.Sprintf("id.%d", n) {
				t.Errorf("delta %d is called %s", n, d.ID)
			}
			n++
		}
	}
}

// Rows, variables or ranges alone are enough for a publication; what is gone without
// having been published is none.
func TestWhatMakesAPublication(t *testing.T) {
	never, always0 := func(int) bool { return false }, func(int) bool { return true }
	for name, tc := range map[string]struct {
		change func(*state)
		dense  func(int) bool
		want   string // rows, ranges, variables; "": none
	}{
		"nothing":          {func(*state) {}, always0, ""},
		"variables":        {func(s *state) { s.denseTouched = true }, always0, "0 rows, 0 ranges, variables"},
		"variables, later": {func(s *state) { s.denseTouched = true }, never, ""},
		"ranges":           {func(s *state) { s.addRange(&delta.Range{To: 1}) }, never, "0 rows, 1 ranges"},
		"a row": {func(s *state) {
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
		}, never, "1 rows, 0 ranges"},
		"a row that nobody has heard of": {func(s *state) {
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
			s.tables["user"].Remove([]int64{1})
		}, never, ""},
		"a row that went": {func(s *state) { s.miss("user", []int64{1}) }, never, "1 rows, 0 ranges"},
		"a row that went and came back": {func(s *state) {
			s.miss("user", []int64{1})
			_ = s.tables["user"].Assign([]int64{1}, []float32{1, 2}, 1, 0)
		}, never, "1 rows, 0 ranges"},
	} {
		s := standing(t, Config{})
		tc.change(s)
		later := s.denseTouched && !tc.dense(0)
		h := s.collectDirty(tc.dense)
		got := ""
		if h != nil {
			if got = fmt.Sprintf("%d rows, %d ranges", len(h.rows), len(h.ranges)); len(h.dense) > 0 {
				got += ", variables"
			}
		}
		if got != tc.want || s.denseTouched != later || h != nil && h.bad != nil {
			t.Errorf("%s: %q, want %q; variables are left: %v", name, got, tc.want, s.denseTouched)
		}
		if again := s.collectDirty(never); again != nil {
			t.Errorf("%s: published twice", name)
		}
	}
}

// What is published is finite; the greatest number is.
func TestWhatIsFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, tc := range []struct {
		x  float32
		ok bool
	}{{0, true}, {math.MaxFloat32, true}, {-math.MaxFloat32, true}, {inf, false}, {-inf, false}, {nan, false}} {
		for at := range 4 {
			values := make([]float32, 4)
			values[at] = tc.x
			s := standing(t, Config{})
			rows := &dirtyRows{rows: []dirtyTable{{table: "user", dim: 2, ids: []int64{1, 2}, values: values}}}
			if err := s.finite(rows); (err == nil) != tc.ok || err != nil && (!errors.Is(err, errDiverged) || !strings.Contains(err.Error(), fmt.Sprintf("row %d of", at/2+1))) {
				t.Errorf("%v at %d of two rows: %v", tc.x, at, err)
			}
			id := s.bandIDs[0]
			s.dense[id].values = values
			if err := s.finite(&dirtyRows{dense: []*delta.Variable{{Name: id.name}}}); (err == nil) != tc.ok || err != nil && !errors.Is(err, errDiverged) {
				t.Errorf("%v at %d of a variable: %v", tc.x, at, err)
			}
		}
	}
}

// Variables go along with every n-th publication that holds applies, and after a pause.
func TestWhenVariablesAreDue(t *testing.T) {
	p := &publisher{}
	due := p.due(3)
	var got []bool
	for _, applies := range []int{1, 5, 1, 1, 0, 1, 1, 1, 0} {
		got = append(got, due(applies))
	}
	if want := []bool{false, false, true, false, true, false, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("due %v, want %v", got, want)
	}
}
