package layout_test

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/par"
)

// threads is a pool that ends with the test.
func threads(t testing.TB, n int) *par.Pool {
	t.Helper()
	p, err := par.New(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
