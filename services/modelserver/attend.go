package modelserver

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// attendAtOnce is how many replicas one version asks at the same time.
const attendAtOnce = 16

// attend asks all replicas of all shards for the rows of m, every interval until ctx ends:
// serving shards keep a version that has been replaced for as long as somebody asks for
// it. Once every shard has it on one replica at least, v is settled, and older versions of
// the entry may go.
func (s *Server) attend(ctx context.Context, v *version, m *entryModel, interval time.Duration) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		if s.rowsEverywhere(ctx, m) {
			m.settled.Store(true)
			s.servables.settle(v)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// rowsEverywhere says whether every shard has a replica with the rows of m.
func (s *Server) rowsEverywhere(ctx context.Context, m *entryModel) bool {
	var calls errgroup.Group
	calls.SetLimit(attendAtOnce)
	has := make([]atomic.Bool, m.shards)
	for k := range m.shards {
		for _, e := range s.routes.replicas(shardKey{m.model, uint32(k)}) {
			calls.Go(func() error {
				ask, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
				defer cancel()
				c, err := s.pool.Get(ask, e.addr)
				if err != nil {
					return nil
				}
				_, err = c.Lookup(ask, &rowwire.LookupRequest{Model: m.model, Shard: uint32(k), Version: m.rows.version, Job: m.rows.job})
				switch rowwire.CodeOf(err) {
				case 0:
					has[k].Store(true)
					e.missing.Store(nil)
				case rowwire.NotFound:
					e.lacks(m.rows)
				}
				return nil
			})
		}
	}
	_ = calls.Wait()
	for k := range has {
		if !has[k].Load() {
			return false
		}
	}
	return true
}
