package watch

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/projections/zookeeper/outbox"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// reader may read what its word says, and nothing else.
type reader bool

func (reader) Session() int64 { return 7 }

func (r reader) May(_ []wire.ACL, perm int32) bool { return bool(r) && perm == wire.PermRead }

func watcher(t *testing.T, may reader) (*Watcher, *outbox.Outbox) {
	t.Helper()
	nc, peer := net.Pipe()
	t.Cleanup(func() { _ = nc.Close(); _ = peer.Close() })
	out := outbox.New(nc, 1<<20, func(int) {}, nil)
	return NewWatcher(may, out), out
}

func queued(o *outbox.Outbox) int {
	_, frames := o.Waiting()
	return frames
}

// A watch fires as often as its mode says, and a deletion is told once, however many
// watches see it.
func TestModes(t *testing.T) {
	table := NewTable(10)
	once, onceOut := watcher(t, true)
	always, alwaysOut := watcher(t, true)
	below, belowOut := watcher(t, true)
	table.Add(once, Key{Data, "/a/b"}, Standard)
	table.Add(once, Key{Children, "/a/b"}, Standard)
	table.Add(always, Key{Data, "/a/b"}, Persistent)
	table.Add(below, Key{Data, "/a"}, Recursive)
	if n := table.Count(); n != 4 {
		t.Fatalf("%d watches", n)
	}
	told := table.Fire([]tree.Change{{Kind: tree.Deleted, Path: "/a/b"}})
	if len(told) != 3 || queued(onceOut) != 1 || queued(alwaysOut) != 1 || queued(belowOut) != 1 {
		t.Errorf("%d told, %d, %d and %d events", len(told), queued(onceOut), queued(alwaysOut), queued(belowOut))
	}
	table.Fire([]tree.Change{{Kind: tree.Created, Path: "/a/b"}})
	if queued(onceOut) != 1 || queued(alwaysOut) != 2 || queued(belowOut) != 2 || table.Count() != 2 {
		t.Errorf("%d, %d and %d events, %d watches left", queued(onceOut), queued(alwaysOut), queued(belowOut), table.Count())
	}
	table.Drop(always)
	if !table.Remove(below, Key{Data, "/a"}, Recursive) || table.Remove(below, Key{Data, "/a"}, Recursive) || table.Count() != 0 {
		t.Errorf("%d watches are left", table.Count())
	}
}

// Who may not read a node is not told of it, and its watch is spent all the same.
func TestUnreadableNodesAreNotTold(t *testing.T) {
	table := NewTable(10)
	w, out := watcher(t, false)
	table.Add(w, Key{Data, "/a"}, Standard)
	if told := table.Fire([]tree.Change{{Kind: tree.DataChanged, Path: "/a"}}); len(told) != 0 || queued(out) != 0 || table.Count() != 0 {
		t.Errorf("%d told, %d watches left", len(told), table.Count())
	}
}

// A connection has no more watches than allowed, and none once it has ended.
func TestLimits(t *testing.T) {
	table := NewTable(1)
	w, out := watcher(t, true)
	if code := table.Add(w, Key{Data, "/a"}, Standard); code != wire.OK {
		t.Errorf("the first watch: %d", code)
	}
	if code := table.Add(w, Key{Data, "/b"}, Standard); code != wire.ThrottledOp {
		t.Errorf("one too many: %d", code)
	}
	if code := table.Add(w, Key{Data, "/a"}, Persistent); code != wire.OK || !table.Has(w, Key{Data, "/a"}, Persistent) {
		t.Errorf("another mode: %d", code)
	}
	table.Drop(w)
	out.Kill(io.EOF)
	if code := table.Add(w, Key{Data, "/a"}, Standard); code != wire.OK || table.Count() != 0 {
		t.Errorf("%d watches of a connection that has ended", table.Count())
	}
}

// Who watches recursively is told of what happens below, once, but not of changed lists of
// children; a watch of another mode hears of its own node alone.
func TestRecursiveWatches(t *testing.T) {
	table := NewTable(10)
	above, aboveOut := watcher(t, true)
	beside, besideOut := watcher(t, true)
	table.Add(above, Key{Data, "/"}, Recursive)
	table.Add(above, Key{Data, "/a"}, Recursive)
	table.Add(above, Key{Data, "/a/b"}, Recursive)
	table.Add(beside, Key{Data, "/a"}, Persistent)
	table.Add(beside, Key{Data, "/a/bc"}, Recursive)
	for _, step := range []struct {
		change        tree.Change
		above, beside int // events so far
	}{
		{tree.Change{Kind: tree.DataChanged, Path: "/a/b"}, 1, 0},
		{tree.Change{Kind: tree.Created, Path: "/a/b/c"}, 2, 0},
		{tree.Change{Kind: tree.ChildrenChanged, Path: "/a/b"}, 2, 0},
		{tree.Change{Kind: tree.Deleted, Path: "/a/b/c"}, 3, 0},
		{tree.Change{Kind: tree.DataChanged, Path: "/a"}, 4, 1},
		{tree.Change{Kind: tree.DataChanged, Path: "/"}, 5, 1},
		{tree.Change{Kind: tree.DataChanged, Path: "/a/bc/d"}, 6, 2},
	} {
		table.Fire([]tree.Change{step.change})
		if queued(aboveOut) != step.above || queued(besideOut) != step.beside {
			t.Errorf("%+v: %d and %d events, want %d and %d", step.change, queued(aboveOut), queued(besideOut), step.above, step.beside)
		}
	}
}

// What is told is the change, and each one that is told hears the same.
func TestWhatIsTold(t *testing.T) {
	table := NewTable(10)
	peers := map[*outbox.Outbox]net.Conn{}
	for range 2 {
		nc, peer := net.Pipe()
		out := outbox.New(nc, 1<<20, func(int) {}, nil)
		t.Cleanup(func() { out.Kill(nil); _ = peer.Close() })
		table.Add(NewWatcher(reader(true), out), Key{Children, "/a"}, Standard)
		peers[out] = peer
	}
	told := table.Fire([]tree.Change{{Kind: tree.ChildrenChanged, Path: "/a"}})
	if len(told) != 2 {
		t.Fatalf("%d are told", len(told))
	}
	for _, out := range told {
		var written sync.WaitGroup
		written.Go(out.Flush)
		frame, err := wire.ReadFrame(peers[out], nil, wire.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		written.Wait()
		var h wire.ReplyHeader
		var e wire.WatcherEvent
		r := wire.NewReader(frame)
		h.Decode(r)
		e.Decode(r)
		if r.Err() != nil || r.Len() != 0 || h != (wire.ReplyHeader{Xid: -1, Zxid: -1}) || e != (wire.WatcherEvent{Type: 4, State: 3, Path: "/a"}) {
			t.Errorf("%+v %+v, %v", h, e, r.Err())
		}
	}
}
