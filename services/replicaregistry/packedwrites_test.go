package replicaregistry

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

const (
	packers     = 64
	packedNodes = 10 // of each client
	packedEach  = 10 // writes to each node, besides its creation
)

// packer is a client that sends all of its requests before it reads an answer.
type packer struct {
	t    *testing.T
	i    int
	conn *client.Conn
}

func dialPacker(t *testing.T, h *harness, i int) *packer {
	t.Helper()
	c, err := client.Dial(h.ZKAddr(), wire.ConnectRequest{TimeoutMS: 30_000, Password: make([]byte, 16)}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &packer{t, i, c}
}

func (p *packer) path(n int) string { return fmt.Sprintf("/n%d-%d", p.i, n%packedNodes) }

func (p *packer) send() error {
	for n := range packedNodes {
		p.conn.Send(wire.OpCreate, (&plainCreate{wire.CreateRequest{Path: p.path(n), ACL: anybody}}).Encode)
	}
	for k := range packedNodes * packedEach {
		p.conn.Send(wire.OpSetData, (&wire.SetDataRequest{Path: p.path(k), Data: []byte(fmt.Sprint(k)), Version: int32(k / packedNodes)}).Encode)
		p.conn.Send(wire.OpGetData, (&wire.PathWatch{Path: p.path(k)}).Encode)
	}
	return p.conn.Flush()
}

// read compares the answers: in order, with rising zxids, each read with what was just
// written, and no two versions of a node under one zxid.
func (p *packer) read() {
	type state struct {
		node  int
		mzxid int64
	}
	seen, states := int64(0), map[state]int32{}
	for n := range packedNodes + 2*packedNodes*packedEach {
		r, body, err := p.conn.Next()
		if err != nil || r.Err != wire.OK || r.Xid != int32(n+1) || r.Zxid < seen {
			p.t.Errorf("answer %d: %+v behind zxid %d, %v", n, r, seen, err)
			return
		}
		seen = r.Zxid
		if n < packedNodes {
			continue
		}
		k := (n - packedNodes) / 2
		if (n-packedNodes)%2 == 1 {
			if got, want := string(body.Buffer()), fmt.Sprint(k); got != want {
				p.t.Errorf("answer %d shows %s, want %s", n, got, want)
			}
		}
		var st wire.Stat
		st.Decode(body)
		at := state{k % packedNodes, st.Mzxid}
		if v, known := states[at]; known && v != st.Version {
			p.t.Errorf("versions %d and %d have the zxid %d", v, st.Version, st.Mzxid)
		}
		states[at] = st.Version
	}
}

// watch asks for the events of every node.
func (p *packer) watch() {
	p.t.Helper()
	p.conn.Send(wire.OpAddWatch, (&wire.PathMode{Path: "/", Mode: 1}).Encode)
	if err := p.conn.Flush(); err != nil {
		p.t.Fatal(err)
	}
	if r, _, err := p.conn.Next(); err != nil || r.Err != wire.OK {
		p.t.Fatal(r, err)
	}
}

// told reads as many events as there were writes, and counts them by path: a creation,
// then changes.
func (p *packer) told(writes int) map[string]int {
	p.t.Helper()
	told := map[string]int{}
	for n := range writes {
		r, body, err := p.conn.Next()
		if err != nil || r.Xid != wire.XidNotification {
			p.t.Fatalf("event %d: %+v, %v", n, r, err)
		}
		var e wire.WatcherEvent
		e.Decode(body)
		if want := int32(3); told[e.Path] == 0 {
			if want = 1; e.Type != want {
				p.t.Errorf("%s begins with event %d", e.Path, e.Type)
			}
		} else if e.Type != want {
			p.t.Errorf("event %d of %s is of type %d", told[e.Path], e.Path, e.Type)
		}
		told[e.Path]++
	}
	return told
}

// Under pressure writes share events of the log; each client sees its own in order all
// the same, with rising zxids, a reader sees a node's states under zxids of their own, and
// a watcher hears of every change, before a zxid that has it.
func TestPackedWrites(t *testing.T) {
	t.Parallel()
	h := openHarness(t, Config{})
	watcher := dialPacker(t, h, -1)
	watcher.watch()
	clients := make([]*packer, packers)
	for i := range clients {
		clients[i] = dialPacker(t, h, i)
	}
	before := h.znode.Seq()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			if err := c.send(); err != nil {
				t.Error(err)
				return
			}
			c.read()
		})
	}
	all.Wait()
	events := h.znode.Seq() - before
	const writes = packers * packedNodes * (packedEach + 1)
	t.Logf("%d writes in %d events", writes, events)
	if events > writes/4 {
		t.Errorf("%d writes took %d events: nothing was packed", writes, events)
	}
	for path, n := range watcher.told(writes) {
		if n != packedEach+1 {
			t.Errorf("%d events of %s, want %d", n, path, packedEach+1)
		}
	}
}
