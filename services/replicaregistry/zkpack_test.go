package replicaregistry

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Proposals that come at once share an event, but not with one that writes to the same
// node, nor with what their session has proposed behind that one.
func TestShare(t *testing.T) {
	set := func(session int64, path string) *proposal {
		return &proposal{size: 10, event: write(session, &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path}}})}
	}
	many := func(session int64) (batch []*proposal) {
		for i := range packFrom {
			batch = append(batch, set(session, fmt.Sprintf("/n%d", i)))
		}
		return batch
	}
	closing := &proposal{size: 10, event: &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: 2}}}}
	twice, behind := set(2, "/n0"), set(2, "/other")
	free := set(3, "/free")
	queue := &proposal{size: 10, event: write(4, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL))}
	guess := set(6, "/n-0000000000")
	large := set(5, "/large")
	large.size = packBytes
	for name, tc := range map[string]struct {
		batch []*proposal
		first int // of the first event
		later []*proposal
	}{
		"few":                      {many(1)[:packFrom-1], 1, nil},
		"many":                     {many(1), packFrom, nil},
		"the same node":            {append(many(1), twice, behind, free), packFrom + 1, []*proposal{twice, behind}},
		"the end of a session":     {append(many(1), closing, behind, free), packFrom + 1, []*proposal{closing, behind}},
		"sequences":                {append(many(1), queue, queue), packFrom + 2, nil},
		"what a sequence makes":    {append(many(1), queue, guess, free), packFrom + 2, []*proposal{guess}},
		"too large for all":        {append(many(1), large, free), packFrom + 1, []*proposal{large}},
		"the same node, all of it": {[]*proposal{twice, twice, twice}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, later := coalesce(tc.batch)
			n := len(later)
			for _, in := range got {
				n += len(in)
			}
			if len(got[0]) != tc.first || len(later) != len(tc.later) || n != len(tc.batch) {
				t.Fatalf("%d events, %d in the first, %d later; want %d and %d", len(got), len(got[0]), len(later), tc.first, len(tc.later))
			}
			for i, p := range tc.later {
				if later[i] != p {
					t.Errorf("%d is another one", i)
				}
			}
		})
	}
}

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

// Few writers share one event; many are halved, unless still more are waiting.
func TestManyAreHalved(t *testing.T) {
	for _, tc := range []struct{ peak, queued, want int }{
		{1, 0, batchEvents}, {halvedFrom - 1, 0, batchEvents}, {halvedFrom, 0, halvedFrom / 2},
		{1023, 0, 512}, {1024, 24, 512}, {6000, 5000, 5000},
	} {
		if got := atMost(tc.peak, tc.queued); got != tc.want {
			t.Errorf("%d undecided, %d waiting: %d at once, want %d", tc.peak, tc.queued, got, tc.want)
		}
	}
}
