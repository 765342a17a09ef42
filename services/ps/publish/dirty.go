package publish

import (
	"encoding/binary"
	"math"

	"github.com/monolith-go/monolith/events/delta"
)

// Dirty is what one publication holds: a consistent copy of everything touched.
type Dirty struct {
	Epoch, Step uint64
	Ranges      []*delta.Range
	Rows        []Rows
	Dense       []*delta.Variable
	Bad         error  // why none of it may be published; nil: it may
	Trace       string // of a sampled apply among those that touched it
}

// Rows are the touched rows of one table.
type Rows struct {
	Table   string
	Dim     int
	IDs     []int64 // ascending
	Values  []float32
	Removed []int64 // ids that do not exist any more
	Format  Format  // of the values on their way
}

// Floats are the bytes of v in deltas.
func Floats(v []float32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
	return b
}
