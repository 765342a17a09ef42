package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/fleet"
)

const (
	// callTimeout bounds one attempt; it outlasts the longest hold of a checkpoint.
	callTimeout = 15 * time.Second
	// lookAgain is how often a shard that does not answer is looked up and asked again.
	lookAgain = 100 * time.Millisecond
	// longestLook is how seldom that is after many attempts.
	longestLook = time.Second
)

// shardSet reaches the parameter-server shards of the job at the addresses that the
// fleet view has for them.
type shardSet struct {
	job   string
	n     int
	fleet *follow.Follower[fleet.State]
	pool  *rowwire.Pool
	m     *metrics
	well  *health.State
	ill   []atomic.Bool // by shard: the health state has it
}

// answers notes that shard i has answered; with an error, that it does not.
func (s *shardSet) answers(i int, err error) {
	switch {
	case i >= len(s.ill):
	case err != nil:
		s.ill[i].Store(true)
		s.well.Fail(fmt.Sprintf("shard %d", i), err)
	case s.ill[i].CompareAndSwap(true, false):
		s.well.OK(fmt.Sprintf("shard %d", i))
	}
}

// address is "" while the shard is not there; near are those that lead to it from its own
// machine.
func (s *shardSet) address(i int) (addr string, near []string, err error) {
	s.fleet.Read(func(st fleet.State) {
		sh := st.Shards[s.job][uint32(i)]
		r := sh.Ready.V
		switch {
		case r == nil || !sh.Healthy:
		case int(r.GetShards()) != s.n:
			err = fmt.Errorf("job %s has %d shards, this trainer was told %d: start it with --shards %d", s.job, r.GetShards(), s.n, r.GetShards())
		default:
			addr, near = r.GetRowsAddress(), r.GetNearAddresses()
		}
	})
	return addr, near, err
}

// incarnation changes whenever a shard comes back as another process or timeline.
func (s *shardSet) incarnation() (id string, complete bool) {
	complete = true
	s.fleet.Read(func(st fleet.State) {
		for i := range s.n {
			sh := st.Shards[s.job][uint32(i)]
			complete = complete && sh.Ready.V != nil && sh.Healthy
			id += fmt.Sprint(sh.Ready.V.GetEpoch(), "/", sh.Ready.V.GetGeneration(), " ")
		}
	})
	return id, complete
}

// wait returns once every shard is ready.
func (s *shardSet) wait(ctx context.Context) error {
	for {
		changed := s.fleet.Changed()
		if _, ok := s.incarnation(); ok {
			_, _, err := s.address(0)
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// illAfter is how many attempts without an answer are told: some are lost whenever a
// shard comes back.
const illAfter = 10

// call asks shard i until it answers or refuses; while nobody answers it tries again at
// whatever address the shard has by then. A refusal is a *rowwire.Error.
func call[R any](ctx context.Context, s *shardSet, i int, ask func(context.Context, rowwire.Conn) (R, error)) (R, error) {
	var zero R
	pauses := retry.New(lookAgain, longestLook)
	for tries := 1; ; tries++ {
		changed := s.fleet.Changed()
		addr, near, err := s.address(i)
		if err != nil {
			return zero, err
		}
		err = errors.New("it is not there, or not ready")
		if addr != "" {
			var r R
			r, err = attempt(ctx, s, addr, near, ask)
			if err == nil {
				s.answers(i, nil)
				return r, nil
			}
			if ctx.Err() != nil {
				return zero, context.Cause(ctx)
			}
			if rowwire.CodeOf(err) != rowwire.Unavailable {
				s.answers(i, nil)
				return zero, fmt.Errorf("shard %d: %w", i, err)
			}
			s.m.retries.Inc()
		}
		if tries >= illAfter {
			s.answers(i, err)
		}
		t := time.NewTimer(pauses.Next())
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
			t.Stop()
			return zero, context.Cause(ctx)
		}
		t.Stop()
	}
}

func attempt[R any](ctx context.Context, s *shardSet, addr string, near []string, ask func(context.Context, rowwire.Conn) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.pool.Get(ctx, addr, near...)
	if err != nil {
		var zero R
		return zero, err
	}
	s.m.requests.WithLabelValues(c.Road()).Inc()
	return ask(ctx, c)
}

// each runs do for every shard side by side and waits for all: after it nothing of ours
// is under way, whatever failed.
func (s *shardSet) each(do func(i int) error) error {
	errs := make([]error, s.n)
	var wg sync.WaitGroup
	for i := range s.n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return worst(errs)
}

// worst is the error that decides what happens next: fencing ends the partition, all
// others only start it again.
func worst(errs []error) error {
	var first error
	for _, err := range errs {
		if rowwire.CodeOf(err) == rowwire.Fenced {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// offsets asks all shards how far they are.
func (s *shardSet) offsets(ctx context.Context) ([]*rowwire.OffsetsResponse, error) {
	all := make([]*rowwire.OffsetsResponse, s.n)
	err := s.each(func(i int) error {
		r, err := call(ctx, s, i, func(ctx context.Context, c rowwire.Conn) (*rowwire.OffsetsResponse, error) {
			return c.Offsets(ctx, &rowwire.OffsetsRequest{Job: s.job, Shard: uint32(i)})
		})
		all[i] = r
		return err
	})
	return all, err
}

// position is where a partition goes on.
type position struct {
	from       int64
	cuts       []int64 // above from, ascending: no batch may straddle one
	generation uint64
	level      bool // all shards stand at from, in one generation
}

// positionOf derives the position of a partition: the least offset that any shard
// recorded, to be cut where the other shards stand.
func positionOf(all []*rowwire.OffsetsResponse, partition int32) position {
	at := map[int64]bool{}
	gens := map[uint64]bool{}
	for _, o := range all {
		at[o.Next[partition]] = true
		gens[o.Generation] = true
	}
	sorted := slices.Sorted(maps.Keys(at))
	return position{
		from: sorted[0], cuts: sorted[1:],
		generation: slices.Min(slices.Collect(maps.Keys(gens))),
		level:      len(sorted) == 1 && len(gens) == 1,
	}
}

// least is, per partition, the offset that every shard has reached.
func least(all []*rowwire.OffsetsResponse, partitions int32) map[int32]int64 {
	m := map[int32]int64{}
	for p := range partitions {
		m[p] = positionOf(all, p).from
	}
	return m
}

var errMoved = errors.New("a shard came back as another")

// follow returns a context that ends with errMoved once a shard is another than now.
func (s *shardSet) follow(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	was, _ := s.incarnation()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := s.fleet.Changed()
			if now, _ := s.incarnation(); now != was {
				cancel(errMoved)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}
