package entry

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// maxJoined is the most rows of requests that join. One of more is computed by itself: to wait for others'
// rows would cost it more than a lookup of its own.
const maxJoined = 256

// joiner lets the requests for a version wait together while enough of them are computed already. A caller
// computes its own request, or with it those of others that wait, so there is no goroutine but theirs, and as
// many wait as there are calls.
type joiner struct {
	mu      sync.Mutex
	busy    int    // callers that compute
	waiting []*job // the oldest first
}

// answer computes j: at once while fewer than most callers compute, else in the turn of those that wait.
// The scratches are compute's.
func (q *joiner) answer(j *job, most int, compute func(context.Context, []*job)) error {
	q.mu.Lock()
	if q.busy < most {
		q.busy++
		q.mu.Unlock()
		q.lead(j.ctx, []*job{j}, compute)
		return nil
	}
	j.turn = make(chan []*job, 1)
	q.waiting = append(q.waiting, j)
	q.mu.Unlock()
	select {
	case jobs := <-j.turn:
		q.leadAll(jobs, compute)
		return nil
	case <-j.done:
		return nil
	case <-j.ctx.Done():
	}
	if jobs := q.leave(j); jobs != nil { // others count on it
		q.leadAll(jobs, compute)
	}
	return status.FromContextError(j.ctx.Err()).Err()
}

// leadAll computes the jobs of several callers, the first of whom calls it.
func (q *joiner) leadAll(jobs []*job, compute func(context.Context, []*job)) {
	ctx, stop := together(jobs)
	defer stop()
	q.lead(ctx, jobs, compute)
}

// lead computes jobs, tells their callers, and hands its place to the next that wait.
func (q *joiner) lead(ctx context.Context, jobs []*job, compute func(context.Context, []*job)) {
	defer q.pass()
	compute(ctx, jobs)
	for _, j := range jobs {
		close(j.done)
	}
}

// pass lets the oldest that waits compute, with as many of those behind it as join it.
func (q *joiner) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(j *job) bool { return left(j.ctx) != nil }) // their callers return
	if len(q.waiting) == 0 {
		q.busy--
		return
	}
	n, rows := 0, 0
	for _, j := range q.waiting {
		if rows += j.scratch.batch.Len(); n > 0 && rows > maxJoined {
			break
		}
		n++
	}
	jobs := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, j := range jobs {
		j.joined = n > 1
	}
	jobs[0].turn <- jobs
}

// left is the status of a caller who waits no longer: ctx has ended, or is about to, as timers are late where
// the processors are busy.
func left(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return nil
}

// leave takes a job out of those that wait. It returns the jobs that the caller has to compute first where
// its turn has come meanwhile.
func (q *joiner) leave(j *job) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, j); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return nil
	}
	select {
	case jobs := <-j.turn:
		return jobs
	default:
		return nil // another caller computes it
	}
}
