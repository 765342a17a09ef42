package gemm

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// lastPage returns n floats that end where memory ends.
func lastPage(t *testing.T, n int) []float32 {
	t.Helper()
	page := syscall.Getpagesize()
	size := (n*4 + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mprotect(m[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&m[size-n*4])), n)
}

// A kernel that reads one float too many ends this test with a fault.
func TestReadsNothingBeyond(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := pool(t, 2)
	for range 60 {
		m, n, k := 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(50)
		a, b, c, bias, mask := lastPage(t, m*k), lastPage(t, k*n), lastPage(t, m*n), lastPage(t, n), lastPage(t, m*n)
		for _, pair := range pairs() {
			p.choice = &pair
			for how := range 8 {
				x, y := Of(a, m, k), Of(b, k, n)
				if how&1 != 0 {
					x = Of(a, k, m).T()
				}
				if how&2 != 0 {
					y = Of(b, n, k).T()
				}
				for _, op := range []Op{{Alpha: 1, Beta: 1}, {Alpha: 1, Bias: bias, Finish: Mask, Mask: Of(mask, m, n)}} {
					op.BF16 = how&4 != 0
					if err := p.Mul(Of(c, m, n), x, y, op); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}
