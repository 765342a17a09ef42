//go:build !linux || purego

package offheap

const (
	mapFrom = ^uintptr(0) // never: everything lies on the Go heap

	// ChunkBytes is what a chunk of a region has at most, where an element is not larger.
	ChunkBytes = 64 << 10
)

func mapAnonymous(uintptr, bool) (mapping, bool) { return mapping{}, false }
func forget(mapping)                             {}
func unmap(mapping)                              {}
