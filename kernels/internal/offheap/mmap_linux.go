//go:build linux && !purego

package offheap

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	mapFrom = 16 << 10 // smaller arrays lie on the Go heap

	// ChunkBytes is what a chunk of a region has at most, where an element is not larger.
	ChunkBytes = 4 << 20
)

// mapAnonymous asks the system for zeroed memory, aligned to a huge page.
func mapAnonymous(bytes uintptr, huge bool) (mapping, bool) {
	total := (bytes+page-1)&^(page-1) + hugePage
	p, err := unix.MmapPtr(-1, 0, nil, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return mapping{}, false
	}
	m := mapping{start: uintptr(p), bytes: total, at: p}
	if odd := uintptr(p) % hugePage; odd != 0 {
		m.at = unsafe.Add(p, hugePage-odd)
	}
	if huge {
		// Without huge pages it is only slower.
		_ = unix.Madvise(unsafe.Slice((*byte)(m.at), bytes), unix.MADV_HUGEPAGE)
	}
	return m, true
}

// forget lets the system have the pages; what is read there afterwards is zero.
func forget(m mapping) {
	rest := m.start + m.bytes - uintptr(m.at)
	b := unsafe.Slice((*byte)(m.at), rest&^(page-1))
	if unix.Madvise(b, unix.MADV_DONTNEED) != nil {
		clear(b)
	}
}

func unmap(m mapping) {
	_ = unix.MunmapPtr(unsafe.Add(m.at, -int(uintptr(m.at)-m.start)), m.bytes)
}
