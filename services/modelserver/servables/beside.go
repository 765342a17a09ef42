package servables

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// beside reads the shards of an entry that lie beside it, ".../ps_0/7" next to ".../entry/7", and gives
// it their rows. All of them are read or the version fails: it answers whole, and goes whole.
func (r *reads) beside(ctx context.Context, entry *servable, name string, at exportLocation) error {
	own := make([]*servable, entry.shards)
	group, ctx := errgroup.WithContext(ctx)
	for k := range own {
		group.Go(func() (err error) {
			path := filepath.Join(filepath.Dir(at.basePath), "ps_"+strconv.Itoa(k))
			if own[k], err = r.loadPS(ctx, name, path, k, at.number, "", target{}); err != nil {
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
