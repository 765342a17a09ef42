package server

import (
	"strings"
	"sync"

	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// kind is one of ZooKeeper's two sorts of watches: exists and getData set data watches.
type kind uint8

const (
	onData kind = iota
	onChildren
)

// mode is how long a watch lasts. A connection may have watches of several modes on one
// path, as since ZooKeeper 3.9.
type mode uint8

const (
	standard   mode = 1 << iota // until it fires
	persistent                  // until it is removed
	recursive                   // persistent, and on everything below
)

type watchKey struct {
	kind kind
	path string
}

// watches are added under the tree's read lock and fired under its write lock, so none
// misses the change after the state it was set on, and its event is queued before any
// reply that shows that change.
type watches struct {
	limit int // per connection

	mu        sync.Mutex
	by        map[watchKey]map[*conn]mode
	size      int // (connection, key) pairs
	recursive int // of them with that mode

	told []*conn // by the fold in progress, the fold's own
}

func newWatches(limit int) *watches {
	return &watches{limit: limit, by: map[watchKey]map[*conn]mode{}}
}

// add is ThrottledOp when the connection has too many.
func (w *watches) add(c *conn, k watchKey, m mode) wire.Code {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := c.watched[k]
	if old&m == m {
		return wire.OK
	}
	if old == 0 {
		if len(c.watched) >= w.limit {
			return wire.ThrottledOp
		}
		if c.out.ended() {
			return wire.OK // nobody is left to be told, and nobody would drop it
		}
	}
	w.set(c, k, old, old|m)
	return wire.OK
}

// set replaces the modes of one key of one connection.
func (w *watches) set(c *conn, k watchKey, old, m mode) {
	switch {
	case m == 0:
		delete(w.by[k], c)
		if len(w.by[k]) == 0 {
			delete(w.by, k)
		}
		delete(c.watched, k)
		w.size--
	default:
		if w.by[k] == nil {
			w.by[k] = map[*conn]mode{}
		}
		if c.watched == nil {
			c.watched = map[watchKey]mode{}
		}
		w.by[k][c], c.watched[k] = m, m
		if old == 0 {
			w.size++
		}
	}
	w.recursive += int(m&recursive)/int(recursive) - int(old&recursive)/int(recursive)
}

// remove takes modes off a key; false: none of them was there.
func (w *watches) remove(c *conn, k watchKey, m mode) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := c.watched[k]
	if old&m == 0 {
		return false
	}
	w.set(c, k, old, old&^m)
	return true
}

func (w *watches) has(c *conn, k watchKey, m mode) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.watched[k]&m != 0
}

// drop forgets a connection.
func (w *watches) drop(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, m := range c.watched {
		w.set(c, k, m, 0)
	}
}

func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// fire queues the events of changes, in their order, and returns the connections that
// have any to be written.
func (w *watches) fire(changes []tree.Change) []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size == 0 {
		return nil
	}
	for _, ch := range changes {
		switch ch.Kind {
		case tree.Created, tree.DataChanged:
			w.trigger(ch, onData, nil)
		case tree.Deleted:
			told := map[*conn]struct{}{}
			w.trigger(ch, onData, told)
			w.trigger(ch, onChildren, told)
		case tree.ChildrenChanged:
			w.trigger(ch, onChildren, nil)
		}
	}
	told := w.told
	w.told = nil
	return told
}

// trigger tells the connections that watch the node, or recursively one above it. With
// told each of them is told once, however many of the kinds it watches. Who may not read
// the node is not told, though a one-shot watch is spent.
func (w *watches) trigger(ch tree.Change, k kind, told map[*conn]struct{}) {
	var frame []byte
	tell := func(c *conn) {
		if told != nil {
			if _, ok := told[c]; ok {
				return
			}
			told[c] = struct{}{}
		}
		if !c.may(ch.ACL, wire.PermRead) {
			return
		}
		if frame == nil {
			frame = notice(ch.Kind, ch.Path)
		}
		c.out.add(frame)
		w.told = append(w.told, c)
	}
	key := watchKey{k, ch.Path}
	var above map[*conn]struct{}
	if w.recursive > 0 && k == onData {
		above = map[*conn]struct{}{} // they are told once, too
	}
	for c, m := range w.by[key] {
		if above != nil {
			above[c] = struct{}{}
		}
		if left := m &^ standard; left != m {
			w.set(c, key, m, left)
		}
		tell(c)
	}
	if above == nil {
		return
	}
	for path := ch.Path; path != "/" && path != ""; {
		path = path[:max(strings.LastIndexByte(path, '/'), 1)]
		for c, m := range w.by[watchKey{k, path}] {
			if _, ok := above[c]; m&recursive != 0 && !ok {
				above[c] = struct{}{}
				tell(c)
			}
		}
	}
}

// notice is the frame of one watch event. Its zxid is -1, as in ZooKeeper 3.8.
func notice(k tree.ChangeKind, path string) []byte {
	h := wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1}
	e := wire.WatcherEvent{Type: int32(k), State: wire.StateConnected, Path: path}
	return wire.Frame(h.Encode, e.Encode)
}

// each visits every watch.
func (w *watches) each(visit func(watchKey, *conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, of := range w.by {
		for c := range of {
			visit(k, c)
		}
	}
}
