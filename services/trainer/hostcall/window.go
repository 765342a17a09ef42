package hostcall

import "github.com/monolith-go/monolith/internal/input"

// Buckets are how many shares users fall into, of which the first sampled are looked at.
const (
	buckets = 1000
	sampled = buckets / 100
	nobody  = -1 // the bucket of a sample that does not say whose it is
)

// bucket is that of a user.
func bucket(l input.Line) int64 {
	if !l.Known {
		return nobody
	}
	return ((l.User % buckets) + buckets) % buckets
}

// cache holds what the steps of a window have predicted, sample after sample.
type cache struct {
	tasks    []predictions
	buckets  []int64
	times    []int64
	rates    []float32
	gathered int // samples
}

// predictions are those of a task.
type predictions struct {
	labels, scores, counts []float32 // a count of 0: the task does not learn from the sample
}

// clear empties the cache at the first step of a window.
func (c *cache) clear() {
	c.gathered = 0
	for _, t := range c.tasks {
		clear(t.labels)
		clear(t.scores)
		clear(t.counts)
	}
	clear(c.buckets)
	clear(c.times)
	clear(c.rates)
}

// room makes the cache take n samples more. It grows to the largest window there was.
func (c *cache) room(tasks, n int) {
	if c.tasks == nil {
		c.tasks = make([]predictions, tasks)
	}
	if more := c.gathered + n - len(c.buckets); more > 0 {
		for i := range c.tasks {
			t := &c.tasks[i]
			t.labels, t.scores, t.counts = grown(t.labels, more), grown(t.scores, more), grown(t.counts, more)
		}
		c.buckets, c.times, c.rates = grown(c.buckets, more), grown(c.times, more), grown(c.rates, more)
	}
}

func grown[T any](s []T, more int) []T { return append(s, make([]T, more)...) }

// accumulate adds delta to base from an offset on, around base's end: where base is still clear it is put there.
func accumulate[T int64 | float32](base, delta []T, offset int) {
	for i, v := range delta {
		base[(offset+i)%len(base)] += v
	}
}
