//go:build !purego

package table

import "unsafe"

// step1 fills slots for n > 0 ids and asks for the lines of their home buckets. counter
// is the offset in head of what tells them to be out of date: seq or form.
//
//go:noescape
func step1(ids *int64, n int, heads *head, counter uintptr, slots *slot)

// step1Hashed is step1 of hashes.
//
//go:noescape
func step1Hashed(hashes *int64, n int, heads *head, counter uintptr, slots *slot)

// hashAVX512 is hashOf of n > 0 ids.
//
//go:noescape
func hashAVX512(ids *int64, n int, hashes *uint64)

// step2AVX512 looks at the bucket of each listed slot, n > 0 of them. Where it finds the
// entry it puts the row's address and number into the slot and asks for its first lines
// lines; a missing row has no address. Slots whose other bucket is to be
// looked at are listed in more, which may be list itself. What a writer has touched becomes stale.
//
//go:noescape
func step2AVX512(slots *slot, list *uint32, n int, rows *view, more *uint32) int

//go:noescape
func step2AVX2(slots *slot, list *uint32, n int, rows *view, more *uint32) int

// step3AVX512 copies the first size bytes of each of n > 0 rows to out, zeros for a
// missing row, and lists in bad the slots whose rows were written meanwhile. It returns
// the number of rows found in the upper half and that of bad ones in the lower.
//
//go:noescape
func step3AVX512(slots *slot, n int, out unsafe.Pointer, size int, bad *uint32) uint64

//go:noescape
func step3AVX2(slots *slot, n int, out unsafe.Pointer, size int, bad *uint32) uint64
