package table

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// HashTrick is the baseline that a collisionless table is measured against: a table of
// fixed size in which an id's row is the md5 of its decimal digits, as a big-endian
// 128-bit number, mod the size. Different ids may share a row.
type HashTrick struct {
	size uint64
	dim  int
	rows []float32
}

// NewHashTrick allocates size rows of dim zeros; size is 1 to 2^31, dim 1 to MaxDim.
func NewHashTrick(size, dim int) (*HashTrick, error) {
	if size < 1 || size > 1<<31 || dim < 1 || dim > MaxDim {
		return nil, fmt.Errorf("table: a hashed table of %d rows of %d: give 1 to %d rows of 1 to %d weights", size, dim, 1<<31, MaxDim)
	}
	return &HashTrick{size: uint64(size), dim: dim, rows: make([]float32, size*dim)}, nil
}

// Index is the row that id falls on.
func (h *HashTrick) Index(id int64) int {
	var buf [20]byte
	sum := md5.Sum(strconv.AppendInt(buf[:0], id, 10))
	hi, lo := binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])
	return int(mod128(hi, lo, h.size))
}

// Row is the row that id falls on, shared with every id that collides with it. It is
// the table's own memory; callers that write serialise themselves.
func (h *HashTrick) Row(id int64) []float32 {
	at := h.Index(id) * h.dim
	return h.rows[at : at+h.dim : at+h.dim]
}

// Len is the number of rows, used or not.
func (h *HashTrick) Len() int { return int(h.size) }

// mod128 is (hi*2^64 + lo) mod m.
func mod128(hi, lo, m uint64) uint64 {
	_, rem := bits.Div64(hi%m, lo, m)
	return rem
}
