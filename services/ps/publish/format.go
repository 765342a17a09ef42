package publish

import (
	"slices"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
)

// Format is how the rows of a table travel to followers: as serving keeps them, where all
// of a row is kept alike. Encoding what has been decoded gives the same bytes, so what is
// served is the same as if every row had come whole, from half of the bytes or a quarter. Signs
// that serving keeps as bytes travel as bits.
type Format struct{ compress.Compressor }

// Size is the number of bytes of a row of dim numbers on its way.
func (f Format) Size(dim int) int {
	if _, ok := f.Compressor.(compress.OneBit); ok {
		return (dim + 7) / 8
	}
	return f.Compressor.Size(dim)
}

// FormatOf is the format of a table, and whether its lookups in training show something
// else than a follower is to hear. skipZero says that followers drop rows of zeros.
func FormatOf(segments []table.Segment, skipZero bool) (f Format, compressed bool) {
	f = Format{segments[0].Compressor}
	if _, ok := f.Compressor.(compress.OneBit); ok && skipZero {
		f = Format{compress.FP32{}} // a bit does not say zero
	}
	for _, s := range segments {
		if s.Compressor != f.Compressor {
			f = Format{compress.FP32{}}
		}
		if _, aware := s.Compressor.(compress.Aware); aware {
			compressed = true
		}
	}
	if _, ok := f.Compressor.(compress.FixedR8); ok {
		compressed = false // quantized before or on the way is the same
	}
	return f, compressed
}

// maxHalf is the greatest number that a half holds.
const maxHalf = 65504

// Fits says whether followers can have a row in f: an infinite half would be refused by those
// who get it.
func (f Format) Fits(row []float32) bool {
	_, halves := f.Compressor.(compress.FP16)
	return !halves || vec.MaxAbs(row) <= maxHalf
}

// whole moves the rows that do not fit their format into others, which are sent as float32.
func (r *Rows) whole() (fit, other Rows) {
	fit, other = *r, Rows{Table: r.Table, Dim: r.Dim, Format: Format{compress.FP32{}}}
	if r.Format.Fits(r.Values) {
		return fit, other
	}
	fit.IDs, fit.Values = nil, nil
	for i, id := range r.IDs {
		to, row := &fit, r.Values[i*r.Dim:(i+1)*r.Dim]
		if !r.Format.Fits(row) {
			to = &other
		}
		to.IDs, to.Values = append(to.IDs, id), append(to.Values, row...)
	}
	return fit, other
}

// wire is what a delta says of f.
func (f Format) wire() (delta.Encoding, float32) {
	switch c := f.Compressor.(type) {
	case compress.FP16:
		return delta.Encoding_FP16, 0
	case compress.FixedR8:
		return delta.Encoding_INT8, c.Step()
	case compress.OneBit:
		return delta.Encoding_BITS, c.Amplitude
	}
	return delta.Encoding_FP32, 0
}

// append encodes rows of dim numbers behind b.
func (f Format) append(b []byte, values []float32, dim int) []byte {
	n := len(b)
	b = append(b, make([]byte, len(values)/dim*f.Size(dim))...)
	if _, ok := f.Compressor.(compress.OneBit); !ok {
		f.Encode(b[n:], values)
		return b
	}
	for row := range slices.Chunk(values, dim) {
		for i, x := range row {
			if x > 0 {
				b[n+i/8] |= 1 << (i % 8)
			}
		}
		n += f.Size(dim)
	}
	return b
}
