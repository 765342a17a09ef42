package filter

import (
	"encoding/binary"
	"math"
	"sync/atomic"
)

// Probabilistic remembers no ids: it lets one in by chance, such that it has occurred
// about its threshold's number of times by then. For a request with count occurrences
// the chance is
//
//	count / threshold                                    (at most 1)
//	1 - (1-p)^count,  p = 1 - 0.05^(1/threshold)         (Equal)
//
// With Equal, each single occurrence counts alike and 95 % of the ids are in after
// threshold of them. The n-th draw of a filter for id is a function of (seed, n, id), so
// the same order of calls decides the same.
type Probabilistic struct {
	equal      bool
	seed       uint64
	thresholds Thresholds
	draws      atomic.Uint64
}

// NewProbabilistic makes a filter that has drawn nothing yet.
func NewProbabilistic(equal bool, seed uint64, thresholds Thresholds) (*Probabilistic, error) {
	thresholds, err := thresholds.check(math.MaxUint32, "")
	if err != nil {
		return nil, err
	}
	return &Probabilistic{equal: equal, seed: seed, thresholds: thresholds}, nil
}

// Admit draws.
func (f *Probabilistic) Admit(id int64, count uint32) bool {
	threshold := f.thresholds.Of(id)
	if threshold == 0 {
		return true
	}
	n := f.draws.Add(1)
	r := float64(mix(mix(f.seed+n*golden)+uint64(id))>>11) * 0x1p-53
	return r < f.chance(count, threshold)
}

func (f *Probabilistic) chance(count, threshold uint32) float64 {
	if !f.equal {
		return float64(count) / float64(threshold)
	}
	return 1 - math.Pow(0.05, float64(count)/float64(threshold)) // (1-p)^count, simplified
}

// MarshalBinary writes how often was drawn, as a varint.
func (f *Probabilistic) MarshalBinary() ([]byte, error) {
	return seal(binary.AppendUvarint(begin(kindProbabilistic), f.draws.Load())), nil
}

// UnmarshalBinary goes on after the draws of the saved filter.
func (f *Probabilistic) UnmarshalBinary(data []byte) error {
	r, err := open(data, kindProbabilistic)
	if err != nil {
		return err
	}
	n := r.uvarint()
	if err := r.end(); err != nil {
		return err
	}
	f.draws.Store(n)
	return nil
}
