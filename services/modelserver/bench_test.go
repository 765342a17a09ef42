package modelserver_test

import (
	"fmt"
	"testing"
)

// BenchmarkPredict is one request at a time over gRPC: two serving shards, one entry.
func BenchmarkPredict(b *testing.B) {
	c := newCluster(b, "")
	for _, n := range []int{1, 100} {
		users, movies := make([]int64, n), make([]int64, n)
		for i := range n {
			users[i], movies[i] = 7, int64(i%20)
		}
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.entry.scores(users, movies); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
