//go:build !purego

package table

import "unsafe"

// adagradStageAVX512 updates the rows of a stage's n > 0 slots, those with an address: dim
// weights and behind them dim slots, and their times. It rounds like vec.Adagrad. Eight
// rows at a time, it takes as many ids each of the bursts behind through a step.
//
//go:noescape
func adagradStageAVX512(s *stage)

// sgdStageAVX512 is the same for rows without slots. It rounds like vec.SGD.
//
//go:noescape
func sgdStageAVX512(s *stage)

// fetchRows asks for the first lines lines of the rows of n > 0 slots.
//
//go:noescape
func fetchRows(slots *slot, n, lines int)

// gatherAVX512 copies n > 0 rows of width bytes, a multiple of 64.
//
//go:noescape
func gatherAVX512(rows unsafe.Pointer, which *uint32, n, width int, out unsafe.Pointer)

// addOneAVX512 adds one to each 64-bit word of n > 0 rows where they are.
//
//go:noescape
func addOneAVX512(rows unsafe.Pointer, which *uint32, n, width int)
