package host

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	heapLook    = time.Second
	heapGarbage = 64 << 20 // of garbage between two collections, while the heap is small
	heapLeast   = 25       // percent of what lives, when it is large
	heapMost    = 800      // and when it is small
	heapQuiet   = 1 << 20  // allocated between two looks by a process that rests
	heapRest    = 3        // looks of rest after which garbage is returned
	heapAgain   = 15       // the same once more, and again: NATS keeps what it wrote for about as long
)

// KeepHeapSmall bounds the garbage that a process keeps beside a large state of few
// pointers, such as a ZooKeeper tree, which costs little to collect: a quarter of what
// lives instead of as much again, and next to nothing once the process rests. Where rows lie
// outside of the heap, hardly anything lives in it, and 64 MiB of garbage come together first: a
// collection for every few deltas would take a processor from lookups. An
// operator's GOGC comes first. It returns when ctx ends.
func KeepHeapSmall(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	percent, resting, allocated := 100, 0, uint64(0)
	defer func() { debug.SetGCPercent(100) }()
	for tick := time.NewTicker(heapLook); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		metrics.Read(s)
		live, total, heap := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
		if want := int(min(max(heapGarbage*100/max(live, 1), heapLeast), heapMost)); want != percent {
			debug.SetGCPercent(want)
			percent = want
		}
		resting++
		if total-allocated > heapQuiet {
			resting = 0
		}
		allocated = total
		switch {
		case resting == heapRest && heap > live+live/8,
			resting == heapRest+heapAgain || resting == heapRest+2*heapAgain: // what has died is not known before a collection
			debug.FreeOSMemory()
		}
	}
}
