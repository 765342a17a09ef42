package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// Wanted is a checkpoint of a job and the export that was made with it.
type Wanted struct {
	Model      string // that the job learns
	Checkpoint *training.Checkpoint
	Exported   *training.ModelExported // nil: none
}

// Bring has all parts of what is wanted lie in the fetcher's folder, as they do in the job's, from hosts of which l says that they
// hand them out. What is here is not fetched again.
func (w Wanted) Bring(ctx context.Context, f Fetcher, l lineage.State) error {
	c := w.Checkpoint
	for _, part := range c.GetShards() {
		at := filepath.Join(c.GetDir(), filepath.FromSlash(part.GetPath()))
		if wrong, err := f.compare(ctx, filepath.FromSlash(part.GetPath()), part.GetHash()); err == nil && wrong == nil {
			continue
		}
		if err := f.Part(ctx, c.GetDir(), part, Sources(l, at)); err != nil {
			return fmt.Errorf("part %d of checkpoint %d, %s: %w", part.GetShard(), c.GetId(), at, err)
		}
	}
	for _, sub := range w.Exported.GetSubModels() {
		if err := w.export(ctx, f, l, sub); err != nil {
			return fmt.Errorf("checkpoint %d is here, and of its export not %s: %w", c.GetId(), sub, err)
		}
	}
	return nil
}

// export brings one sub-model of the export, also from hosts that have a copy because they serve it.
func (w Wanted) export(ctx context.Context, f Fetcher, l lineage.State, sub string) error {
	if !filepath.IsLocal(sub) || sub != filepath.Base(sub) {
		return fmt.Errorf("%q cannot name a folder", sub)
	}
	x := w.Exported
	path := filepath.Join(x.GetModelDir(), sub, strconv.FormatInt(x.GetVersion(), 10))
	sources := Sources(l, path)
	for host, s := range l.Sources {
		if l.Copies[lineage.CopyKey(w.Model, sub, x.GetVersion(), host)].V.GetSource() == path {
			sources = append(sources, peer.Source{Host: host, Address: s.Offered.V.GetAddress()})
		}
	}
	var known []string
	if part := x.GetParts()[sub]; part != nil {
		known = append(known, part.GetExport())
	}
	place := filepath.Join(filepath.Base(x.GetModelDir()), sub, strconv.FormatInt(x.GetVersion(), 10))
	ask := peer.Ask{Model: w.Model, Sub: sub, Version: x.GetVersion(), Dir: x.GetModelDir()}
	fits := func(at string) (wrong, err error) {
		dir := os.DirFS(filepath.Join(f.Dir, at))
		identity, err := checkpoint.Identity(dir)
		if err == nil {
			err = checkpoint.VerifyFiles(ctx, dir)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return err, nil
		case identity == "" || len(known) > 0 && !slices.Contains(known, identity):
			return fmt.Errorf("its manifest hashes to %.16s, which is not what was exported", identity), nil
		}
		return nil, nil
	}
	if wrong, err := fits(place); err == nil && wrong == nil {
		return nil
	}
	return f.bring(ctx, ask, place, known, sources, fits)
}
