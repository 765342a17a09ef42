package tree

import (
	"encoding/binary"
	"math/bits"
)

const (
	unit       = 16               // bytes; every blob begins at a multiple
	pieceUnits = 1 << 16          // of one piece, at most
	exact      = 64               // units up to which there is a class for every size
	classes    = exact + (16-6)*8 // above, eight for each doubling
	wasteful   = 8 << 20 / unit   // free units below which nothing is tidied up
	firstPiece = 16 << 10 / unit  // a small tree stays small
)

// arena holds byte strings, each under a reference of four bytes, in pieces without
// pointers. What is freed is given out again to strings of about the same size.
type arena struct {
	pieces [][]byte
	heads  [classes]uint32 // first free blob of each class; its first bytes name the next
	at     uint32          // next unit never used in the last piece
	used   int             // units in blobs
	idle   int             // units on the lists
	shared bool            // a frozen copy is being read: what is freed waits in limbo
	limbo  []freed
}

type freed struct{ ref, n uint32 }

// class is the list for blobs of n units, and the units that each of them takes.
func class(n uint32) (class, units uint32) {
	if n <= exact {
		return n - 1, n
	}
	shift := uint32(bits.Len32(n-1)) - 4
	step := (n-1)>>shift + 1
	return exact + (shift-3)*8 + step - 9, step << shift
}

func unitsOf(size int) uint32 { return uint32(max(size, 1)+unit-1) / unit }

// bytes is the blob of size bytes.
func (a *arena) bytes(ref uint32, size int) []byte {
	p := a.pieces[ref/pieceUnits]
	i := int(ref%pieceUnits) * unit
	return p[i : i+size : i+size]
}

// alloc is room for size bytes, at most 1 MiB, with whatever they held before.
func (a *arena) alloc(size int) (uint32, []byte) {
	c, n := class(unitsOf(size))
	a.used += int(n)
	if ref := a.heads[c]; ref != 0 {
		b := a.bytes(ref, unit)
		a.heads[c] = binary.LittleEndian.Uint32(b)
		a.idle -= int(n)
		return ref, a.bytes(ref, size)
	}
	if len(a.pieces) == 0 || a.at+n > uint32(len(a.pieces[len(a.pieces)-1])/unit) {
		a.grow(n)
	}
	ref := uint32(len(a.pieces)-1)*pieceUnits + a.at
	a.at += n
	return ref, a.bytes(ref, size)
}

// grow begins a piece that has room for n units, and puts the rest of the last one on
// the lists. Reference 0 is none: the first unit of all stays unused.
func (a *arena) grow(n uint32) {
	size := uint32(firstPiece)
	if k := len(a.pieces); k > 0 {
		last := uint32(len(a.pieces[k-1]) / unit)
		for a.at < last {
			rest := last - a.at
			if rest > exact { // the greatest class that fits
				shift := uint32(bits.Len32(rest)) - 4
				rest = rest >> shift << shift
			}
			a.push(uint32(k-1)*pieceUnits+a.at, rest)
			a.at += rest
		}
		size = min(4*last, pieceUnits)
	}
	if len(a.pieces) == pieceUnits {
		panic("znode: the tree's data has outgrown 64 GiB")
	}
	a.at = 0
	if len(a.pieces) == 0 {
		a.at = 1
	}
	for size < n+a.at {
		size *= 2
	}
	a.pieces = append(a.pieces, make([]byte, min(size, pieceUnits)*unit))
}

func (a *arena) push(ref, n uint32) {
	c, _ := class(n)
	binary.LittleEndian.PutUint32(a.bytes(ref, unit), a.heads[c])
	a.heads[c] = ref
	a.idle += int(n)
}

// release frees the blob of size bytes.
func (a *arena) release(ref uint32, size int) {
	_, n := class(unitsOf(size))
	a.used -= int(n)
	if a.shared {
		a.limbo = append(a.limbo, freed{ref, n})
		return
	}
	a.push(ref, n)
}

// wasted says that copying the blobs together would halve the arena.
func (a *arena) wasted() bool { return !a.shared && a.idle > wasteful && a.idle > a.used }

func (a *arena) freeze() arena {
	a.shared = true
	return arena{pieces: append([][]byte(nil), a.pieces...)}
}

func (a *arena) thaw() {
	a.shared = false
	for _, f := range a.limbo {
		a.push(f.ref, f.n)
	}
	a.limbo = nil
}
