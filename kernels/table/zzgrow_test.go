package table

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/optim"
)

func TestGrowTime(t *testing.T) {
	for _, c := range []int{0, 4_000_000} {
		tab, _ := New(Config{Name: "zz", Dim: 1, Optimizer: optim.SGD{LearningRate: .01}, Initializer: Zeros{}, Capacity: c})
		ids, v := make([]int64, 4096), make([]float32, 4096)
		start, worst := time.Now(), time.Duration(0)
		for at := 0; at < 4_000_000; at += 4096 {
			for i := range ids {
				ids[i] = int64(uint64(at+i) * 0x9e3779b97f4a7c15)
			}
			w := time.Now()
			_ = tab.Assign(ids, v, 1, 0)
			worst = max(worst, time.Since(w))
		}
		t.Log(c, time.Since(start)/4_000_000, worst)
	}
}
