//go:build !purego

package table

import "github.com/monolith-go/monolith/kernels/internal/cpu"

// runnable are all that this processor runs, chosen or not.
func runnable() []backend {
	var all []backend
	for b := plain; b <= level(cpu.Has()); b++ {
		all = append(all, b)
	}
	return all
}
