//go:build !purego

package table

import "unsafe"

// maxBitsAVX512 is maxBits of n > 0 numbers.
//
//go:noescape
func maxBitsAVX512(x *float32, n int) uint32

// adagradRowsAVX512 updates the rows of n > 0 slots, those with an address: dim weights
// and behind them dim slots. The gradient of slot i is row sum[i] of sums or, where that
// is negative, row from[i] of grads. It rounds like vec.Adagrad. Meanwhile
// it asks for the first lines lines of the rows of the slots that lie ahead bytes behind
// these.
//
//go:noescape
func adagradRowsAVX512(slots *slot, n int, from, sum *int32, grads, sums *float32, dim int, rate, decay float32, ahead, lines int)

// sgdRowsAVX512 is the same for rows without slots. It rounds like vec.SGD.
//
//go:noescape
func sgdRowsAVX512(slots *slot, n int, from, sum *int32, grads, sums *float32, dim int, rate float32, ahead, lines int)

// fetchRows asks for the first lines lines of the rows of n > 0 slots.
//
//go:noescape
func fetchRows(slots *slot, n, lines int)

// gatherAVX512 copies n > 0 rows of width bytes, a multiple of 64.
//
//go:noescape
func gatherAVX512(rows unsafe.Pointer, which *uint32, n, width int, out unsafe.Pointer)

// rewriteAVX512 reads and writes n > 0 rows where they are.
//
//go:noescape
func rewriteAVX512(rows unsafe.Pointer, which *uint32, n, width int)
