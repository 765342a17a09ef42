package trainer

import "math"

// turns is the order of deterministic mode: turn after turn, partition 0, 1, 2, … each
// learn one batch of exactly size offsets, batch i of a partition being [i*size,
// (i+1)*size). In a bounded job a partition that is used up is left out, and its last
// batch may be short. So the order follows from the number of partitions and their ends
// alone, and every trainer finds the same.
type turns struct {
	size int64
	n    int     // partitions
	ends []int64 // by partition; nil: the topic has no end
}

// batches is how many the partition has.
func (t turns) batches(partition int32) int64 {
	if t.ends == nil {
		return math.MaxInt64
	}
	return (t.ends[partition] + t.size - 1) / t.size
}

// turn is when batch i of the partition is learnt: the number of batches before it.
func (t turns) turn(partition int32, i int64) uint64 {
	if t.ends == nil {
		return uint64(i)*uint64(t.n) + uint64(partition)
	}
	var k int64
	for q := range int32(t.n) {
		k += min(t.batches(q), i)
		if q < partition && t.batches(q) > i {
			k++
		}
	}
	return uint64(k)
}

// span is the offsets of batch i.
func (t turns) span(partition int32, i int64) (from, to int64) {
	from, to = i*t.size, (i+1)*t.size
	if t.ends != nil {
		to = min(to, t.ends[partition])
	}
	return from, to
}
