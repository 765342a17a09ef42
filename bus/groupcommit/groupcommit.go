// Package groupcommit gathers what many callers want stored into groups, so that one commit,
// an fsync and a round trip, serves all of a group.
package groupcommit

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Regroup is the longest that the callers of the last group are awaited.
const Regroup = time.Millisecond

// Limits bound a Queue. A group is full as soon as it has Count entries or Bytes bytes.
type Limits struct {
	Queued int // entries that wait; who sends one more is blocked
	Count  int
	Bytes  int
}

// Queue holds what waits while one group is being committed: that is the next group. Any
// number of goroutines send to In; one, the committer, calls Next, Return and Expect.
type Queue[T any] struct {
	limits Limits
	size   func(T) int
	in     chan T
	expect int           // entries that Next waits for
	wait   time.Duration // for which it does

	mu    sync.Mutex // guards held and bytes
	held  []T        // taken from in and in no group, the oldest first
	bytes int        // of held
}

// New returns an empty queue; size is the bytes of an entry.
func New[T any](limits Limits, size func(T) int) *Queue[T] {
	return &Queue[T]{limits: limits, size: size, in: make(chan T, limits.Queued)}
}

// In takes entries. Who sends selects on its own context too.
func (q *Queue[T]) In() chan<- T { return q.in }

// Len is how many entries are in no group.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held) + len(q.in)
}

// Next waits for an entry and returns the group of all that wait by then, the oldest first.
// Entries that the committer leaves out of its commit go back with Return.
func (q *Queue[T]) Next(ctx context.Context) ([]T, error) {
	if full, n := q.drain(); n == 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e := <-q.in:
			q.hold(e)
		}
	} else if full {
		return q.take(), nil
	}
	q.regroup(ctx)
	return q.take(), nil
}

// Expect tells of the last commit how long it took and how many of its callers are about to
// come back. A commit of many costs about the same whatever their number, so Next awaits them
// for a part of that time: else half of the callers would always miss the group of the other
// half. With 0, for few callers, nobody is kept waiting.
func (q *Queue[T]) Expect(callers int, took time.Duration) {
	q.expect, q.wait = callers, min(took/4, Regroup)
}

// Return puts entries in front of all others.
func (q *Queue[T]) Return(entries []T) {
	if len(entries) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = slices.Concat(entries, q.held)
	for _, e := range entries {
		q.bytes += q.size(e)
	}
}

// Drain returns everything that is in no group. Any goroutine may call it: who sends an entry
// when the committer may have gone drains afterwards, lest the entry stay.
func (q *Queue[T]) Drain() []T {
	left := q.take()
	for {
		select {
		case e := <-q.in:
			left = append(left, e)
		default:
			return left
		}
	}
}

// regroup waits for those that are expected.
func (q *Queue[T]) regroup(ctx context.Context) {
	runtime.Gosched() // callers that have just been answered, and need no more than that to be back
	over := time.NewTimer(q.wait)
	defer over.Stop()
	for full, n := q.drain(); !full && n < q.expect; {
		select {
		case e := <-q.in:
			q.hold(e)
			full, n = q.drain()
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// drain holds what waits at this moment, as much as a group takes.
func (q *Queue[T]) drain() (full bool, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.held) < q.limits.Count && q.bytes < q.limits.Bytes {
		select {
		case e := <-q.in:
			q.held, q.bytes = append(q.held, e), q.bytes+q.size(e)
		default:
			return false, len(q.held)
		}
	}
	return true, len(q.held)
}

func (q *Queue[T]) hold(e T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held, q.bytes = append(q.held, e), q.bytes+q.size(e)
}

func (q *Queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	group := q.held
	q.held, q.bytes = nil, 0
	return group
}
