package layout_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// NaN and infinities of a row, or of a gradient, go where IEEE 754 takes them and nowhere
// else, in every version, pooling, width and parallelism: a sample without that id, and a
// row that a sample without it reads, are as before.
func TestNaNAndInf(t *testing.T) {
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	pool := partest.New(t, 3)
	rng := rand.New(rand.NewPCG(21, 22))
	for _, pooling := range []layout.Pooling{layout.Sum, layout.Mean, layout.FirstN} {
		for _, width := range []int{1, 3, 8, 17, 64} {
			w := &world{batch: 9, rows: map[string][][]uint64{}, shared: map[string]bool{}}
			w.cfg.Shards = 2
			w.cfg.Features = []layout.Feature{{Name: "f", Table: "t", SliceDims: []int{width}, Pooling: pooling, MaxSequenceLength: 4}}
			w.cfg.Outputs = []layout.Output{{Name: "o", Type: layout.None, Slices: []layout.Slice{{Feature: "f", Start: 0, End: width}}}}
			for range w.batch {
				var ids []uint64
				for range rng.IntN(4) { // FIRSTN keeps them all
					ids = append(ids, rng.Uint64N(6))
				}
				w.rows["f"] = append(w.rows["f"], ids)
			}
			p := compile(t, w.cfg)
			b := p.NewBatch()
			w.fill(t, p, b, false)
			want := w.forward()[0]
			at := rng.IntN(width) // the column that is spoilt
			c := w.cut(true)
			for _, v := range versions {
				for _, runner := range []layout.Runner{nil, pool} {
					name := fmt.Sprintf("pooling %d, width %d, v%d, pool %t", pooling, width, v, runner != nil)
					var shards layout.Shards
					if err := p.Shard(&shards, b, layout.ShardOptions{Version: v, Unique: true}); err != nil {
						t.Fatal(err)
					}
					embeddings, bad := w.embeddings(c, v), odd[rng.IntN(len(odd))]
					for i, ids := range shards.FIDs {
						for j, id := range ids {
							if id == 3 {
								embeddings[i][j*width+at] = bad
							}
						}
					}
					got, err := p.Forward(nil, shards.Rows(embeddings), runner)
					if err != nil {
						t.Fatal(err)
					}
					per := len(want) / w.batch
					for i, x := range got[0].Data {
						ids, spoilt := w.rows["f"][i/per], false
						for k, id := range ids {
							if id == 3 && i%width == at && (pooling != layout.FirstN || i%per/width == k) {
								spoilt = true
							}
						}
						if spoilt && x != bad && (x == x || bad == bad) {
							t.Fatalf("%s: float %d is %g where the row has %g", name, i, x, bad)
						} else if !spoilt && !(math.Abs(float64(x)-want[i]) < 1e-4) {
							t.Fatalf("%s: float %d is %g, want %g: it has nothing of the row with %g", name, i, x, want[i], bad)
						}
					}

					sample := rng.IntN(w.batch)
					grads := make([]float32, len(want))
					grads[sample*per+at] = bad
					back, err := p.Gradient(nil, shards.Rows(embeddings), [][]float32{grads}, runner)
					if err != nil {
						t.Fatal(err)
					}
					for i, ids := range shards.FIDs {
						for j, id := range ids {
							reads := false
							for k, other := range w.rows["f"][sample] {
								reads = reads || int64(other) == id && (pooling != layout.FirstN || k == 0)
							}
							for col := range width {
								x := back[i][j*width+col]
								if reads && col == at && x != bad && (x == x || bad == bad) || (!reads || col != at) && x != 0 {
									t.Fatalf("%s: column %d of the gradient of row %d is %g", name, col, id, x)
								}
							}
						}
					}
				}
			}
		}
	}
}
