package ps

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

const (
	maxBarriers    = 1024 // known at once; an idle one makes room for a new one
	maxWorkers     = 1 << 16
	maxBarrierWait = 25 * time.Second // a command's caller waits 30 s at most
)

// barriers let workers wait for one another, round by round. They are memory only: a
// shard that restarts knows of no round, and its callers ask again.
type barriers struct {
	mu  sync.Mutex
	all map[string]*barrier
}

// barrier is guarded by barriers.mu.
type barrier struct {
	round   uint64         // that is open, from 1
	workers int            // that the round waits for; 0: nobody has come
	arrived map[string]int // worker -> its waiting calls
	over    chan struct{}  // closed when the round is
	last    []string       // who came to the round before
	waiting int            // calls that have not left
	used    time.Time
}

// wait returns once the round is over, or refuses: INVALID for a request that cannot be,
// CONFLICT for one that disagrees with the others, UNAVAILABLE when time is up.
func (b *barriers) wait(ctx context.Context, r shardcmd.BarrierRequest) (shardcmd.BarrierResponse, error) {
	none := shardcmd.BarrierResponse{}
	switch {
	case r.ID == "" || len(r.ID) > 256 || r.Worker == "" || len(r.Worker) > 256:
		return none, bus.Refuse(bus.CodeInvalid, "a barrier and its worker need names of 1 to 256 bytes")
	case r.NumWorkers < 1 || r.NumWorkers > maxWorkers:
		return none, bus.Refuse(bus.CodeInvalid, "barrier %q waits for %d workers: give 1 to %d", r.ID, r.NumWorkers, maxWorkers)
	case r.TimeoutMS < 0:
		return none, bus.Refuse(bus.CodeInvalid, "barrier %q: a time-out of %d ms is none", r.ID, r.TimeoutMS)
	}
	limit := maxBarrierWait
	if r.TimeoutMS > 0 {
		limit = min(limit, time.Duration(r.TimeoutMS)*time.Millisecond)
	}
	over, answer, err := b.arrive(r)
	if over == nil {
		return answer, err
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
	case <-ctx.Done():
	}
	return b.leave(r, answer.Round)
}

// arrive joins the open round; over is nil when there is nothing to wait for.
func (b *barriers) arrive(r shardcmd.BarrierRequest) (over <-chan struct{}, answer shardcmd.BarrierResponse, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	x := b.all[r.ID]
	if x == nil {
		if len(b.all) >= maxBarriers && !b.forgetIdle() {
			return nil, answer, bus.Refuse(bus.CodeUnavailable, "%d barriers have workers waiting, no more are kept: let some of them end", maxBarriers)
		}
		x = &barrier{round: max(1, r.Round), arrived: map[string]int{}, over: make(chan struct{})}
		if b.all == nil {
			b.all = map[string]*barrier{}
		}
		b.all[r.ID] = x
	}
	x.used = now
	switch {
	case r.Round > 0 && r.Round < x.round:
		answer.Round = r.Round
		if r.Round == x.round-1 {
			answer.Workers = x.last
		}
		return nil, answer, nil
	case r.Round > x.round && len(x.arrived) > 0:
		return nil, answer, bus.Refuse(bus.CodeConflict, "barrier %q is in round %d, worker %q asks for round %d: all workers must count alike", r.ID, x.round, r.Worker, r.Round)
	}
	x.round = max(x.round, r.Round) // of a round that this process has not seen begin
	if len(x.arrived) > 0 && x.workers != r.NumWorkers {
		return nil, answer, bus.Refuse(bus.CodeConflict, "barrier %q waits for %d workers in round %d, worker %q says %d: all workers must name the same number", r.ID, x.workers, x.round, r.Worker, r.NumWorkers)
	}
	x.workers = r.NumWorkers
	x.arrived[r.Worker]++
	answer.Round = x.round
	if len(x.arrived) < x.workers {
		x.waiting++
		return x.over, answer, nil
	}
	x.last = slices.Sorted(maps.Keys(x.arrived))
	close(x.over)
	x.round, x.workers, x.arrived, x.over = x.round+1, 0, map[string]int{}, make(chan struct{})
	answer.Workers = x.last
	return nil, answer, nil
}

// leave is how a call ends that has waited for round: it is over, or the worker no
// longer counts as arrived.
func (b *barriers) leave(r shardcmd.BarrierRequest, round uint64) (shardcmd.BarrierResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.all[r.ID] // there: it is not forgotten while a call waits
	x.waiting--
	x.used = time.Now()
	if x.round > round {
		answer := shardcmd.BarrierResponse{Round: round}
		if x.round == round+1 {
			answer.Workers = x.last
		}
		return answer, nil
	}
	came := len(x.arrived)
	if x.arrived[r.Worker]--; x.arrived[r.Worker] == 0 {
		delete(x.arrived, r.Worker)
	}
	return shardcmd.BarrierResponse{}, bus.Refuse(bus.CodeUnavailable, "barrier %q: %d of %d workers had come to round %d when time was up; ask again", r.ID, came, x.workers, round)
}

// forgetIdle drops the barrier that was used longest ago among those nobody waits at; a
// call that has been told that its round is over, and has not left, waits too.
func (b *barriers) forgetIdle() bool {
	oldest := ""
	for id, x := range b.all {
		if len(x.arrived) == 0 && x.waiting == 0 && (oldest == "" || x.used.Before(b.all[oldest].used)) {
			oldest = id
		}
	}
	if oldest == "" {
		return false
	}
	delete(b.all, oldest)
	return true
}
