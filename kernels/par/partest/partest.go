// Package partest gives tests thread pools that end with them.
package partest

import (
	"testing"

	"github.com/monolith-go/monolith/kernels/par"
)

// New is a pool of so many threads, closed when t ends.
func New(t testing.TB, threads int) *par.Pool {
	t.Helper()
	p, err := par.New(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
