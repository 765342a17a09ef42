package server

import (
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/watch"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// addWatch sets a persistent watch; the path need not exist, and may be none.
func (s *Server) addWatch(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	var q wire.PathMode
	q.Decode(r)
	if r.Err() != nil || q.Mode < 0 || q.Mode > 1 {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	m := watch.Persistent
	if q.Mode == 1 {
		m = watch.Recursive
	}
	if code := s.persist(c, q.Path, m); code != wire.OK {
		c.refuse(h, in, code)
		return
	}
	w := c.head(h, in, wire.OK)
	w.Int32(0) // an ErrorResponse, which says that there is none
	c.out.End()
}

// persist sets a persistent watch on data and children. A recursive one hears of
// children by their own changes.
func (s *Server) persist(c *conn, path string, m watch.Mode) wire.Code {
	if isPast(path) {
		return wire.OK
	}
	code := s.watches.Add(c.watcher, watch.Key{Kind: watch.Data, Path: path}, m)
	if code == wire.OK && m == watch.Persistent {
		code = s.watches.Add(c.watcher, watch.Key{Kind: watch.Children, Path: path}, m)
	}
	return code
}

// someWatches answers checkWatches and removeWatches.
func (s *Server) someWatches(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	var q wire.PathMode
	q.Decode(r)
	var of []watch.Key
	modes := watch.Mode(0)
	data, children := watch.Key{Kind: watch.Data, Path: q.Path}, watch.Key{Kind: watch.Children, Path: q.Path}
	switch q.Mode {
	case 1:
		of, modes = []watch.Key{children}, watch.Standard
	case 2:
		of, modes = []watch.Key{data}, watch.Standard
	case 3:
		of, modes = []watch.Key{data, children}, watch.Standard|watch.Persistent|watch.Recursive
	case 4:
		of, modes = []watch.Key{data, children}, watch.Persistent
	case 5:
		of, modes = []watch.Key{data}, watch.Recursive
	}
	if r.Err() != nil || modes == 0 {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	found := false
	for _, k := range of {
		if h.Op == wire.OpRemoveWatches {
			found = s.watches.Remove(c.watcher, k, modes) || found
		} else {
			found = s.watches.Has(c.watcher, k, modes) || found
		}
	}
	code := wire.OK
	if !found {
		code = wire.NoWatcher
	}
	c.refuse(h, in, code)
}

// setWatches takes a returning client's watches over: what changed since the zxid it
// last saw fires now, the rest stays set.
func (s *Server) setWatches(c *conn, in place, h wire.RequestHeader, r *wire.Reader) {
	var q wire.SetWatches
	if q.Decode(r, h.Op == wire.OpSetWatches2); r.Err() != nil {
		c.refuse(h, in, wire.MarshallingError)
		return
	}
	full := wire.OK
	set := func(k watch.Kind, path string, fired tree.ChangeKind) {
		if fired != 0 {
			c.out.Push(watch.Event(fired, path))
		} else if code := s.watches.Add(c.watcher, watch.Key{Kind: k, Path: path}, watch.Standard); code != wire.OK {
			full = code
		}
	}
	find := func(path string) (wire.Stat, bool) {
		if path == "" {
			path = "/" // to ZooKeeper, too, this is the root
		}
		return in.live.Stat(path)
	}
	for _, path := range present(q.Data) {
		st, ok := find(path)
		set(watch.Data, path, since(ok, st.Mzxid, q.RelativeZxid, tree.DataChanged))
	}
	for _, path := range present(q.Exist) {
		fired := tree.ChangeKind(0)
		if _, ok := find(path); ok {
			fired = tree.Created
		}
		set(watch.Data, path, fired)
	}
	for _, path := range present(q.Child) {
		st, ok := find(path)
		set(watch.Children, path, since(ok, st.Pzxid, q.RelativeZxid, tree.ChildrenChanged))
	}
	for _, path := range q.Persistent {
		if code := s.persist(c, path, watch.Persistent); code != wire.OK {
			full = code
		}
	}
	for _, path := range q.PersistentRecur {
		if code := s.persist(c, path, watch.Recursive); code != wire.OK {
			full = code
		}
	}
	c.refuse(h, in, full)
}

// since says what a watch has missed; 0: nothing.
func since(exists bool, changed, seen int64, k tree.ChangeKind) tree.ChangeKind {
	switch {
	case !exists:
		return tree.Deleted
	case changed > seen:
		return k
	}
	return 0
}

// present leaves out paths of past trees, on which nothing ever fires.
func present(paths []string) []string {
	kept := paths[:0]
	for _, p := range paths {
		if !isPast(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
