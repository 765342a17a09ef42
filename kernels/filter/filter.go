// Package filter decides which ids deserve a row.
//
// Most ids of a stream are seen once or twice; a row for each of them costs memory and
// learns nothing. A table asks its filter before it inserts an id, and only then: ids
// that have a row are not counted.
package filter

import (
	"encoding"
	"fmt"
	"maps"
)

// Filter is safe for concurrent use. Its state travels in checkpoints through
// MarshalBinary and UnmarshalBinary, which carry a version and a checksum; an
// UnmarshalBinary that fails changes nothing.
type Filter interface {
	// Admit counts count more occurrences of id, which has no row, and reports whether
	// it may have one now. A count of 0 only asks.
	Admit(id int64, count uint32) bool
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Thresholds says per slot (fid v2: the bits of an id from 48 on) how often an id must
// have occurred before the request that lets it in. 0 lets it in at once.
type Thresholds struct {
	Default uint32
	Slots   map[uint32]uint32 // by slot, instead of Default
}

// Of is the threshold for id.
func (t Thresholds) Of(id int64) uint32 {
	if len(t.Slots) > 0 {
		if n, ok := t.Slots[uint32(uint64(id)>>48)]; ok {
			return n
		}
	}
	return t.Default
}

// check returns a copy nobody else can change, or the threshold beyond limit.
func (t Thresholds) check(limit uint32, why string) (Thresholds, error) {
	if t.Default > limit {
		return t, fmt.Errorf("filter: the threshold is %d: %s, give at most %d", t.Default, why, limit)
	}
	for slot, n := range t.Slots {
		if n > limit {
			return t, fmt.Errorf("filter: the threshold of slot %d is %d: %s, give at most %d", slot, n, why, limit)
		}
	}
	t.Slots = maps.Clone(t.Slots)
	return t, nil
}

// None admits everything and remembers nothing.
type None struct{}

// Admit is true.
func (None) Admit(int64, uint32) bool { return true }

// MarshalBinary writes the header alone.
func (None) MarshalBinary() ([]byte, error) { return seal(begin(kindNone)), nil }

// UnmarshalBinary checks that data comes from a None.
func (None) UnmarshalBinary(data []byte) error {
	r, err := open(data, kindNone)
	if err != nil {
		return err
	}
	return r.end()
}

// mix is the finaliser of SplitMix64: a permutation of 64 bits. With it, what a filter
// remembers means the same in every process, on every machine and for ever.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const golden = 0x9e3779b97f4a7c15
