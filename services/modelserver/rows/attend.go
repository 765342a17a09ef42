package rows

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// attendAtOnce is how many replicas one version asks at the same time.
const attendAtOnce = 16

// Everywhere asks all replicas of all shards for the rows, and says whether every shard has
// a replica with them. Serving shards keep a version that has been replaced for as long as
// somebody asks for it.
func (s *Client) Everywhere(ctx context.Context, w Want, shards int) bool {
	var calls errgroup.Group
	calls.SetLimit(attendAtOnce)
	has := make([]atomic.Bool, shards)
	for k := range shards {
		for _, e := range s.routes.replicas(shardKey{w.Model, uint32(k)}) {
			calls.Go(func() error {
				ask, cancel := context.WithTimeout(ctx, s.timeout)
				defer cancel()
				c, err := s.pool.Get(ask, e.addr)
				if err != nil {
					return nil
				}
				_, err = c.Lookup(ask, &rowwire.LookupRequest{Model: w.Model, Shard: uint32(k), Version: w.Version, Job: w.Job})
				switch rowwire.CodeOf(err) {
				case 0:
					has[k].Store(true)
					e.missing.Store(nil)
				case rowwire.NotFound:
					e.lacks(w.export())
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
