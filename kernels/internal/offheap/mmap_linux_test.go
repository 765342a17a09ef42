//go:build linux && !purego

package offheap

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Small arrays lie on the Go heap, middling ones share mappings, great ones have their own.
func TestWhereArraysLie(t *testing.T) {
	m := &Arena{}
	defer m.Release()
	if b := m.Get(mapFrom-1, true); b.heap == nil || len(m.mapped) != 0 {
		t.Error("a small array is mapped")
	}
	for _, tc := range []struct {
		bytes  uintptr
		huge   bool
		mapped int // mappings by then
	}{
		{mapFrom, true, 1}, {slabBytes / 4, true, 1}, {slabBytes / 4, true, 1}, {slabBytes / 4, true, 1}, // a piece of 16 KiB, and three quarters of the slab
		{slabBytes/4 - mapFrom, true, 1}, // its rest, to the byte
		{page, true, 1},                  // on the heap
		{mapFrom + 1, true, 2}, {slabBytes/4 + 1, true, 3}, {mapFrom, false, 4}, {slabBytes/4 - mapFrom, false, 5},
		{slabBytes / 4, true, 5}, {slabBytes / 4, true, 5}, {slabBytes / 4, true, 5}, {slabBytes/4 - mapFrom - page, true, 5}, {mapFrom + 1, true, 6},
	} {
		if m.Get(tc.bytes, tc.huge); len(m.mapped) != tc.mapped {
			t.Errorf("%d bytes (huge: %v): %d mappings by then, want %d", tc.bytes, tc.huge, len(m.mapped), tc.mapped)
		}
	}
}

// What the system gives begins with a huge page and lies within what is given back.
func TestMappings(t *testing.T) {
	gone := false
	for range 5 {
		for _, bytes := range []uintptr{1, page, page + 1, hugePage, hugePage + 1} {
			p, ok := mapAnonymous(bytes, true)
			if !ok {
				t.Fatal("the system has no memory to give")
			}
			if uintptr(p.at)%hugePage != 0 || uintptr(p.at) < p.start || uintptr(p.at)+bytes > p.start+p.bytes {
				t.Errorf("%d bytes lie at %#x, in what reaches from %#x to %#x", bytes, uintptr(p.at), p.start, p.start+p.bytes)
			}
			all := unsafe.Slice((*byte)(p.at), bytes)
			all[0], all[bytes-1] = 1, 2
			forget(p)
			if all[0] != 0 || all[bytes-1] != 0 {
				t.Errorf("%d bytes are remembered", bytes)
			}
			unmap(p)
			// Somebody else may have the addresses by now, though not each time.
			gone = gone || errors.Is(unix.Madvise(all[:1], unix.MADV_NORMAL), unix.ENOMEM)
		}
	}
	if !gone {
		t.Error("nothing is given back")
	}
}
