package audit

import (
	"fmt"

	"github.com/monolith-go/monolith/events/shard"
)

// Tiles checks that the deltas of one training shard contain every record once: per
// partition, the ranges of an epoch follow each other without gap or overlap from where
// the epoch began, which is 0, or what the shard's Ready fact says it restored, up to
// ends. An epoch may begin behind where the one before it ended: a checkpoint that was being
// saved when the shard was lost is restored by the next epoch but one, and what it holds an
// earlier epoch has published. first is the oldest sequence that the stream still has; when that is not 1, a
// partition begins with its first range.
func Tiles(deltas []Delta, k uint32, ready []*shard.Ready, ends map[int32]int64, first uint64) Check {
	c := Check{Name: fmt.Sprintf("deltas of training shard %d contain every record once", k)}
	next := map[int32]int64{}
	published := map[int32]int64{} // up to which offset, by any epoch
	begun := map[int32]bool{}
	epoch := uint64(0)
	faults := 0
	fault := func(format string, args ...any) {
		if faults++; faults == 1 {
			c.Detail = fmt.Sprintf(format, args...)
		}
	}
	for _, d := range deltas {
		if d.Dense || d.GetShard() != k {
			continue
		}
		if d.GetEpoch() > epoch {
			restored := map[int32]int64{}
			for _, r := range ready {
				if r.GetEpoch() == d.GetEpoch() {
					restored = r.GetOffsets()
				}
			}
			for p, at := range next {
				if published[p] = max(published[p], at); restored[p] > published[p] {
					fault("epoch %d begins partition %d at offset %d, but the deltas before it end at %d", d.GetEpoch(), p, restored[p], published[p])
				}
			}
			if epoch != 0 || first == 1 {
				next = map[int32]int64{}
				for p := range ends {
					next[p], begun[p] = restored[p], true
				}
			}
			epoch = d.GetEpoch()
		}
		for _, r := range d.GetRanges() {
			p := r.GetPartition()
			switch at, known := next[p], begun[p]; {
			case r.GetFrom() >= r.GetTo():
				fault("delta %d names the empty range [%d, %d) of partition %d", d.Seq, r.GetFrom(), r.GetTo(), p)
			case known && r.GetFrom() > at:
				fault("partition %d: delta %d begins at offset %d, so the records from %d on are in none", p, d.Seq, r.GetFrom(), at)
			case known && r.GetFrom() < at:
				fault("partition %d: delta %d begins at offset %d, but the deltas before it end at %d: records were learnt twice", p, d.Seq, r.GetFrom(), at)
			}
			next[p], begun[p] = max(next[p], r.GetTo()), true
		}
	}
	for _, p := range sortedKeys(ends) {
		if next[p] != ends[p] {
			fault("partition %d: the deltas end at offset %d, the topic at %d", p, next[p], ends[p])
		}
	}
	c.Want, c.Got, c.OK = "0 gaps or overlaps", fmt.Sprintf("%d gaps or overlaps", faults), faults == 0
	if c.OK && first > 1 {
		c.Detail = fmt.Sprintf("The stream has discarded the deltas before %d", first)
	}
	return c
}
