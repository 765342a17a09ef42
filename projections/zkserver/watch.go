package zkserver

import (
	"sync"

	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/znode"
)

// kind is one of ZooKeeper's two sorts of watches: exists and getData set data watches.
type kind uint8

const (
	onData kind = iota
	onChildren
)

type watchKey struct {
	kind kind
	path string
}

// watches are one-shot: what fires is gone. They are added under the tree's read lock
// and fired under its write lock, so none misses the change after the state it was
// set on, and its event is queued before any reply that shows that change.
type watches struct {
	limit int

	mu   sync.Mutex
	by   map[watchKey]map[*conn]struct{}
	of   map[*conn]map[watchKey]struct{}
	size int
}

func newWatches(limit int) *watches {
	return &watches{limit: limit, by: map[watchKey]map[*conn]struct{}{}, of: map[*conn]map[watchKey]struct{}{}}
}

// add is false when the connection has too many.
func (w *watches) add(c *conn, k watchKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.of[c][k]; ok {
		return true
	}
	if len(w.of[c]) >= w.limit {
		return false
	}
	if w.of[c] == nil {
		w.of[c] = map[watchKey]struct{}{}
	}
	if w.by[k] == nil {
		w.by[k] = map[*conn]struct{}{}
	}
	w.of[c][k] = struct{}{}
	w.by[k][c] = struct{}{}
	w.size++
	return true
}

// drop forgets a connection.
func (w *watches) drop(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.of[c] {
		w.remove(c, k)
	}
}

func (w *watches) remove(c *conn, k watchKey) {
	delete(w.by[k], c)
	if len(w.by[k]) == 0 {
		delete(w.by, k)
	}
	delete(w.of[c], k)
	if len(w.of[c]) == 0 {
		delete(w.of, c)
	}
	w.size--
}

func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// fire queues the events of changes, in their order.
func (w *watches) fire(changes []znode.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range changes {
		switch ch.Kind {
		case znode.Created, znode.DataChanged:
			w.trigger(ch, onData)
		case znode.Deleted:
			w.trigger(ch, onData, onChildren)
		case znode.ChildrenChanged:
			w.trigger(ch, onChildren)
		}
	}
}

// trigger tells each connection once, however many of the kinds it watches.
func (w *watches) trigger(ch znode.Change, kinds ...kind) {
	var frame []byte
	told := map[*conn]struct{}{}
	for _, kind := range kinds {
		k := watchKey{kind, ch.Path}
		for c := range w.by[k] {
			w.remove(c, k)
			if _, ok := told[c]; ok {
				continue
			}
			told[c] = struct{}{}
			if frame == nil {
				frame = notice(ch)
			}
			c.out.notify(frame)
		}
	}
}

// notice is the frame of one watch event. Its zxid is -1, as in ZooKeeper 3.8.
func notice(ch znode.Change) []byte {
	h := jute.ReplyHeader{Xid: jute.XidNotification, Zxid: -1}
	e := jute.WatcherEvent{Type: int32(ch.Kind), State: jute.StateConnected, Path: ch.Path}
	return jute.Frame(h.Encode, e.Encode)
}
