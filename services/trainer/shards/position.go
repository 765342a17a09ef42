package shards

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// Position is where a partition goes on.
type Position struct {
	From       int64
	Cuts       []int64 // above from, ascending: no batch may straddle one
	Generation uint64
	Level      bool // all shards stand at from, in one generation
}

// PositionOf derives the position of a partition: the least offset that any shard
// recorded, to be cut where the other shards stand.
func PositionOf(all []*rowwire.OffsetsResponse, partition int32) Position {
	at := map[int64]bool{}
	gens := map[uint64]bool{}
	for _, o := range all {
		at[o.Next[partition]] = true
		gens[o.Generation] = true
	}
	sorted := slices.Sorted(maps.Keys(at))
	return Position{
		From: sorted[0], Cuts: sorted[1:],
		Generation: slices.Min(slices.Collect(maps.Keys(gens))),
		Level:      len(sorted) == 1 && len(gens) == 1,
	}
}

// Least is, per partition, the offset that every shard has reached.
func Least(all []*rowwire.OffsetsResponse, partitions int32) map[int32]int64 {
	m := map[int32]int64{}
	for p := range partitions {
		m[p] = PositionOf(all, p).From
	}
	return m
}

// LeastStep is how many applies every shard has.
func LeastStep(all []*rowwire.OffsetsResponse) uint64 {
	least := all[0].Step
	for _, o := range all[1:] {
		least = min(least, o.Step)
	}
	return least
}

// stepPatience bounds the question to the shards how far they are.
const stepPatience = 2 * time.Second

// GlobalStep is how many applies every shard has. It waits 2 s at most.
func (s *Set) GlobalStep(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		return 0, err
	}
	all, err := s.Offsets(ctx)
	if err != nil {
		return 0, err
	}
	return LeastStep(all), nil
}
