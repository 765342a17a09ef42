package servables

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"weak"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// shared has the rows of a shard in memory once: as a shard that is served, and as what an entry beside it
// has of its own. So what is pushed to the shard is what the entry answers with. They last while one of
// both is served.
type shared struct {
	mu   sync.Mutex
	read map[exportLocation]*reading
}

// reading is the rows of one shard of one export.
type reading struct {
	users int        // that are in load; shared.mu guards it
	mu    sync.Mutex // held by who reads them
	rows  weak.Pointer[servable]
}

// load is loadPS, unless the rows are there. Who gets them releases them.
func (s *shared) load(at exportLocation, loadPS func() (*servable, error)) (*servable, error) {
	r := s.enter(at)
	defer s.leave(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.rows.Value(); g != nil && g.retain() {
		return g, nil
	}
	g, err := loadPS()
	if err == nil {
		r.rows = weak.Make(g)
	}
	return g, err
}

func (s *shared) enter(at exportLocation) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.read, func(_ exportLocation, r *reading) bool { return r.users == 0 && r.rows.Value() == nil })
	r := s.read[at]
	if r == nil {
		r = &reading{}
		s.read[at] = r
	}
	r.users++
	return r
}

func (s *shared) leave(r *reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.users--
}

// loadShard reads a shard for a server that is by itself.
func (s *keeper) loadShard(ctx context.Context, v *version, at exportLocation, shard int) (*servable, error) {
	return s.shared.load(at, func() (*servable, error) {
		g, err := s.reads.loadPS(ctx, v.model, at.basePath, shard, at.number, "", target{})
		if err == nil {
			s.sayDropped(v, g)
		}
		return g, err
	})
}

// beside reads the shards of an entry that lie beside it, ".../ps_0/7" next to ".../entry/7", and gives
// it their rows. All of them are read or the version fails: it answers whole, and goes whole.
func (s *keeper) beside(ctx context.Context, entry *servable, v *version, at exportLocation) error {
	own := make([]*servable, entry.shards)
	group, ctx := errgroup.WithContext(ctx)
	for k := range own {
		group.Go(func() (err error) {
			path := filepath.Join(filepath.Dir(at.basePath), "ps_"+strconv.Itoa(k))
			if own[k], err = s.loadShard(ctx, v, exportLocation{path, at.number}, k); err != nil {
				return err
			}
			if own[k].job != entry.job || own[k].shards != entry.shards {
				return &loadError{codes.InvalidArgument, fmt.Errorf("%s holds version %d of job %q in %d shards, and the entry in %s is of job %q in %d; copy all folders of one export",
					path, at.number, own[k].job, own[k].shards, at.basePath, entry.job, entry.shards)}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		for _, g := range own {
			if g != nil {
				g.release()
			}
		}
		return err
	}
	shards := make([]*rows.Shard, len(own))
	for k, g := range own {
		shards[k] = g.ps
	}
	entry.own = own
	entry.entry.Own(shards)
	return nil
}
