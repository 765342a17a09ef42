// Package watch keeps ZooKeeper's watches: which connections are told of which changes of
// the tree, once or until they say otherwise.
package watch

import (
	"strings"
	"sync"

	"github.com/monolith-go/monolith/projections/zookeeper/outbox"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Kind is one of ZooKeeper's two sorts of watches: exists and getData set data watches.
type Kind uint8

// What a watch looks at.
const (
	Data Kind = iota
	Children
)

// Mode is how long a watch lasts. A connection may have watches of several modes on one
// path, as since ZooKeeper 3.9.
type Mode uint8

// The modes, which may be joined.
const (
	Standard   Mode = 1 << iota // until it fires
	Persistent                  // until it is removed
	Recursive                   // persistent, and on everything below
)

// Key is what a watch looks at.
type Key struct {
	Kind Kind
	Path string
}

// Client is whom a connection serves.
type Client interface {
	Session() int64
	May(acl []wire.ACL, perm int32) bool // do on a node with this list what perm names
}

// Watcher is one connection and the watches that it has set.
type Watcher struct {
	Client Client
	out    *outbox.Outbox
	set    map[Key]Mode // guarded by the table's lock
}

// NewWatcher returns one without watches, whose events are queued in out.
func NewWatcher(c Client, out *outbox.Outbox) *Watcher { return &Watcher{Client: c, out: out} }

// Table holds the watches of all connections. They are added under the tree's read lock
// and fired under its write lock, so none misses the change after the state it was set
// on, and its event is queued before any reply that shows that change.
type Table struct {
	limit int // per connection

	mu        sync.Mutex
	by        map[Key]map[*Watcher]Mode
	size      int // (connection, key) pairs
	recursive int // of them with that mode

	told []*outbox.Outbox // the outboxes that Fire in progress has queued something in
}

// NewTable returns a table that takes up to limit watches of each connection.
func NewTable(limit int) *Table {
	return &Table{limit: limit, by: map[Key]map[*Watcher]Mode{}}
}

// Add is ThrottledOp when the connection has too many.
func (w *Table) Add(c *Watcher, k Key, m Mode) wire.Code {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := c.set[k]
	if old&m == m {
		return wire.OK
	}
	if old == 0 {
		if len(c.set) >= w.limit {
			return wire.ThrottledOp
		}
		if c.out.Ended() {
			return wire.OK // nobody is left to be told, and nobody would drop it
		}
	}
	w.set(c, k, old, old|m)
	return wire.OK
}

// set replaces the modes of one key of one connection.
func (w *Table) set(c *Watcher, k Key, old, m Mode) {
	switch {
	case m == 0:
		delete(w.by[k], c)
		if len(w.by[k]) == 0 {
			delete(w.by, k)
		}
		delete(c.set, k)
		w.size--
	default:
		if w.by[k] == nil {
			w.by[k] = map[*Watcher]Mode{}
		}
		if c.set == nil {
			c.set = map[Key]Mode{}
		}
		w.by[k][c], c.set[k] = m, m
		if old == 0 {
			w.size++
		}
	}
	w.recursive += int(m&Recursive)/int(Recursive) - int(old&Recursive)/int(Recursive)
}

// Remove takes modes off a key; false: none of them was there.
func (w *Table) Remove(c *Watcher, k Key, m Mode) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := c.set[k]
	if old&m == 0 {
		return false
	}
	w.set(c, k, old, old&^m)
	return true
}

// Has says whether one of the modes is set on a key.
func (w *Table) Has(c *Watcher, k Key, m Mode) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.set[k]&m != 0
}

// Drop forgets a connection.
func (w *Table) Drop(c *Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, m := range c.set {
		w.set(c, k, m, 0)
	}
}

// Count is how many watches there are.
func (w *Table) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Fire queues the events of changes, in their order, and returns the connections that
// have any to be written.
func (w *Table) Fire(changes []tree.Change) []*outbox.Outbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size == 0 {
		return nil
	}
	for _, ch := range changes {
		switch ch.Kind {
		case tree.Created, tree.DataChanged:
			w.trigger(ch, Data, nil)
		case tree.Deleted:
			told := map[*Watcher]struct{}{}
			w.trigger(ch, Data, told)
			w.trigger(ch, Children, told)
		case tree.ChildrenChanged:
			w.trigger(ch, Children, nil)
		}
	}
	told := w.told
	w.told = nil
	return told
}

// trigger tells the connections that watch the node, or recursively one above it. With
// told each of them is told once, however many of the kinds it watches. Who may not read
// the node is not told, though a one-shot watch is spent.
func (w *Table) trigger(ch tree.Change, k Kind, told map[*Watcher]struct{}) {
	var frame []byte
	tell := func(c *Watcher) {
		if told != nil {
			if _, ok := told[c]; ok {
				return
			}
			told[c] = struct{}{}
		}
		if !c.Client.May(ch.ACL, wire.PermRead) {
			return
		}
		if frame == nil {
			frame = Event(ch.Kind, ch.Path)
		}
		c.out.Add(frame)
		w.told = append(w.told, c.out)
	}
	key := Key{k, ch.Path}
	var above map[*Watcher]struct{}
	if w.recursive > 0 && k == Data {
		above = map[*Watcher]struct{}{} // they are told once, too
	}
	for c, m := range w.by[key] {
		if above != nil {
			above[c] = struct{}{}
		}
		if left := m &^ Standard; left != m {
			w.set(c, key, m, left)
		}
		tell(c)
	}
	if above == nil {
		return
	}
	for path := ch.Path; path != "/" && path != ""; {
		path = path[:max(strings.LastIndexByte(path, '/'), 1)]
		for c, m := range w.by[Key{k, path}] {
			if _, ok := above[c]; m&Recursive != 0 && !ok {
				above[c] = struct{}{}
				tell(c)
			}
		}
	}
}

// Event is the frame of one watch event. Its zxid is -1, as in ZooKeeper 3.8.
func Event(k tree.ChangeKind, path string) []byte {
	h := wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1}
	e := wire.WatcherEvent{Type: int32(k), State: wire.StateConnected, Path: path}
	return wire.Frame(h.Encode, e.Encode)
}

// Each visits every watch.
func (w *Table) Each(visit func(Key, *Watcher)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, of := range w.by {
		for c := range of {
			visit(k, c)
		}
	}
}
