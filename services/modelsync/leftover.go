package modelsync

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
)

const (
	// leftEvery is how often the folders that are handed out are searched for what jobs have deleted.
	leftEvery = time.Minute
	// leftAtOnce bounds what one search deletes.
	leftAtOnce = 64
)

// numbered is what the facts of all jobs say of the numbers of what lies in one folder.
type numbered struct {
	gone []lineage.Spans
	held map[int64]bool
}

// deleted says whether a job has deleted that number, and none has it.
func (n *numbered) deleted(id int64) bool {
	return !n.held[id] && slices.ContainsFunc(n.gone, func(s lineage.Spans) bool { return s.Has(id) })
}

// shelves are the folders of checkpoints, and of exports, that jobs have, by path.
type shelves struct{ checkpoints, exports map[string]*numbered }

func shelvesOf(l lineage.State) shelves {
	s := shelves{map[string]*numbered{}, map[string]*numbered{}}
	of := func(all map[string]*numbered, dir string) *numbered {
		dir = filepath.Clean(dir)
		if all[dir] == nil {
			all[dir] = &numbered{held: map[int64]bool{}}
		}
		return all[dir]
	}
	for _, j := range l.Jobs {
		dirs, models := map[*numbered]bool{}, map[*numbered]bool{}
		for _, c := range j.Checkpoints {
			n := of(s.checkpoints, c.V.GetDir())
			n.held[c.V.GetId()], dirs[n] = true, true
		}
		for _, e := range j.Exports {
			n := of(s.exports, e.V.GetModelDir())
			n.held[e.V.GetVersion()], models[n] = true, true
		}
		for n := range dirs {
			n.gone = append(n.gone, j.Gone.Checkpoints)
		}
		for n := range models {
			n.gone = append(n.gone, j.Gone.Exports)
		}
	}
	return s
}

// sweepLeft deletes, every so often, what hosts keep that a job's shards or chief have left: the job had it deleted where
// these run now.
func (s *Server) sweepLeft(ctx context.Context) error {
	if len(s.cfg.Exports) == 0 || !role.Ready(ctx, s.lineage.Ready()) {
		return nil
	}
	told := map[string]bool{} // of what cannot be deleted
	for {
		s.deleteLeft(ctx, told)
		if retry.Sleep(ctx, leftEvery) != nil {
			return nil
		}
	}
}

// deleteLeft searches once.
func (s *Server) deleteLeft(ctx context.Context, told map[string]bool) {
	var all shelves
	s.lineage.Read(func(l lineage.State) { all = shelvesOf(l) })
	var found []string
	for _, dir := range slices.Sorted(maps.Keys(all.checkpoints)) {
		for _, name := range s.namesIn(dir) {
			id, ok := checkpoint.ID(name)
			if !ok {
				id, ok = checkpoint.InfoID(name)
			}
			if ok && all.checkpoints[dir].deleted(id) {
				found = append(found, filepath.Join(dir, name))
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(all.exports)) {
		for _, sub := range s.namesIn(dir) {
			for _, name := range s.namesIn(filepath.Join(dir, sub)) {
				if version, ok := numberOf(name); ok && all.exports[dir].deleted(version) {
					found = append(found, filepath.Join(dir, sub, name))
				}
			}
		}
	}
	for _, path := range found[:min(len(found), leftAtOnce)] {
		if ctx.Err() != nil {
			return
		}
		if err := s.deleteIn(path); err == nil {
			s.left.Inc()
			s.env.Log.Info("what a job has deleted, and had left here, is deleted", "path", path)
		} else if !told[path] {
			told[path] = true
			s.env.Log.Warn("what a job has deleted is left here and cannot be deleted", "path", path, "err", err)
		}
	}
}

// numberOf is the version that is called so, as the product writes it.
func numberOf(name string) (int64, bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == name
}

// namesIn lists a folder below one that is handed out; none where there is no such folder.
func (s *Server) namesIn(dir string) (names []string) {
	root, err := s.ofExports(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		s.env.Log.Warn("a folder that is handed out cannot be read", "dir", dir, "err", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// deleteIn deletes what lies in a folder below one that is handed out.
func (s *Server) deleteIn(path string) error {
	root, err := s.ofExports(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(durable.RemoveAll(root, filepath.Base(path)), root.Close())
}
