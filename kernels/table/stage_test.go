package table

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
)

// counts are on both sides of a burst, and of what a stage looks ahead.
var counts = []int{1, 7, 8, 9, 31, 32, 33, 95, 96, 97, 127, 128, 129, 159, 160, 161, 300, 900}

// Updates of many bursts, of rows that are there, that are new and that come twice, are
// the same by every backend, to the bit, times included.
func TestUpdatesAreTheSameByAllBackends(t *testing.T) {
	adagrad := must(optim.NewAdagrad(.1, .1, .01))
	for _, dim := range []int{1, 16, 20, 70} {
		for _, o := range []optim.Optimizer{adagrad, optim.SGD{LearningRate: .5}} {
			var want [][]Row
			for _, b := range runnable() {
				tab := must(New(Config{Name: "u", Dim: dim, Optimizer: o, Initializer: Zeros{}}))
				tab.backend = b
				r := rand.New(rand.NewPCG(uint64(dim), 3))
				for round, n := range counts {
					ids, grads := make([]int64, n), make([]float32, n*dim)
					for i := range ids {
						ids[i] = r.Int64N(1500)
					}
					for i := range grads {
						grads[i] = float32(r.NormFloat64())
					}
					if err := tab.Optimize(ids, grads, uint32(round+1)); err != nil {
						t.Fatal(err)
					}
					rows := tab.Snapshot()
					if b == plain {
						want = append(want, rows)
					} else if !reflect.DeepEqual(rows, want[round]) {
						t.Fatalf("backend %d, dim %d, %T: %d updates differ from plain Go's", b, dim, o, n)
					}
				}
			}
		}
	}
}

// So are sums, of bags of all lengths and of ids that have no row.
func TestSumsAreTheSameByAllBackends(t *testing.T) {
	r8 := must(compress.NewFixedR8(1))
	for _, dim := range []int{1, 16, 64, 70} {
		for _, c := range []Compressor{compress.FP32{}, compress.FP16{}, r8} {
			tab := must(New(Config{Name: "s", Dim: dim, Serving: true, Compressor: c}))
			r := rand.New(rand.NewPCG(uint64(dim), 4))
			ids, v := make([]int64, 3000), make([]float32, 3000*dim)
			for i := range ids {
				ids[i] = int64(i)
			}
			for i := range v {
				v[i] = r.Float32()*2 - 1
			}
			if err := tab.Assign(ids, v, 1, 0); err != nil {
				t.Fatal(err)
			}
			for _, n := range counts {
				ids, offsets := make([]int64, n), []int32{0}
				for i := range ids {
					ids[i] = r.Int64N(3300)
				}
				for at := 0; at < n; {
					at = min(n, at+r.IntN(50))
					offsets = append(offsets, int32(at))
				}
				want := make([]float32, (len(offsets)-1)*dim)
				for i := range len(offsets) - 1 {
					for _, id := range ids[offsets[i]:offsets[i+1]] {
						row := make([]float32, dim)
						must(tab.Lookup([]int64{id}, row, nil))
						for j, x := range row {
							want[i*dim+j] += x
						}
					}
				}
				for _, b := range runnable() {
					tab.backend = b
					got := make([]float32, len(want))
					if err := tab.Pool(ids, offsets, Sum, got); err != nil {
						t.Fatal(err)
					}
					for i := range got {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
							t.Fatalf("backend %d, dim %d, %s, %d ids: number %d is %g, not %g", b, dim, c.Name(), n, i, got[i], want[i])
						}
					}
				}
			}
		}
	}
}
