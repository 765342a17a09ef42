package publish

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// own writes for the one shard of a job, whole rows.
var (
	own   = Writer{Job: pstest.Job, Shards: 1}
	whole = Format{compress.FP32{}}
)

// TestLargePublicationsAreChunked checks that chunks stay small, that together they
// hold every row once, and that the ranges stand on the last one alone.
func TestLargePublicationsAreChunked(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 28672, 28673, 200_000} {
		h := &Dirty{Epoch: 3, Step: 9, Ranges: []*delta.Range{{Partition: 1, From: 5, To: 10, Epoch: 2}}}
		user := Rows{Table: "user", Dim: 2, Values: make([]float32, 2*n), Format: whole}
		movie := Rows{Table: "movie", Dim: 3, Format: whole}
		for i := range n {
			user.IDs = append(user.IDs, int64(i)-10)
			user.Values[2*i] = float32(i)
			movie.Removed = append(movie.Removed, int64(i))
		}
		if n > 0 {
			h.Rows = []Rows{user, movie}
		}
		var ids, removed []int64
		ds := own.rowDeltas(h)
		for i, d := range ds {
			b, err := proto.Marshal(d)
			if err != nil || len(b) >= 512<<10 {
				t.Errorf("%d rows: chunk %d has %d bytes, %v", n, i, len(b), err)
			}
			if int(d.Chunk) != i || int(d.Chunks) != len(ds) || d.Epoch != 3 || d.Step != 9 || (len(d.Ranges) == 1) != (i == len(ds)-1) {
				t.Errorf("%d rows: chunk %d says %d of %d, with %d ranges", n, i, d.Chunk, d.Chunks, len(d.Ranges))
			}
			for _, r := range d.Rows {
				v := pstest.Floats(r.Values)
				if len(v) != len(r.Ids)*int(r.Dim) {
					t.Fatalf("%d rows: %d values for %d ids", n, len(v), len(r.Ids))
				}
				for j, id := range r.Ids {
					if v[j*int(r.Dim)] != float32(int64(id)+10) {
						t.Fatalf("%d rows: row %d got the values of another", n, int64(id))
					}
					ids = append(ids, int64(id))
				}
				for _, id := range r.Removed {
					removed = append(removed, int64(id))
				}
			}
		}
		if !slices.Equal(ids, user.IDs) || !slices.Equal(removed, movie.Removed) {
			t.Errorf("%d rows: the chunks hold %d and drop %d", n, len(ids), len(removed))
		}
		groups, err := drafts("msync.x", "id", "", ds)
		if err != nil {
			t.Fatal(err)
		}
		total, seen := 0, map[string]bool{}
		for _, g := range groups {
			size := 0
			for _, d := range g {
				size += len(d.Data)
				seen[d.ID] = true
			}
			total += len(g)
			if size > groupBytes {
				t.Errorf("%d rows: a group of %d bytes", n, size)
			}
		}
		if total != len(ds) || len(seen) != len(ds) {
			t.Errorf("%d rows: %d drafts with %d ids for %d chunks", n, total, len(seen), len(ds))
		}
	}
}

// Chunks of narrow rows are filled as those of whole ones, and hold every row once.
func TestNarrowRowsAreChunked(t *testing.T) {
	hundred, err := compress.NewFixedR8(100)
	if err != nil {
		t.Fatal(err)
	}
	const n = 150_000
	h := &Dirty{Rows: []Rows{{Table: "user", Dim: 2, Format: Format{hundred}}}}
	for i := range n {
		h.Rows[0].IDs = append(h.Rows[0].IDs, int64(i))
		h.Rows[0].Values = append(h.Rows[0].Values, float32(i%100), -float32(i%100))
	}
	ds, at := own.rowDeltas(h), 0
	for i, d := range ds {
		size := proto.Size(d)
		if size >= 512<<10 || i < len(ds)-1 && size < chunkBytes*9/10 {
			t.Errorf("chunk %d of %d has %d bytes", i, len(ds), size)
		}
		for _, r := range d.GetRows() {
			for j, id := range r.GetIds() {
				row := pstest.Row(r, r.GetValues()[2*j:2*j+2])
				if int(id) != at || math.Abs(float64(row[0])-float64(at%100)) > 100./256 || row[1] != -row[0] {
					t.Fatalf("row %d came as %d, %v", at, id, row)
				}
				at++
			}
		}
	}
	if at != n || len(ds) != 4 {
		t.Errorf("%d rows in %d chunks", at, len(ds))
	}
}

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
		if f, compressed := FormatOf(segments, tc.skip); f.Compressor != tc.want || compressed != tc.compressed {
			t.Errorf("%s: %T, compressed %v", name, f.Compressor, compressed)
		}
	}
	halves := Format{compress.FP16{}}
	for x, want := range map[float32]bool{maxHalf: true, -maxHalf: true, maxHalf + 8: false, -maxHalf - 8: false} {
		if got := halves.Fits([]float32{1, x}); got != want {
			t.Errorf("%v fits a half: %v", x, got)
		}
	}
}

// A row with a number beyond halves comes whole, beside the others.
func TestRowsBeyondTheirFormatComeWhole(t *testing.T) {
	h := &Dirty{Rows: []Rows{{Table: "user", Dim: 2, IDs: []int64{1, 2, 3}, Values: []float32{1, 2, 70000, 4, 5, 6}, Removed: []int64{9}, Format: Format{compress.FP16{}}}}}
	ds := own.rowDeltas(h)
	if len(ds) != 1 || len(ds[0].Rows) != 2 || !slices.Equal(ds[0].Rows[0].Ids, []uint64{1, 3}) || !slices.Equal(ds[0].Rows[0].Removed, []uint64{9}) ||
		ds[0].Rows[1].Encoding != delta.Encoding_FP32 || !slices.Equal(ds[0].Rows[1].Ids, []uint64{2}) || !slices.Equal(pstest.Floats(ds[0].Rows[1].Values), []float32{70000, 4}) {
		t.Errorf("rows came as %v", ds)
	}
}

// Signs travel as bits: each row begins at a byte, whatever its length, and no chunk is fuller than it may be.
func TestSignsTravelAsBits(t *testing.T) {
	for _, dim := range []int{1, 7, 8, 9, 64, 1000} {
		const n = 500
		h := &Dirty{Rows: []Rows{{Table: "user", Dim: dim, Format: Format{compress.OneBit{Amplitude: .25}}}}}
		for i := range n {
			h.Rows[0].IDs = append(h.Rows[0].IDs, int64(i))
			for j := range dim {
				h.Rows[0].Values = append(h.Rows[0].Values, float32((i*j)%5-2))
			}
		}
		at, size := 0, (dim+7)/8
		for _, d := range own.rowDeltas(h) {
			for _, r := range d.GetRows() {
				if r.GetEncoding() != delta.Encoding_BITS || len(r.GetValues()) != size*len(r.GetIds()) {
					t.Fatalf("%d rows of %d signs are %d bytes of %v", len(r.GetIds()), dim, len(r.GetValues()), r.GetEncoding())
				}
				for k := range r.GetIds() {
					for j, x := range pstest.Row(r, r.GetValues()[k*size:(k+1)*size]) {
						if want := h.Rows[0].Values[at*dim+j]; x != .25 && x != -.25 || x > 0 != (want > 0) {
							t.Fatalf("number %d of row %d of %d is %v, and %v came", j, at, dim, want, x)
						}
					}
					at++
				}
			}
		}
		if at != n {
			t.Errorf("%d rows of %d came", at, n)
		}
	}
}

// Variables fill chunks up to their bound; one that is larger has its own.
func TestChunksOfVariablesAreFull(t *testing.T) {
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
		h := &Dirty{Dense: tc.dense}
		var got []int
		ds := own.denseDeltas(h)
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
	if ds := own.rowDeltas(&Dirty{}); ds != nil {
		t.Errorf("nothing makes %d deltas", len(ds))
	}
	if ds := own.rowDeltas(&Dirty{Ranges: []*delta.Range{{To: 1}}}); len(ds) != 1 || len(ds[0].Ranges) != 1 {
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
