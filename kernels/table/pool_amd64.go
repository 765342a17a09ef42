//go:build !purego

package table

// poolRowsAVX512 adds the rows of n > 0 slots to dim numbers at out. It gives up and says
// false, out being whatever, where one of them was written meanwhile.
//
//go:noescape
func poolRowsAVX512(slots *slot, n int, out *float32, dim, kind int, worth float32, ahead, lines int) bool
