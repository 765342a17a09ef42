// Package layouttest makes feature ids of either version for tests.
package layouttest

import "github.com/monolith-go/monolith/kernels/layout"

// MakeV1 returns the version 1 id of a slot of at most [layout.MaxSlotV1] (higher bits are cut)
// and the low 54 bits of a signature.
func MakeV1(slot uint32, sig uint64) uint64 {
	return uint64(slot)<<54 | sig&(1<<54-1)
}

// MakeV2 returns the version 2 id of a slot of at most [layout.MaxSlotV2] (higher bits are cut)
// and the low 48 bits of a signature.
func MakeV2(slot uint32, sig uint64) uint64 {
	return uint64(slot&layout.MaxSlotV2)<<48 | sig&(1<<48-1)
}
