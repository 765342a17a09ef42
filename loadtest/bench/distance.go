package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// distance measures how long a cache line takes from one processor to another and back:
// some 75 ns where they share a cache, four times that where they do not. A virtual
// machine's processors may be either, and change over while it runs; what several threads
// work on together is slower then, though nothing else is.
func distance() time.Duration {
	const trips = 50
	var ball atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for v := int64(0); v >= 0; v = ball.Load() {
			if v%2 == 1 {
				ball.Store(v + 1)
			}
		}
	})
	best := time.Hour
	// A processor that is lent to others meanwhile spoils some, or all.
	for end := time.Now().Add(20 * time.Millisecond); best == time.Hour || time.Now().Before(end); {
		began := time.Now()
		for range trips {
			v := ball.Load()
			ball.Store(v + 1)
			for ball.Load() != v+2 {
			}
		}
		best = min(best, time.Since(began)/trips)
	}
	ball.Store(-1)
	wg.Wait()
	return best
}

// SayDistance tells it, for figures that depend on it.
func (r *Runner) SayDistance() {
	if Threads() > 1 {
		r.Say("  a cache line takes %v from one processor to another and back", distance())
	}
}
