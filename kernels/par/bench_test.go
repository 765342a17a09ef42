package par

import (
	"fmt"
	"testing"
)

type nothing struct{}

func (nothing) Do(lo, hi int) {}

// BenchmarkDispatch is what a call costs by itself: as many empty pieces as threads, and
// sixteen.
func BenchmarkDispatch(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, n := range []int{2, 16} {
			b.Run(fmt.Sprintf("threads%d/pieces%d", threads, n), func(b *testing.B) {
				p := pool(b, threads)
				for b.Loop() {
					p.For(n, 1, nothing{})
				}
			})
		}
	}
}
