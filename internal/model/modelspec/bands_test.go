package modelspec

import (
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
)

func TestBands(t *testing.T) {
	for name, tc := range map[string]struct {
		shape []uint32
		sizes []int
	}{
		"what fits is one":         {[]uint32{224, 1024}, []int{MaxBand}},
		"a vector that fits":       {[]uint32{MaxBand}, []int{MaxBand}},
		"a DeepFM's first kernel":  {[]uint32{416, 1024}, []int{208 * 1024, 208 * 1024}},
		"rows do not divide":       {[]uint32{225, 1024}, []int{112 * 1024, 113 * 1024}},
		"three rows of a half":     {[]uint32{3, 120_000}, []int{120_000, 120_000, 120_000}},
		"a long vector":            {[]uint32{MaxBand + 1}, []int{114_688, 114_689}},
		"a row longer than a band": {[]uint32{2, 300_000}, []int{200_000, 200_000, 200_000}},
		"rows of planes":           {[]uint32{2, 3, 100_000}, []int{200_000, 200_000, 200_000}},
	} {
		v := Variable{Name: "v", Shape: tc.shape, Size: 1}
		for _, d := range tc.shape {
			v.Size *= int(d)
		}
		at := 0
		var sizes []int
		for k, b := range Bands([]Variable{{Name: "u", Shape: []uint32{1}, Size: 1}, v})[1:] {
			if b.At != at || b.Index != k || b.Variable != 1 || b.Size > MaxBand || !slices.Equal(b.Shape, tc.shape) {
				t.Errorf("%s: band %d is %+v, it should begin at %d", name, k, b, at)
			}
			at += b.Size
			sizes = append(sizes, b.Size)
		}
		if !slices.Equal(sizes, tc.sizes) || at != v.Size {
			t.Errorf("%s: bands of %v, want %v", name, sizes, tc.sizes)
		}
	}
}

// Band k of variable i lives on shard (i+k) mod shards, so each variable that is one band stays
// where it ever was.
func TestBandsGoRound(t *testing.T) {
	vars := []Variable{{Name: "a", Shape: []uint32{416, 1024}, Size: 416 * 1024}, {Name: "b", Shape: []uint32{4}, Size: 4}, {Name: "c", Shape: []uint32{4}, Size: 4}}
	for shards := 1; shards < 5; shards++ {
		n := 0
		for shard := range shards {
			for _, b := range BandsOf(vars, shard, shards) {
				if n++; (b.Variable+b.Index)%shards != shard {
					t.Errorf("of %d shards, %d has %+v", shards, shard, b)
				}
			}
		}
		if n != 4 {
			t.Errorf("%d shards have %d bands of 4", shards, n)
		}
	}
}

func TestSpread(t *testing.T) {
	vars := []Variable{{Name: "a", Shape: []uint32{1 << 12, 1 << 12}, Size: 1 << 24}} // 64 MiB
	if err := Spread(vars, 1); err == nil || Spread(vars, 2) != nil {
		t.Errorf("64 MiB on one shard: %v, on two: %v", err, Spread(vars, 2))
	}
}

// Only kernels of products in bfloat16 may be rounded on their way: no bias, and nothing that
// another layer reads whole.
func TestRounded(t *testing.T) {
	spec := MovieRanking()
	for _, compute := range []model.ModelSpec_Compute{model.ModelSpec_FP32, model.ModelSpec_BF16} {
		spec.Compute = compute
		got, err := Rounded(spec)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range Variables(spec) {
			want := compute == model.ModelSpec_BF16 && strings.HasSuffix(v.Name, "kernel") && v.Shape[1] > 1 // logits are fp32
			if got[i] != want {
				t.Errorf("in %v, %s may be rounded: %v", compute, v.Name, got[i])
			}
		}
	}
}
