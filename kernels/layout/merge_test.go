package layout_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/kernels/layout"
)

// sharing is a plan of features of one table, of which two are pooled otherwise.
func sharing(t *testing.T, shards int) *layout.Plan {
	return compile(t, layout.Config{
		Features: []layout.Feature{
			{Name: "a", Table: "t", SliceDims: []int{3}}, {Name: "b", Table: "t", SliceDims: []int{3}, Pooling: layout.Mean},
			{Name: "c", Table: "t", SliceDims: []int{3}, Pooling: layout.FirstN, MaxSequenceLength: 2}, {Name: "d", Table: "u", SliceDims: []int{5}},
		},
		Outputs: []layout.Output{
			{Name: "o", Slices: []layout.Slice{{Feature: "b", End: 3}, {Feature: "a", End: 3}, {Feature: "d", End: 5}}},
			{Name: "p", Slices: []layout.Slice{{Feature: "c", End: 3}}},
		},
		Shards: shards,
	})
}

// Rows set as a column are those set one by one, and merged features read the same rows and give
// them the same gradients as features by themselves.
func TestMergedFeaturesReadTheSameRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, shards := range []int{1, 3} {
		p := sharing(t, shards)
		one, each := p.NewBatch(), p.NewBatch()
		fillAlike(t, rng, one, each)
		var merged, apart, again layout.Shards
		for dst, b := range map[*layout.Shards]*layout.Batch{&merged: one, &apart: each, &again: one} {
			if err := p.Shard(dst, b, layout.ShardOptions{Version: layout.V5, Unique: true, Merge: dst == &merged}); err != nil {
				t.Fatal(err)
			}
		}
		sameShards(t, &again, &apart)
		for block, ids := range merged.FIDs {
			if sorted := slices.Sorted(slices.Values(ids)); len(slices.Compact(sorted)) != len(ids) {
				t.Errorf("block %d has an id twice: %v", block, ids)
			}
		}
		got, gotSums := there(t, p, &merged, shards)
		want, wantSums := there(t, p, &apart, shards)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tensors (-apart +merged):\n%s", diff)
		}
		if diff := cmp.Diff(wantSums, gotSums, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-4 })); diff != "" {
			t.Errorf("gradients by row (-apart +merged):\n%s", diff)
		}
	}
}

// fillAlike draws 30 samples into both batches, into one feature by feature and into each row
// by row.
func fillAlike(t *testing.T, rng *rand.Rand, one, each *layout.Batch) {
	t.Helper()
	const samples = 30
	for _, b := range []*layout.Batch{one, each} {
		if err := b.Reset(samples); err != nil {
			t.Fatal(err)
		}
	}
	for f := range 4 {
		var ids []int64
		var ends []int32
		for i := range samples {
			var row []uint64
			for range rng.IntN(4) {
				row = append(row, rng.Uint64N(12))
				ids = append(ids, int64(row[len(row)-1]))
			}
			ends = append(ends, int32(len(ids)))
			if err := each.Row(f, i, false, row); err != nil {
				t.Fatal(err)
			}
		}
		if err := one.Ragged(f, ids, ends); err != nil {
			t.Fatal(err)
		}
	}
}

// there is the tensors that rows of s make, and by block and id the sums of the gradients that
// come back.
func there(t *testing.T, p *layout.Plan, s *layout.Shards, shards int) ([]layout.Tensor, map[[2]int64][]float64) {
	t.Helper()
	rows := make([][]float32, len(s.FIDs))
	for block, ids := range s.FIDs {
		for _, id := range ids {
			for c := range []int{3, 5}[block/shards] {
				rows[block] = append(rows[block], float32(id)+float32(c)/8)
			}
		}
	}
	tensors, err := p.Forward(nil, s.Rows(rows), nil)
	if err != nil {
		t.Fatal(err)
	}
	slopes := rand.New(rand.NewPCG(7, 7))
	var by [][]float32
	for _, x := range tensors {
		d := make([]float32, len(x.Data))
		for k := range d {
			d[k] = slopes.Float32()
		}
		by = append(by, d)
	}
	grads, err := p.Gradient(nil, s.Rows(rows), by, nil)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[[2]int64][]float64{}
	for block, ids := range s.FIDs {
		dim := []int{3, 5}[block/shards]
		for k, id := range ids {
			key := [2]int64{int64(block), id}
			if sums[key] == nil {
				sums[key] = make([]float64, dim)
			}
			for c := range dim {
				sums[key][c] += float64(grads[block][k*dim+c])
			}
		}
	}
	return tensors, sums
}

func TestRaggedAndMergeRefuse(t *testing.T) {
	p := sharing(t, 1)
	b := p.NewBatch()
	if err := b.Reset(2); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"an end for two samples":  b.Ragged(0, []int64{1}, []int32{1}),
		"ends that fall":          b.Ragged(0, []int64{1}, []int32{2, 1}),
		"ids that nobody has":     b.Ragged(0, []int64{1, 2}, []int32{0, 1}),
		"one version":             p.Shard(&layout.Shards{}, b, layout.ShardOptions{Version: layout.V1, Unique: true, Merge: true}),
		"ids that are not unique": p.Shard(&layout.Shards{}, b, layout.ShardOptions{Version: layout.V5, Merge: true}),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for want := range 2 {
		if err := b.Ragged(0, []int64{1}, []int32{0, 1}); (err != nil) != (want == 1) {
			t.Errorf("a column set %d times: %v", want+1, err)
		}
	}
}
