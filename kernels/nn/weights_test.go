package nn

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/gemm"
)

// A version's layouts are made once, for all who multiply by it, and in the memory of the version before
// where that is reset.
func TestPackedOnce(t *testing.T) {
	w := &Weights{Values: [][]float32{{1, 2, 3, 4, 5, 6}, {1, 2}}}
	mm, other := &gemm.Workspace{}, &gemm.Workspace{}
	seen := map[*gemm.Packed]bool{}
	for _, transposed := range []bool{false, true} {
		for _, bf16 := range []bool{false, true} {
			first, err := w.packed(mm, 0, 2, 3, transposed, bf16)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := w.packed(other, 0, 2, 3, transposed, bf16); err != nil || again != first {
				t.Errorf("transposed %v, bf16 %v: packed anew, %v", transposed, bf16, err)
			}
			if n := testing.AllocsPerRun(100, func() { _, _ = w.packed(mm, 0, 2, 3, transposed, bf16) }); n > 0 {
				t.Errorf("%v allocations to get at what is packed", n)
			}
			if seen[first] {
				t.Error("one layout stands for two")
			}
			seen[first] = true
		}
	}
	eighth, err := w.int8(mm, 0, 2, 3)
	if again, err2 := w.int8(other, 0, 2, 3); err != nil || err2 != nil || again != eighth {
		t.Errorf("int8: quantised anew, %v, %v", err, err2)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = w.int8(mm, 0, 2, 3) }); n > 0 {
		t.Errorf("%v allocations to get at what is quantised", n)
	}
	w.Reset(1, [][]float32{{10, 20, 30, 40, 50, 60}, {1, 2}})
	p, err := w.packed(mm, 0, 2, 3, false, false)
	if err != nil || !seen[p] {
		t.Errorf("memory of the version before is not used: %v", err)
	}
	c := make([]float32, 3)
	if err := mm.MulPacked(gemm.Of(c, 1, 3), gemm.Of([]float32{1, 1}, 1, 2), p, gemm.Plain); err != nil || c[0] != 50 || c[1] != 70 || c[2] != 90 {
		t.Errorf("the new version gives %v, %v", c, err)
	}
	if anew, err := w.int8(mm, 0, 2, 3); err != nil || anew != eighth {
		t.Errorf("int8: memory of the version before is not used: %v", err)
	}
	if err := mm.MulInt8(gemm.Of(c, 1, 3), gemm.Of([]float32{1, 1}, 1, 2), eighth, gemm.Plain); err != nil || c[0] < 49 || c[0] > 51 || c[2] < 89 || c[2] > 91 {
		t.Errorf("the new version gives %v in int8, %v", c, err)
	}
}
