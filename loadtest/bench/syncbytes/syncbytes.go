// Package syncbytes measures what a training shard puts on the log for its followers, beside every touched row in
// float32, and what that costs in AUC.
//
// The shard is the ps role with its publisher; time is counted in its intervals. A follower is the rows of a model server.
package syncbytes

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/gen"
)

// BytesCases are those of a full run. The goal is 13 times fewer bytes, of 100,000 rows of 1024 numbers that all
// learn in each interval: 410 MB an interval.
var BytesCases = slices.Concat(
	at(1000, 1024, "", goals),
	at(10_000, 1024, "", slices.Concat(formats, goals)),
	at(100_000, 1024, "", goals),
	at(10_000, 1024, "Zipf", slices.Concat(formats, goals)),
	deferred(10_000, 1024),
)

// AUCCases are those of a full run: an audience of steady tastes whose rows learn in nearly every interval, one whose
// tastes drift within a few intervals, and the ready simulator's, which new users and movies join.
var AUCCases = []AUCCase{
	{Name: "steady", Audience: gen.SimulatorConfig{Count: 40_000, Users: 50, Movies: 100, NewUser: never, NewMovie: never, Session: 2, UserDrift: 1 / never, MovieDrift: 1 / never},
		Dim: 64, Each: 200, Batch: 40, Seeds: 10, Settings: slices.Concat(formats[:3], goals, near), Most: 0.0002},
	{Name: "drifting", Audience: gen.SimulatorConfig{Count: 40_000, Users: 50, Movies: 100, NewUser: never, NewMovie: never, Session: 2},
		Dim: 64, Each: 200, Batch: 40, Seeds: 5, Settings: slices.Concat(formats[:1], goals, near)},
	{Name: "joining", Audience: gen.SimulatorConfig{Count: 20_000}, Dim: 64, Each: 20, Batch: 10, Seeds: 5, Settings: slices.Concat(formats[:1], goals, near)},
}

const never = 1e-9 // a chance

// The settings that are measured: each format by itself, formats with intervals, and rows put off only while they are near.
var (
	formats = []Setting{{Name: "whole"}, {Name: "halves", Compressor: inHalves()}, {Name: "bytes", Compressor: inBytes(0.5)}, {Name: "bits", Compressor: inBits(0.1)}}
	goals   = []Setting{{Name: "halves", Compressor: inHalves(), Every: 12, Goal: true}, {Name: "bytes", Compressor: inBytes(0.5), Every: 8}}
	near    = []Setting{{Name: "halves", Compressor: inHalves(), Every: 16, Within: proto.Float32(0.05)}, {Name: "halves", Compressor: inHalves(), Every: 16, Within: proto.Float32(0.1)}}
)

func at(ids, dim int, zipf string, settings []Setting) (all []BytesCase) {
	for _, s := range settings {
		c := BytesCase{IDs: ids, Dim: dim, Intervals: max(4, 2*s.Every), Zipf: zipf != "", Age: 100, Setting: s}
		if s.Goal && !c.Zipf {
			c.Least = 13
		}
		all = append(all, c)
	}
	return all
}

// deferred are rows that have learnt more and more.
func deferred(ids, dim int) (all []BytesCase) {
	for _, age := range []int{25, 100, 400, 1600} {
		for _, s := range near {
			all = append(all, BytesCase{IDs: ids, Dim: dim, Intervals: 2 * s.Every, Age: age, Setting: s})
		}
	}
	return all
}

// Bytes measures tables that learn, and then a model.
func Bytes(tables []BytesCase, models []AUCCase) bench.Benchmark {
	return bench.Benchmark{Name: "sync-bytes", About: "bytes of deltas by format and interval, against every touched row in float32; AUC of a follower against one that gets those", Run: func(ctx context.Context, r *bench.Runner) error {
		for _, c := range tables {
			if err := c.run(ctx, r); err != nil {
				return err
			}
		}
		for _, c := range models {
			if err := c.run(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}}
}
