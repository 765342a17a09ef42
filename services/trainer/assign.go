package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/trainer/feed"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/internal/fairness"
)

// held is a partition that this trainer learns.
type held struct {
	release context.CancelFunc // ends the learning after the batch under way
	gone    chan struct{}      // closed when the learner has ended and the lease is free
}

// share keeps this trainer's fair share of the partitions: with n trainers alive, in
// the order of their names, each takes partitions/n, the first ones one more. Who has
// too many gives back when the set of trainers changes. A partition that stays free
// although everybody has his share (a trainer is counted that takes none) is taken by
// whoever comes first, for a while.
func (s *Server) share(soft, hard context.Context) error {
	mine := map[int32]held{}
	defer func() {
		for _, h := range mine {
			<-h.gone
		}
	}()
	t := time.NewTicker(s.cfg.LeaseTTL / fairness.PerTTL)
	defer t.Stop()
	for fair := (fairness.Fairness{TTL: s.cfg.LeaseTTL, Log: s.log}); ; {
		for p, h := range mine {
			select {
			case <-h.gone:
				delete(mine, p)
			default:
			}
		}
		quota, rivals := s.quota()
		back, orphans := fair.Look(time.Now(), rivals, quota, len(mine))
		s.giveBack(mine, back)
		n := s.job().Started.V.GetPartitions()
		for i := range n {
			p := (i + int32(s.cfg.Index)) % n // start apart from the others
			if _, ok := mine[p]; ok || len(mine) >= quota && !orphans {
				continue
			}
			h, err := s.take(soft, hard, p)
			switch {
			case err == nil:
				mine[p] = h
			case !errors.Is(err, bus.ErrConflict) && soft.Err() == nil:
				s.log.Warn("a partition's lease cannot be had", "partition", p, "err", err)
			}
		}
		if !s.untilChange(soft, t.C, rivals) {
			return nil
		}
	}
}

// untilChange waits for the next tick or another set of trainers.
func (s *Server) untilChange(ctx context.Context, tick <-chan time.Time, rivals string) bool {
	for {
		changed := s.fleet.Changed()
		if _, now := s.quota(); now != rivals {
			return ctx.Err() == nil
		}
		select {
		case <-tick:
			return ctx.Err() == nil
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// quota is this trainer's share, and the partitions and trainers it was computed for.
func (s *Server) quota() (n int, rivals string) {
	names := []string{s.cfg.Name}
	s.fleet.Read(func(st fleet.State) {
		for id, c := range st.Containers {
			if c.Alive && id != s.cfg.Name && s.takesPart(c.Container.V) {
				names = append(names, id)
			}
		}
	})
	slices.Sort(names)
	rank, _ := slices.BinarySearch(names, s.cfg.Name)
	all := int(s.job().Started.V.GetPartitions())
	n = all / len(names)
	if rank < all%len(names) {
		n++
	}
	return n, fmt.Sprint(all, names)
}

// takesPart says whether a container is a trainer of this job.
func (s *Server) takesPart(c *container.Container) bool {
	return c.GetKind() == kind && c.GetServerType() == serverType && c.GetJob() == s.cfg.Job
}

// giveBack releases n partitions, the highest first.
func (s *Server) giveBack(mine map[int32]held, n int) {
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(mine))) {
		if n <= 0 {
			return
		}
		h := mine[p]
		s.log.Info("giving a partition to another trainer", "partition", p)
		h.release()
		<-h.gone
		delete(mine, p)
		n--
	}
}

// lease names a lease of this job: namespaces and jobs share the bucket of leases.
func (s *Server) lease(what string) string {
	return events.Escape(s.env.BZID) + "." + events.Escape(s.cfg.Job) + "." + what
}

// take starts to learn a partition if its lease is free.
func (s *Server) take(soft, hard context.Context, p int32) (held, error) {
	lease, free, err := s.env.Bus.Leases().TryAcquire(hard, s.lease("partition."+strconv.Itoa(int(p))), s.cfg.Name, s.cfg.LeaseTTL)
	if err != nil {
		return held{}, err
	}
	soft, release := context.WithCancel(soft)
	hard, broken := lease.Context(hard)
	h := held{release: release, gone: make(chan struct{})}
	b := s.job().Started.V
	l := &learner{
		s: s, partition: p, epoch: lease.Epoch,
		ring:  newRing(s.engine),
		turns: feed.Turns{Size: int64(s.cfg.Batch), N: int(b.GetPartitions()), Ends: chief.Ends(b)},
	}
	l.reader = s.source.Open(b.GetTopicId(), p, l.reading)
	s.learners.Go(func() {
		defer close(h.gone)
		defer free()
		defer release()
		defer broken()
		defer context.AfterFunc(hard, release)()
		l.run(soft, hard)
	})
	return h, nil
}
