package feed

import "math"

// Turns is the order of deterministic mode: turn after turn, partition 0, 1, 2, … each
// learn one batch of exactly size offsets, batch i of a partition being [i*size,
// (i+1)*size). In a bounded job a partition that is used up is left out, and its last
// batch may be short. So the order follows from the number of partitions and their ends
// alone, and every trainer finds the same.
type Turns struct {
	Size int64   // offsets of a batch
	N    int     // partitions
	Ends []int64 // by partition; nil: the topic has no end
}

// Batches is how many the partition has.
func (t Turns) Batches(partition int32) int64 {
	if t.Ends == nil {
		return math.MaxInt64
	}
	return (t.Ends[partition] + t.Size - 1) / t.Size
}

// Turn is when batch i of the partition is learnt: the number of batches before it.
func (t Turns) Turn(partition int32, i int64) uint64 {
	if t.Ends == nil {
		return uint64(i)*uint64(t.N) + uint64(partition)
	}
	var k int64
	for q := range int32(t.N) {
		k += min(t.Batches(q), i)
		if q < partition && t.Batches(q) > i {
			k++
		}
	}
	return uint64(k)
}

// Span is the offsets of batch i.
func (t Turns) Span(partition int32, i int64) (from, to int64) {
	from, to = i*t.Size, (i+1)*t.Size
	if t.Ends != nil {
		to = min(to, t.Ends[partition])
	}
	return from, to
}
