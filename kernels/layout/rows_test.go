package layout_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// cloneRows copies everything, so that a test can spoil it.
func cloneRows(r *layout.Rows) *layout.Rows {
	c := *r
	c.Embeddings, c.RowSplits = slices.Clone(r.Embeddings), slices.Clone(r.RowSplits)
	for i := range c.RowSplits {
		c.RowSplits[i] = slices.Clone(c.RowSplits[i])
	}
	c.FIDOffset, c.FeatureOffset, c.NFLOffset = slices.Clone(r.FIDOffset), slices.Clone(r.FeatureOffset), slices.Clone(r.NFLOffset)
	c.BatchSize, c.EmbRowLength, c.EmbSize = slices.Clone(r.BatchSize), slices.Clone(r.EmbRowLength), slices.Clone(r.EmbSize)
	c.NFLSize, c.FeatureSize, c.FIDSize = slices.Clone(r.NFLSize), slices.Clone(r.FeatureSize), slices.Clone(r.FIDSize)
	return &c
}

// smallRows is a batch of two samples of [small] in version v.
func smallRows(t testing.TB, p *layout.Plan, v layout.Version) *layout.Rows {
	t.Helper()
	b := p.NewBatch()
	if err := b.ReadExamples([][]byte{
		slices.Concat(namedFeature("fc_slot_3", feature(2, 1, 2, 3)), namedFeature("item", feature(2, 7))),
		namedFeature("item", feature(2, 7, 8)),
	}); err != nil {
		t.Fatal(err)
	}
	s := &layout.Shards{}
	if err := p.Shard(s, b, layout.ShardOptions{Version: v, Unique: true}); err != nil {
		t.Fatal(err)
	}
	var embeddings [][]float32
	for _, fids := range s.FIDs {
		embeddings = append(embeddings, slices.Repeat([]float32{1}, 5*len(fids)))
	}
	return s.Rows(embeddings)
}

func TestRowsRefused(t *testing.T) {
	p := compile(t, small())
	for _, tc := range []struct {
		name  string
		v     layout.Version
		spoil func(r *layout.Rows)
		want  string
	}{
		{"version 0", layout.V3, func(r *layout.Rows) { r.Version = 0 }, "version 0"},
		{"no batch size", layout.V3, func(r *layout.Rows) { r.BatchSize = nil }, "0 batch sizes"},
		{"two batch sizes", layout.V4, func(r *layout.Rows) { r.BatchSize = []int32{1, 1} }, "2 batch sizes"},
		{"negative batch", layout.V3, func(r *layout.Rows) { r.BatchSize[0] = -1 }, "batch size -1"},
		{"huge batch", layout.V3, func(r *layout.Rows) { r.BatchSize[0] = 1 << 30 }, "batch size 1073741824"},
		{"another batch", layout.V3, func(r *layout.Rows) { r.BatchSize[0] = 3 }, "nfl_offset[1] (feature \"item\") is row 2"},
		{"a buffer missing", layout.V3, func(r *layout.Rows) { r.Embeddings = r.Embeddings[1:] }, "5 embedding buffers"},
		{"a short buffer", layout.V1, func(r *layout.Rows) { r.Embeddings[1] = r.Embeddings[1][:4] }, "begins at float"},
		{"row beyond", layout.V1, func(r *layout.Rows) { r.FIDOffset[0]++ }, `feature "fc_slot_3": fid_offset`},
		{"last row", layout.V1, func(r *layout.Rows) { r.FIDOffset[0] |= 1<<32 - 1 }, "begins at float"},
		{"block of another table", layout.V3, func(r *layout.Rows) { r.FIDOffset[0] = 0 }, `not of table "u"`},
		{"block beyond", layout.V3, func(r *layout.Rows) { r.FIDOffset[0] = 1<<64 - 1 }, `not of table "u"`},
		{"float beyond", layout.V5, func(r *layout.Rows) { r.FIDOffset[0]++ }, "begins at float 1"},
		{"part of another", layout.V2, func(r *layout.Rows) { r.FIDOffset[0] = 0 }, "another feature's"},
		{"row beyond the part", layout.V2, func(r *layout.Rows) { r.FIDOffset[0]++ }, "begins at float 5"},
		{"no splits", layout.V2, func(r *layout.Rows) { r.RowSplits = nil }, "0 fid_list_row_splits"},
		{"splits fall", layout.V2, func(r *layout.Rows) { r.RowSplits[1][1] = -1 }, "fid_list_row_splits[1]"},
		{"splits too long", layout.V2, func(r *layout.Rows) { r.RowSplits[1][1] = 1 << 62 }, "fid_list_row_splits[1]"},
		{"splits too short", layout.V2, func(r *layout.Rows) { r.RowSplits[1][1] = 0 }, "speaks of 0 floats"},
		{"splits do not begin", layout.V2, func(r *layout.Rows) { r.RowSplits[1][0] = 1 }, "the first 0"},
		{"v4 lengths missing", layout.V4, func(r *layout.Rows) { r.EmbRowLength = nil }, "fid_list_emb_row_lenth"},
		{"v4 length negative", layout.V4, func(r *layout.Rows) { r.EmbRowLength[0] = -5 }, "fid_list_emb_row_lenth[0] is -5"},
		{"v4 length over", layout.V4, func(r *layout.Rows) { r.EmbRowLength[0]++ }, "floats are left"},
		{"v4 floats over", layout.V4, func(r *layout.Rows) { r.Embeddings[0] = append(r.Embeddings[0], 1) }, "leaves 1 floats over"},
		{"v5 emb_size missing", layout.V5, func(r *layout.Rows) { r.EmbSize = r.EmbSize[1:] }, "emb_size has 5"},
		{"v5 emb_size over", layout.V5, func(r *layout.Rows) { r.EmbSize[0] = 1 << 20 }, "emb_size[0] is 1048576"},
		{"v5 floats over", layout.V5, func(r *layout.Rows) { r.Embeddings[0] = append(r.Embeddings[0], 1) }, "leaves 1 floats"},
		{"v5 nfl_size over", layout.V5, func(r *layout.Rows) { r.NFLSize[0] = 100 }, "nfl_size[0] is 100"},
		{"v5 nfl_size missing", layout.V5, func(r *layout.Rows) { r.NFLSize = nil }, "nfl_size has 0"},
		{"v5 fid_size short", layout.V5, func(r *layout.Rows) { r.FIDSize[0]-- }, "leave 0, 0 and 1"},
		{"feature_offset falls", layout.V3, func(r *layout.Rows) { r.FeatureOffset[1] = -1 }, "falls from 0 to -1"},
		{"feature_offset ends early", layout.V3, func(r *layout.Rows) { r.FeatureOffset[4]-- }, "end with 6"},
		{"feature_offset empty", layout.V3, func(r *layout.Rows) { r.FeatureOffset = nil }, "feature_offset must"},
		{"nfl_offset short", layout.V3, func(r *layout.Rows) { r.NFLOffset = r.NFLOffset[1:] }, "nfl_offset has 2"},
		{"nfl_offset elsewhere", layout.V3, func(r *layout.Rows) { r.NFLOffset[1] = 1 }, "nfl_offset[1]"},
		{"nfl_offset end", layout.V3, func(r *layout.Rows) { r.NFLOffset[2] = 99 }, "ends with 99"},
		{"sharing claimed", layout.V3, func(r *layout.Rows) { r.NFLOffset[1] |= layout.SharedBit }, "covers 3 of 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			good := smallRows(t, p, tc.v)
			if _, err := p.Forward(nil, good, nil); err != nil {
				t.Fatalf("before: %v", err)
			}
			bad := cloneRows(good)
			tc.spoil(bad)
			if _, err := p.Forward(nil, bad, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Forward: %v, want %q", err, tc.want)
			}
			if _, err := p.Gradient(nil, bad, [][]float32{make([]float32, 2)}, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Gradient: %v, want %q", err, tc.want)
			}
		})
	}
}

func TestGradientRefused(t *testing.T) {
	p := compile(t, small())
	rows := smallRows(t, p, layout.V3)
	for _, grads := range [][][]float32{nil, {{1}}, {{1, 2, 3}}, {{1, 2}, {1}}} {
		if _, err := p.Gradient(nil, rows, grads, nil); err == nil {
			t.Errorf("gradients %v were taken", grads)
		}
	}
}

// The sentinel that ends nfl_offset may be rows + 1, as the original writes it, or rows.
func TestSentinel(t *testing.T) {
	p := compile(t, small())
	rows := smallRows(t, p, layout.V3)
	if got := rows.NFLOffset[2]; got != 5 {
		t.Fatalf("nfl_offset ends with %d, want 5: four rows and one", got)
	}
	rows.NFLOffset[2] = 4
	if _, err := p.Forward(nil, rows, nil); err != nil {
		t.Fatal(err)
	}
}

// Offsets of one feature may reach into another's rows without being out of bounds. Then
// nothing may run side by side, and the sums are still right.
func TestOverlap(t *testing.T) {
	cfg := layout.Config{Shards: 1}
	var slices2 []layout.Slice
	for _, name := range []string{"a", "b", "c", "d"} {
		cfg.Features = append(cfg.Features, layout.Feature{Name: name, Table: "t", SliceDims: []int{8}})
		slices2 = append(slices2, layout.Slice{Feature: name, Start: 0, End: 8})
	}
	cfg.Outputs = []layout.Output{{Name: "o", Type: layout.AddN, Slices: slices2}}
	p := compile(t, cfg)
	const batch = 500
	rows := &layout.Rows{Version: layout.V3, Embeddings: [][]float32{make([]float32, 8)}, BatchSize: []int32{batch}}
	for i := range 4 * batch {
		rows.FIDOffset = append(rows.FIDOffset, 0)
		rows.FeatureOffset = append(rows.FeatureOffset, int32(i))
	}
	rows.FeatureOffset = append(rows.FeatureOffset, 4*batch)
	rows.NFLOffset = []uint32{0, batch, 2 * batch, 3 * batch, 4*batch + 1}
	ones := [][]float32{slices.Repeat([]float32{1}, 8*batch)}
	var r spy
	got, err := p.Gradient(nil, rows, ones, &r)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.runs) > 0 {
		t.Errorf("overlapping features ran as %v tasks", r.runs)
	}
	if want := slices.Repeat([]float32{4 * batch}, 8); !slices.Equal(got[0], want) {
		t.Fatalf("gradient %v, want %v", got[0], want)
	}
	// The same, each feature with a row of its own, does run side by side.
	rows.Embeddings[0] = make([]float32, 32)
	for i := range rows.FIDOffset {
		rows.FIDOffset[i] = uint64(i / batch * 8)
	}
	if got, err = p.Gradient(got, rows, ones, &r); err != nil {
		t.Fatal(err)
	}
	if want := slices.Repeat([]float32{batch}, 32); !slices.Equal(got[0], want) || !slices.Equal(r.runs, []int{4}) {
		t.Fatalf("gradient %v in %v tasks, want %v in 4", got[0], r.runs, want)
	}
}

// spy runs tasks one by one, the last first, and remembers how many there were.
type spy struct{ runs []int }

func (s *spy) Run(n int, do func(int)) {
	s.runs = append(s.runs, n)
	for i := n - 1; i >= 0; i-- {
		do(i)
	}
}

// Version 5 answers several requests by one call: the same as one call for each.
func TestSeveralRequests(t *testing.T) {
	pool := partest.New(t, 3)
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := randomWorld(rng, true, false)
		p := compile(t, w.cfg)
		all := &layout.Rows{Version: layout.V5, Embeddings: make([][]float32, p.Blocks())}
		var single []*layout.Rows
		for range 1 + rng.IntN(4) {
			w.batch = rng.IntN(7)
			w.rows = map[string][][]uint64{}
			for _, name := range w.featureNames() {
				n := w.batch
				if w.shared[name] {
					n = 1
				}
				for range n {
					row := make([]uint64, rng.IntN(4))
					for i := range row {
						row[i] = rng.Uint64N(30)
					}
					w.rows[name] = append(w.rows[name], row)
				}
			}
			b := p.NewBatch()
			w.fill(t, p, b, true)
			s := &layout.Shards{}
			if err := p.Shard(s, b, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
				t.Fatal(err)
			}
			r := s.Rows(w.embeddings(w.cut(true), layout.V5))
			single = append(single, r)
			all.FIDOffset = append(all.FIDOffset, r.FIDOffset...)
			all.FeatureOffset = append(all.FeatureOffset, r.FeatureOffset...)
			all.NFLOffset = append(all.NFLOffset, r.NFLOffset...)
			all.BatchSize = append(all.BatchSize, r.BatchSize...)
			all.NFLSize = append(all.NFLSize, r.NFLSize...)
			all.FeatureSize = append(all.FeatureSize, r.FeatureSize...)
			all.FIDSize = append(all.FIDSize, r.FIDSize...)
			all.EmbSize = append(all.EmbSize, r.EmbSize...)
			for i, e := range r.Embeddings {
				all.Embeddings[i] = append(all.Embeddings[i], e...)
			}
		}
		got, err := p.Forward(nil, all, pool)
		if err != nil {
			t.Fatal(err)
		}
		want, wantGrad := make([][]float32, len(got)), make([][]float32, p.Blocks())
		for _, r := range single {
			out, err := p.Forward(nil, r, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range out {
				want[i] = append(want[i], out[i].Data...)
			}
			back, err := p.Gradient(nil, r, data(out), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range back {
				wantGrad[i] = append(wantGrad[i], back[i]...)
			}
		}
		sameBits(t, "forward", data(got), want)
		back, err := p.Gradient(nil, all, data(got), pool)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "gradient", back, wantGrad)
	}
}

// Spoilt offsets give an error or, where they are only different, numbers; never a panic.
func FuzzRows(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed, uint8(seed%5), uint8(seed))
	}
	p := compile(f, small())
	f.Fuzz(func(t *testing.T, seed uint64, v, strength uint8) {
		rng := rand.New(rand.NewPCG(seed, 4))
		r := cloneRows(smallRows(t, p, versions[v%5]))
		for range 1 + strength%4 {
			spoil(rng, r)
		}
		p.Forward(nil, r, nil)
		p.Gradient(nil, r, [][]float32{make([]float32, 2)}, nil)
	})
}

func spoil(rng *rand.Rand, r *layout.Rows) {
	big := []int64{0, 1, -1, 1 << 31, 1<<31 - 1, 1<<32 - 1, 1 << 33, -1 << 63, 5, 2}[rng.IntN(10)]
	change := func(n int, do func(i int)) {
		if n > 0 {
			do(rng.IntN(n))
		}
	}
	switch rng.IntN(12) {
	case 0:
		change(len(r.FIDOffset), func(i int) { r.FIDOffset[i] += uint64(big) })
	case 1:
		change(len(r.FIDOffset), func(i int) { r.FIDOffset[i] ^= uint64(big) << 32 })
	case 2:
		change(len(r.FeatureOffset), func(i int) { r.FeatureOffset[i] += int32(big) })
	case 3:
		change(len(r.NFLOffset), func(i int) { r.NFLOffset[i] += uint32(big) })
	case 4:
		change(len(r.Embeddings), func(i int) { r.Embeddings[i] = r.Embeddings[i][:len(r.Embeddings[i])/2] })
	case 5:
		change(len(r.RowSplits), func(i int) { r.RowSplits[i][rng.IntN(len(r.RowSplits[i]))] += big })
	case 6:
		change(len(r.EmbRowLength), func(i int) { r.EmbRowLength[i] += int32(big) })
	case 7:
		change(len(r.EmbSize), func(i int) { r.EmbSize[i] += int32(big) })
	case 8:
		r.BatchSize = append(r.BatchSize, int32(big))
	case 9:
		r.BatchSize[0] = int32(big)
	case 10:
		r.FIDOffset = append(r.FIDOffset, uint64(big))
	case 11:
		change(len(r.FIDSize), func(i int) { r.FIDSize[i], r.NFLSize[i], r.FeatureSize[i] = int32(big), int32(big), int32(big) })
	}
}
