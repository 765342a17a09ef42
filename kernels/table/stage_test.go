package table

import (
	"math/rand/v2"
	"reflect"
	"testing"

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
