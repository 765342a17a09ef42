//go:build !linux || purego

package table

const (
	mapFrom    = ^uintptr(0) // never: everything lies on the Go heap
	chunkBytes = 64 << 10
)

func mapAnonymous(uintptr, bool) (mapping, bool) { return mapping{}, false }
func forget(mapping)                             {}
func unmap(mapping)                              {}
