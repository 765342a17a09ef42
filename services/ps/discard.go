package ps

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// discard deletes what this machine's disk holds of checkpoints, parts that other shards wrote included, and
// the shard's own parts of exports. Its chief decides which; one that was succeeded decides nothing.
func (s *Server) discard(r shardcmd.DiscardRequest) error {
	if !s.sameDir(r.Dir) {
		return s.otherDir(r.Dir)
	}
	if err := s.st.Succeeded(r.Chief); err != nil {
		return err
	}
	j := s.job()
	var gone []string
	for _, id := range r.Checkpoints {
		if id < 1 || j.Exempt(id) {
			return bus.Refuse(bus.CodeConflict, "checkpoint %d is kept: release it before it is deleted", id)
		}
		gone = append(gone, filepath.Dir(s.cfg.checkpointPath(id)))
	}
	for _, version := range r.Exports {
		if version < 1 || j.Exempt(version) {
			return bus.Refuse(bus.CodeConflict, "export %d is kept: release its checkpoint before it is deleted", version)
		}
		gone = append(gone, s.cfg.exportPath(version))
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
	for _, dir := range gone {
		errs = append(errs, durable.RemoveAll(root, dir))
	}
	return errors.Join(errs...)
}
