// Package shards reaches the parameter-server shards of a training job: where they are, what
// they have learnt, and their dense variables.
package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/fleet"
)

// Set reaches the parameter-server shards of the job at the addresses that the
// fleet view has for them.
type Set struct {
	Job   string // whose shards they are
	n     int
	fleet *follow.Follower[fleet.State]
	pool  *rowwire.Pool
	well  *health.State
	ill   []atomic.Bool // by shard: the health state has it

	retries  prometheus.Counter
	requests *prometheus.CounterVec // by road
}

// New returns the n shards of a job, none of which is called before it is needed.
func New(job string, n int, f *follow.Follower[fleet.State], pool *rowwire.Pool, r prometheus.Registerer, well *health.State) *Set {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "monolith", Subsystem: "trainer", Name: name, Help: help}
	}
	return &Set{
		Job: job, n: n, fleet: f, pool: pool, well: well, ill: make([]atomic.Bool, n),
		retries: prom.Register(r, prometheus.NewCounter(opts("shard_retries_total", "requests repeated because a shard gave no answer"))),
		requests: prom.Register(r, prometheus.NewCounterVec(
			opts("shard_requests_total", "requests to shards, by the road they took: process, unix or tcp"), []string{"road"})),
	}
}

// Len is how many there are.
func (s *Set) Len() int { return s.n }

// answers notes that shard i has answered; with an error, that it does not.
func (s *Set) answers(i int, err error) {
	switch {
	case i >= len(s.ill):
	case err != nil:
		s.ill[i].Store(true)
		s.well.Fail(fmt.Sprintf("shard %d", i), err)
	case s.ill[i].CompareAndSwap(true, false):
		s.well.OK(fmt.Sprintf("shard %d", i))
	}
}

// Address is where shard i takes requests; addr is "" while the shard is not there; near are those that lead to it from its own
// machine.
func (s *Set) Address(i int) (addr string, near []string, err error) {
	s.fleet.Read(func(st fleet.State) {
		sh := st.Shards[s.Job][uint32(i)]
		r := sh.Ready.V
		switch {
		case r == nil || !sh.Healthy:
		case int(r.GetShards()) != s.n:
			err = fmt.Errorf("job %s has %d shards, this trainer was told %d: start it with --shards %d", s.Job, r.GetShards(), s.n, r.GetShards())
		default:
			addr, near = r.GetRowsAddress(), r.GetNearAddresses()
		}
	})
	return addr, near, err
}

// Incarnation changes whenever a shard comes back as another process or timeline.
func (s *Set) Incarnation() (id string, complete bool) { return s.incarnation(0, s.n) }

// incarnation is that of the shards from first up to end.
func (s *Set) incarnation(first, end int) (id string, complete bool) {
	complete = true
	s.fleet.Read(func(st fleet.State) {
		for i := first; i < end; i++ {
			sh := st.Shards[s.Job][uint32(i)]
			complete = complete && sh.Ready.V != nil && sh.Healthy
			id += fmt.Sprint(sh.Ready.V.GetEpoch(), "/", sh.Ready.V.GetGeneration(), " ")
		}
	})
	return id, complete
}

// Wait returns once every shard is ready.
func (s *Set) Wait(ctx context.Context) error {
	for {
		changed := s.fleet.Changed()
		if _, ok := s.Incarnation(); ok {
			_, _, err := s.Address(0)
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Each runs do for every shard side by side and waits for all: after it nothing of ours
// is under way, whatever failed.
func (s *Set) Each(do func(i int) error) error {
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

// Offsets asks all shards how far they are.
func (s *Set) Offsets(ctx context.Context) ([]*rowwire.OffsetsResponse, error) {
	all := make([]*rowwire.OffsetsResponse, s.n)
	err := s.Each(func(i int) error {
		r, err := Call(ctx, s, i, func(ctx context.Context, c rowwire.Conn) (*rowwire.OffsetsResponse, error) {
			return c.Offsets(ctx, &rowwire.OffsetsRequest{Job: s.Job, Shard: uint32(i)})
		})
		all[i] = r
		return err
	})
	return all, err
}

// ErrMoved is the cause with which a context of Follow ends.
var ErrMoved = errors.New("a shard came back as another")

// Follow returns a context that ends with ErrMoved once a shard is another than now.
func (s *Set) Follow(ctx context.Context) (context.Context, func()) { return s.follow(ctx, 0, s.n) }

// FollowOne is Follow of shard i alone.
func (s *Set) FollowOne(ctx context.Context, i int) (context.Context, func()) {
	return s.follow(ctx, i, i+1)
}

func (s *Set) follow(ctx context.Context, first, end int) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	was, _ := s.incarnation(first, end)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := s.fleet.Changed()
			if now, _ := s.incarnation(first, end); now != was {
				cancel(ErrMoved)
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
