package replicaregistry

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Under pressure writes share events of the log; each client sees its own in order all
// the same, with rising zxids, a reader sees a node's states under zxids of their own, and
// a watcher hears of every change, before a zxid that has it.
func TestPackedWrites(t *testing.T) {
	t.Parallel()
	h := openHouse(t, Config{})
	const clients, nodes, each = 64, 10, 10 // nodes of each client, writes to each node
	dial := func() *client.Conn {
		c, err := client.Dial(h.ZKAddr(), wire.ConnectRequest{TimeoutMS: 30_000, Password: make([]byte, 16)}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	watcher := dial()
	watcher.Send(wire.OpAddWatch, (&wire.PathMode{Path: "/", Mode: 1}).Encode)
	if err := watcher.Flush(); err != nil {
		t.Fatal(err)
	}
	if r, _, err := watcher.Next(); err != nil || r.Err != wire.OK {
		t.Fatal(r, err)
	}
	conns := make([]*client.Conn, clients)
	for i := range conns {
		conns[i] = dial()
	}
	before := h.znode.Seq()
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			path := func(n int) string { return fmt.Sprintf("/n%d-%d", i, n%nodes) }
			for n := range nodes {
				c.Send(wire.OpCreate, (&plainCreate{wire.CreateRequest{Path: path(n), ACL: anybody}}).Encode)
			}
			for k := range nodes * each {
				c.Send(wire.OpSetData, (&wire.SetDataRequest{Path: path(k), Data: []byte(fmt.Sprint(k)), Version: int32(k / nodes)}).Encode)
				c.Send(wire.OpGetData, (&wire.PathWatch{Path: path(k)}).Encode)
			}
			if err := c.Flush(); err != nil {
				t.Error(err)
				return
			}
			type state struct {
				node  int
				mzxid int64
			}
			seen, states := int64(0), map[state]int32{}
			for n := range nodes + 2*nodes*each {
				r, body, err := c.Next()
				if err != nil || r.Err != wire.OK || r.Xid != int32(n+1) || r.Zxid < seen {
					t.Errorf("answer %d: %+v behind zxid %d, %v", n, r, seen, err)
					return
				}
				seen = r.Zxid
				if n < nodes {
					continue
				}
				k := (n - nodes) / 2
				if (n-nodes)%2 == 1 {
					if got, want := string(body.Buffer()), fmt.Sprint(k); got != want {
						t.Errorf("answer %d shows %s, want %s", n, got, want)
					}
				}
				var st wire.Stat
				st.Decode(body)
				at := state{k % nodes, st.Mzxid}
				if v, known := states[at]; known && v != st.Version {
					t.Errorf("versions %d and %d have the zxid %d", v, st.Version, st.Mzxid)
				}
				states[at] = st.Version
			}
		})
	}
	all.Wait()
	events := h.znode.Seq() - before
	const writes = clients * nodes * (each + 1)
	t.Logf("%d writes in %d events", writes, events)
	if events > writes/4 {
		t.Errorf("%d writes took %d events: nothing was packed", writes, events)
	}
	told := map[string]int{}
	for n := 0; n < writes; n++ {
		r, body, err := watcher.Next()
		if err != nil || r.Xid != wire.XidNotification {
			t.Fatalf("event %d: %+v, %v", n, r, err)
		}
		var e wire.WatcherEvent
		e.Decode(body)
		if want := int32(3); told[e.Path] == 0 {
			if want = 1; e.Type != want {
				t.Errorf("%s begins with event %d", e.Path, e.Type)
			}
		} else if e.Type != want {
			t.Errorf("event %d of %s is of type %d", told[e.Path], e.Path, e.Type)
		}
		told[e.Path]++
	}
	for path, n := range told {
		if n != each+1 {
			t.Errorf("%d events of %s, want %d", n, path, each+1)
		}
	}
}
