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
	pool := partest.New(t, 3)
	rng := rand.New(rand.NewPCG(21, 22))
	for _, pooling := range []layout.Pooling{layout.Sum, layout.Mean, layout.FirstN} {
		for _, width := range []int{1, 3, 8, 17, 64} {
			s := newSpoilt(t, rng, pooling, width)
			for _, v := range versions {
				for _, runner := range []layout.Runner{nil, pool} {
					s.name = fmt.Sprintf("pooling %d, width %d, v%d, pool %t", pooling, width, v, runner != nil)
					s.check(t, rng, v, runner)
				}
			}
		}
	}
}

// spoilt is a world of one feature in which row 3 has one number that is none, in column at.
type spoilt struct {
	*world
	name      string
	pooling   layout.Pooling
	width, at int
	p         *layout.Plan
	b         *layout.Batch
	c         cut
	want      []float64
	shards    layout.Shards
}

func newSpoilt(t *testing.T, rng *rand.Rand, pooling layout.Pooling, width int) *spoilt {
	t.Helper()
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
	s := &spoilt{world: w, pooling: pooling, width: width, p: compile(t, w.cfg)}
	s.b = s.p.NewBatch()
	w.fill(t, s.p, s.b, false)
	s.want = w.forward()[0]
	s.at = rng.IntN(width)
	s.c = w.cut(true)
	return s
}

func (s *spoilt) check(t *testing.T, rng *rand.Rand, v layout.Version, runner layout.Runner) {
	t.Helper()
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	s.shards = layout.Shards{}
	if err := s.p.Shard(&s.shards, s.b, layout.ShardOptions{Version: v, Unique: true}); err != nil {
		t.Fatal(err)
	}
	embeddings, bad := s.embeddings(s.c, v), odd[rng.IntN(len(odd))]
	for i, ids := range s.shards.FIDs {
		for j, id := range ids {
			if id == 3 {
				embeddings[i][j*s.width+s.at] = bad
			}
		}
	}
	got, err := s.p.Forward(nil, s.shards.Rows(embeddings), runner)
	if err != nil {
		t.Fatal(err)
	}
	s.checkForward(t, got[0].Data, bad)

	sample := rng.IntN(s.batch)
	grads := make([]float32, len(s.want))
	grads[sample*(len(s.want)/s.batch)+s.at] = bad
	back, err := s.p.Gradient(nil, s.shards.Rows(embeddings), [][]float32{grads}, runner)
	if err != nil {
		t.Fatal(err)
	}
	s.checkGradient(t, sample, back, bad)
}

// checkForward holds that the floats that row 3 is read into have what is bad in it, and no
// others.
func (s *spoilt) checkForward(t *testing.T, data []float32, bad float32) {
	t.Helper()
	per := len(s.want) / s.batch
	for i, x := range data {
		ids, reads := s.rows["f"][i/per], false
		for k, id := range ids {
			if id == 3 && i%s.width == s.at && (s.pooling != layout.FirstN || i%per/s.width == k) {
				reads = true
			}
		}
		if reads && x != bad && (x == x || bad == bad) {
			t.Fatalf("%s: float %d is %g where the row has %g", s.name, i, x, bad)
		} else if !reads && !(math.Abs(float64(x)-s.want[i]) < 1e-4) {
			t.Fatalf("%s: float %d is %g, want %g: it has nothing of the row with %g", s.name, i, x, s.want[i], bad)
		}
	}
}

// checkGradient holds that a slope that is bad reaches the rows that sample reads, in its
// column, and nothing else.
func (s *spoilt) checkGradient(t *testing.T, sample int, back [][]float32, bad float32) {
	t.Helper()
	for i, ids := range s.shards.FIDs {
		for j, id := range ids {
			reads := false
			for k, other := range s.rows["f"][sample] {
				reads = reads || int64(other) == id && (s.pooling != layout.FirstN || k == 0)
			}
			for col := range s.width {
				x := back[i][j*s.width+col]
				if reads && col == s.at && x != bad && (x == x || bad == bad) || (!reads || col != s.at) && x != 0 {
					t.Fatalf("%s: column %d of the gradient of row %d is %g", s.name, col, id, x)
				}
			}
		}
	}
}
