package groupcommit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/groupcommit"
)

// newQueue is a queue of numbers of so many bytes each.
func newQueue(limits groupcommit.Limits) *groupcommit.Queue[int] {
	return groupcommit.New(limits, func(n int) int { return n })
}

func send(q *groupcommit.Queue[int], entries ...int) {
	for _, e := range entries {
		q.In() <- e
	}
}

func next(t *testing.T, q *groupcommit.Queue[int], want ...int) {
	t.Helper()
	if group, err := q.Next(t.Context()); err != nil || !slices.Equal(group, want) {
		t.Fatalf("%v, %v, want %v", group, err, want)
	}
}

func TestAGroupIsWhatWaits(t *testing.T) {
	q := newQueue(groupcommit.Limits{Queued: 10, Count: 3, Bytes: 100})
	send(q, 1, 2, 3, 4, 5)
	if n := q.Len(); n != 5 {
		t.Errorf("%d wait", n)
	}
	next(t, q, 1, 2, 3)
	if n := q.Len(); n != 2 {
		t.Errorf("%d wait behind the first group", n)
	}
	next(t, q, 4, 5)
}

// A group is full with the entry that reaches the limit, and an entry that is larger than
// the limit has a group of its own.
func TestAGroupIsBoundedInBytes(t *testing.T) {
	q := newQueue(groupcommit.Limits{Queued: 10, Count: 10, Bytes: 100})
	send(q, 60, 39, 1, 1, 300, 7)
	next(t, q, 60, 39, 1)
	next(t, q, 1, 300)
	next(t, q, 7)
	q.Return([]int{99})
	send(q, 1, 1)
	next(t, q, 99, 1)
	q.Return([]int{100})
	next(t, q, 100)
	next(t, q, 1)
}

func TestWhatIsReturnedComesFirst(t *testing.T) {
	q := newQueue(groupcommit.Limits{Queued: 10, Count: 4, Bytes: 100})
	send(q, 1, 2, 3)
	next(t, q, 1, 2, 3)
	send(q, 4, 5, 6)
	q.Return([]int{3})
	q.Return(nil)
	q.Return([]int{1, 2})
	if n := q.Len(); n != 6 {
		t.Errorf("%d wait", n)
	}
	next(t, q, 1, 2, 3, 4)
	q.Return([]int{4})
	if left := q.Drain(); !slices.Equal(left, []int{4, 5, 6}) || q.Len() != 0 {
		t.Errorf("drained %v, %d are left", left, q.Len())
	}
	send(q, 90, 9, 9) // the bytes of what was drained are not counted any more
	next(t, q, 90, 9, 9)
}

func TestNextEndsWithItsContext(t *testing.T) {
	q := newQueue(groupcommit.Limits{Queued: 10, Count: 3, Bytes: 100})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if group, err := q.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", group, err)
	}
}

// A caller alone is never kept waiting; those of a large group are awaited until they are
// there, for a quarter of what their commit took, and never longer than Regroup.
func TestCallersAreAwaited(t *testing.T) {
	const back = 100 * time.Microsecond // after which the callers come, one after another
	for _, tc := range []struct {
		name   string
		expect int
		took   time.Duration
		want   []int
		waited time.Duration
	}{
		{"nobody expected", 0, time.Second, []int{1}, 0},
		{"all are there", 1, time.Second, []int{1}, 0},
		{"until all are there", 3, time.Second, []int{1, 2, 3}, 2 * back},
		{"until the group is full", 9, time.Second, []int{1, 2, 3, 4}, 3 * back},
		{"a quarter of the last commit", 4, 6 * back, []int{1, 2}, 6 * back / 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(groupcommit.Limits{Queued: 10, Count: 4, Bytes: 100})
				q.Expect(tc.expect, tc.took)
				send(q, 1)
				var callers sync.WaitGroup
				defer callers.Wait()
				callers.Go(func() {
					for e := 2; e <= 6; e++ {
						time.Sleep(back)
						q.In() <- e
					}
				})
				began := time.Now()
				next(t, q, tc.want...)
				if waited := time.Since(began); waited != tc.waited {
					t.Errorf("after %v, want %v", waited, tc.waited)
				}
			})
		})
	}
	t.Run("never longer than a millisecond", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(groupcommit.Limits{Queued: 10, Count: 4, Bytes: 100})
			q.Expect(2, time.Second)
			send(q, 1)
			began := time.Now()
			next(t, q, 1)
			if waited := time.Since(began); waited != groupcommit.Regroup {
				t.Errorf("after %v", waited)
			}
		})
	})
	t.Run("not beyond the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(groupcommit.Limits{Queued: 10, Count: 4, Bytes: 100})
			q.Expect(2, time.Second)
			send(q, 1)
			ctx, cancel := context.WithTimeout(t.Context(), groupcommit.Regroup/10)
			defer cancel()
			began := time.Now()
			if group, err := q.Next(ctx); err != nil || !slices.Equal(group, []int{1}) || time.Since(began) != groupcommit.Regroup/10 {
				t.Errorf("%v, %v after %v", group, err, time.Since(began))
			}
		})
	})
}
