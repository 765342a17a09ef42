package ps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/lineage"
)

// discarded is a folder that is to go: of a checkpoint, or of the export that was made with it.
type discarded struct {
	id     int64
	export bool
	dir    string
}

// discard deletes what this machine's disk holds of checkpoints, parts that other shards wrote included, and
// the shard's own parts of exports. Its chief decides which; one that was succeeded decides nothing, and none
// decides against facts that have been stored meanwhile.
func (s *Server) discard(ctx context.Context, r shardcmd.DiscardRequest) error {
	if !s.sameDir(r.Dir) {
		return s.otherDir(r.Dir)
	}
	if err := s.st.Succeeded(r.Chief); err != nil {
		return err
	}
	last, err := s.env.Bus.Log().Last(ctx)
	if err == nil {
		err = s.lineage.Wait(ctx, last)
	}
	if err != nil {
		return fmt.Errorf("read which checkpoints the job still needs, so that none of those is deleted: %w", err)
	}
	var gone []discarded
	for _, id := range r.Checkpoints {
		gone = append(gone, discarded{id, false, filepath.Dir(s.cfg.checkpointPath(id))})
	}
	for _, version := range r.Exports {
		gone = append(gone, discarded{version, true, s.cfg.exportPath(version)})
	}
	for _, d := range gone {
		if err := d.needed(s.job()); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(s.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever written
	}
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, d := range gone {
		err := d.needed(s.job()) // a folder takes its time, and facts come meanwhile
		if err == nil {
			err = durable.RemoveAll(root, d.dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// needed refuses to delete what is kept, and the checkpoints without which the job cannot go on: the one that its
// shards restore next, and the newest.
func (d discarded) needed(j lineage.Job) error {
	switch {
	case d.export && (d.id < 1 || j.Exempt(d.id)):
		return bus.Refuse(bus.CodeConflict, "export %d is kept: release its checkpoint before it is deleted", d.id)
	case d.export:
		return nil
	case d.id < 1 || j.Exempt(d.id):
		return bus.Refuse(bus.CodeConflict, "checkpoint %d is kept: release it before it is deleted", d.id)
	}
	all := j.Restorable()
	if len(all) > 0 && all[0].GetId() == d.id {
		return bus.Refuse(bus.CodeConflict, "checkpoint %d is the one that the job's shards restore next: make another one before it is deleted", d.id)
	}
	if n := len(j.Checkpoints); n > 0 && j.Checkpoints[n-1].V.GetId() == d.id {
		return bus.Refuse(bus.CodeConflict, "checkpoint %d is the newest: make another one before it is deleted", d.id)
	}
	return nil
}
