package table

import "fmt"

// Initializer draws the first value of a row. It is a function of the key alone, so a
// row starts the same whatever was inserted before it and wherever the table lies.
type Initializer interface {
	Init(values []float32, key uint64)
}

// Zeros starts every weight at 0.
type Zeros struct{}

// Init sets zeros.
func (Zeros) Init(values []float32, _ uint64) { clear(values) }

// RandomUniform starts weight j at Min + (Max-Min)*u in float32, u being the upper 24
// bits of the j-th number (from 1) of the SplitMix64 stream whose state starts at key,
// divided by 2^24. Rounding may reach Max itself.
type RandomUniform struct{ Min, Max float32 }

// NewRandomUniform refuses bounds that are not finite or lie the wrong way round.
func NewRandomUniform(lo, hi float32) (RandomUniform, error) {
	if !(lo <= hi) || hi-lo-(hi-lo) != 0 {
		return RandomUniform{}, fmt.Errorf("table: random uniform from %g to %g: give finite bounds, the lower one first", lo, hi)
	}
	return RandomUniform{lo, hi}, nil
}

// Init draws len(values) numbers.
func (u RandomUniform) Init(values []float32, key uint64) {
	width := u.Max - u.Min
	for j := range values {
		key += golden
		values[j] = u.Min + float32(width*(float32(mix(key)>>40)*0x1p-24))
	}
}

// Key names one random draw: mix(mix(seed ^ FNV-1a-64(name)) + id), where mix is the
// finaliser of SplitMix64.
func Key(seed uint64, name string, id int64) uint64 {
	return keyOf(tableKey(seed, name), id)
}

const golden = 0x9e3779b97f4a7c15

func tableKey(seed uint64, name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return mix(seed ^ h)
}

func keyOf(tableKey uint64, id int64) uint64 { return mix(tableKey + uint64(id)) }
