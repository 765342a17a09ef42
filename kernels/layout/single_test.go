package layout_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
)

func twoFeatures(t *testing.T) *layout.Plan {
	return compile(t, layout.Config{
		Features: []layout.Feature{{Name: "a", Table: "t", SliceDims: []int{2}}, {Name: "b", Table: "u", SliceDims: []int{9}}},
		Outputs:  []layout.Output{{Name: "o", Slices: []layout.Slice{{Feature: "b", End: 9}, {Feature: "a", End: 2}}}},
		Shards:   2, Limits: layout.Limits{Batch: 8, FIDs: 6},
	})
}

// A column set at once is the batch that its rows make one by one.
func TestSingleIsAColumnOfRows(t *testing.T) {
	p := twoFeatures(t)
	one, each := p.NewBatch(), p.NewBatch()
	for _, b := range []*layout.Batch{one, each} {
		if err := b.Reset(3); err != nil {
			t.Fatal(err)
		}
	}
	for f := range 2 {
		fids := []int64{int64(layouttest.MakeV2(7, 5)), 4, int64(layouttest.MakeV2(7, 5))}
		if err := one.Single(f, fids); err != nil {
			t.Fatal(err)
		}
		for i, fid := range fids {
			if err := each.Row(f, i, false, []uint64{uint64(fid)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got, want layout.Shards
	for dst, b := range map[*layout.Shards]*layout.Batch{&got: one, &want: each} {
		if err := p.Shard(dst, b, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
			t.Fatal(err)
		}
	}
	sameShards(t, &got, &want)
	if err := one.Single(0, make([]int64, 3)); err == nil {
		t.Error("a column is set twice, or beyond Limits.FIDs")
	}
	if err := one.Reset(3); err != nil {
		t.Fatal(err)
	}
	if err := one.Single(0, make([]int64, 2)); err == nil {
		t.Error("two ids for three samples")
	}
	if err := one.ResetColumns(3); err != nil {
		t.Fatal(err)
	}
	if err := one.Single(0, make([]int64, 3)); err == nil {
		t.Error("a column of a feature that is not in the batch")
	}
}

// A row that stands alone is copied: its zeros keep their sign. What the tensor held before
// never shows.
func TestARowAloneIsCopied(t *testing.T) {
	p := twoFeatures(t)
	b := p.NewBatch()
	if err := b.Reset(2); err != nil {
		t.Fatal(err)
	}
	if err := b.Single(0, []int64{2, 4}); err != nil { // and none of b
		t.Fatal(err)
	}
	var s layout.Shards
	if err := p.Shard(&s, b, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
		t.Fatal(err)
	}
	minus := float32(math.Copysign(0, -1))
	rows := s.Rows([][]float32{{minus, 1, 2, minus}, nil, nil, nil})
	dst := []layout.Tensor{{Data: slices.Repeat([]float32{5}, 22)}}
	got, err := p.Forward(dst, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]uint32, 9)
	want := slices.Concat(zeros, []uint32{1 << 31, math.Float32bits(1)}, zeros, []uint32{math.Float32bits(2), 1 << 31})
	var bits []uint32
	for _, x := range got[0].Data {
		bits = append(bits, math.Float32bits(x))
	}
	if diff := cmp.Diff(want, bits); diff != "" {
		t.Errorf("bits (-want +got):\n%s", diff)
	}
}
