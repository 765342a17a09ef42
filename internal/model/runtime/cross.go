package runtime

import (
	"encoding/binary"
	"fmt"

	"github.com/go-faster/city"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// MaxCombinations is the most ids that a crossed feature may have in one sample.
const MaxCombinations = 4096

// combinations is how many ids a crossed feature has where those that it crosses have count.
func (e *Engine) combinations(f int, count func(feature int) int) (int, error) {
	n := 1
	for _, of := range e.features[f].cross {
		n = min(n*count(of), MaxCombinations+1) // a count is at most MaxIDs
		if n == 0 {
			return 0, nil
		}
	}
	if n > MaxCombinations {
		return 0, fmt.Errorf("feature %q has more than %d ids in one sample, as it crosses features of many ids: cross those of fewer, or give them FIRSTN and a max_sequence_length", e.features[f].name, MaxCombinations)
	}
	return n, nil
}

// cross appends the ids of a crossed feature for the next sample: of each combination of ids,
// those of the last feature changing first, CityHash64 of the ids as little-endian numbers one after
// another, under the feature's slot. FIRSTN takes the first of them.
func (b *Batch) cross(f, sample int) {
	var (
		of   = b.e.features[f].cross
		sets [modelspec.MaxCrossed][]int64
		at   [modelspec.MaxCrossed]int
		key  [8 * modelspec.MaxCrossed]byte
	)
	for i, other := range of {
		if sets[i] = b.ids[other].of(sample); len(sets[i]) == 0 {
			b.ids[f].end(0)
			return
		}
		binary.LittleEndian.PutUint64(key[8*i:], uint64(sets[i][0]))
	}
	c, made := &b.ids[f], 0
	for made < b.e.most(f, MaxCombinations) {
		c.ids = append(c.ids, modelspec.FID(b.e.features[f].slot, int64(city.Hash64(key[:8*len(of)]))))
		made++
		i := len(of) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] == len(sets[i]) {
				at[i] = 0
			}
			binary.LittleEndian.PutUint64(key[8*i:], uint64(sets[i][at[i]]))
			if at[i] > 0 {
				break
			}
		}
		if i < 0 {
			break
		}
	}
	c.end(made)
}
