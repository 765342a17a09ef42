package replicaregistry

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A history in which an acked write is lost, or a version is given twice, is told from a
// good one: else the tests of histories would prove nothing.
func TestModelTellsBadHistories(t *testing.T) {
	create := call{op: wire.OpCreate, key: "/k", value: "a", version: -1}
	set := call{op: wire.OpSetData, key: "/k", value: "b", version: -1}
	get := call{op: wire.OpGetData, key: "/k", version: -1}
	for name, tc := range map[string]struct {
		set, get reply
		want     porcupine.CheckResult
	}{
		"good":              {reply{version: 1}, reply{value: "b", version: 1}, porcupine.Ok},
		"unknown, happened": {reply{unknown: true}, reply{value: "b", version: 1}, porcupine.Ok},
		"unknown, did not":  {reply{unknown: true}, reply{value: "a"}, porcupine.Ok},
		"acked and lost":    {reply{version: 1}, reply{value: "a"}, porcupine.Illegal},
		"happened twice":    {reply{unknown: true}, reply{value: "b", version: 2}, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			history := []porcupine.Operation{
				{ClientId: 0, Input: create, Output: reply{}, Call: 0, Return: 1},
				{ClientId: 1, Input: set, Output: tc.set, Call: 2, Return: 3},
				{ClientId: 2, Input: get, Output: tc.get, Call: 4, Return: 5},
			}
			if got := porcupine.CheckOperationsTimeout(nodeModel.ToModel(), history, time.Minute); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// claim is a time through which a candidate had the least node: from an answer that said
// so to the request whose answer said that the node was there still.
type claim struct {
	who      int
	from, to time.Time
}

// Candidates elect a leader as kazoo does, while registries are killed: two never lead at
// the same time, nobody's node goes while its session lives, and once nobody beats any
// more, the nodes go, and not before their time.
func TestOneLeader(t *testing.T) {
	t.Parallel()
	const timeout = 1500 * time.Millisecond
	r := newCluster(t, 2)
	until := time.Now().Add(length(t, 5*time.Second))
	end := until.Add(time.Minute) // for a machine so slow that nobody has followed anybody before
	var led [6]atomic.Bool
	several := func() bool {
		n := 0
		for i := range led {
			if led[i].Load() {
				n++
			}
		}
		return n > 1
	}
	over := func() bool {
		now := time.Now()
		return now.After(end) || now.After(until) && several()
	}
	var all sync.WaitGroup
	all.Go(func() {
		rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
		for time.Now().Before(until.Add(-time.Second)) {
			r.serves(until)
			<-time.After(time.Duration(200+rng.IntN(600)) * time.Millisecond)
			i := rng.IntN(2)
			r.stop(i)
			r.start(i)
		}
	})
	var mu sync.Mutex
	var claims []claim
	last := map[string]time.Time{} // when each node that is left was last beaten for
	for i := range led {
		all.Go(func() {
			e := &candidate{session: session{r: r, at: i, q: wire.ConnectRequest{TimeoutMS: int32(timeout.Milliseconds()), Password: make([]byte, 16)}}, who: i, led: &led[i]}
			defer e.cut()
			mine := e.run(over, end)
			mu.Lock()
			defer mu.Unlock()
			claims = append(claims, mine...)
			if e.node != "" {
				last[e.node] = e.beaten
			}
		})
	}
	all.Wait()
	slices.SortFunc(claims, func(a, b claim) int { return a.from.Compare(b.from) })
	for i, c := range claims {
		for _, other := range claims[i+1:] {
			if other.from.After(c.to) {
				break
			}
			if other.who != c.who {
				t.Fatalf("%d led from %v to %v, and %d from %v", c.who, c.from, c.to, other.who, other.from)
			}
		}
	}
	if !several() {
		t.Errorf("not even two have led, in %d claims: nothing was tested", len(claims))
	}
	t.Logf("%d claims", len(claims))
	r.outlived(last, timeout)
}

// outlived waits until all nodes of silent candidates are gone.
func (r *cluster) outlived(last map[string]time.Time, timeout time.Duration) {
	r.t.Helper()
	k := &session{r: r, q: wire.ConnectRequest{TimeoutMS: 10_000, Password: make([]byte, 16)}}
	defer k.cut()
	for end := time.Now().Add(wait.Patience); ; {
		if time.Now().After(end) {
			r.t.Fatal("nodes of sessions that ended are still there")
		}
		if k.c == nil && !k.connect(end) {
			continue
		}
		names, ok := k.children("/e")
		if !ok {
			continue
		}
		now := time.Now()
		for name, beaten := range last {
			if !slices.Contains(names, name) {
				if now.Sub(beaten) < timeout {
					r.t.Errorf("%s went %v after its session's last request, the time-out is %v", name, now.Sub(beaten), timeout)
				}
				delete(last, name)
			}
		}
		if len(names) == 0 {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

type candidate struct {
	session
	who    int
	node   string // "": none, or it is not known which
	owner  int64  // the session that made it
	beaten time.Time
	led    *atomic.Bool // it has a claim
}

func (e *candidate) run(over func() bool, end time.Time) (claims []claim) {
	for !over() {
		if e.c == nil && !e.connect(end) {
			break
		}
		if e.owner != e.q.SessionID {
			e.node = "" // its session has expired, and it with it
		}
		if e.node == "" && !e.enter() {
			continue
		}
		names, ok := e.children("/e")
		if !ok {
			continue
		}
		if !slices.Contains(names, e.node) {
			e.r.t.Errorf("the node %s of candidate %d is not there, though its session is", e.node, e.who)
			return claims
		}
		if slices.Min(names) != e.node {
			<-time.After(time.Millisecond)
			continue
		}
		for turn := 0; ; turn++ {
			from := time.Now()
			<-time.After(time.Millisecond)
			to := time.Now()
			if names, ok = e.children("/e"); !ok {
				break
			}
			if !slices.Contains(names, e.node) {
				e.r.t.Errorf("the node %s of the leader %d is not there, though its session is", e.node, e.who)
				return claims
			}
			claims = append(claims, claim{e.who, from, to})
			e.led.Store(true)
			if turn == 20 || over() {
				break
			}
		}
		if ok && !over() { // make way
			e.resign()
		}
	}
	return claims
}

// enter makes a node. One whose answer was lost may be there: it is looked for by the
// session it belongs to.
func (e *candidate) enter() bool {
	if h, _, ok := e.send(wire.OpCreate, (&plainCreate{wire.CreateRequest{Path: "/e", ACL: anybody}}).Encode); !ok || h.Err != wire.OK && h.Err != -110 {
		return false
	}
	names, ok := e.children("/e")
	if !ok {
		return false
	}
	for _, name := range names {
		if owner, found := e.ownerOf("/e/" + name); found && owner == e.q.SessionID {
			e.node, e.owner = name, owner
			return true
		}
	}
	h, r, ok := e.send(wire.OpCreate, (&plainCreate{wire.CreateRequest{Path: "/e/n-", ACL: anybody, Flags: 3}}).Encode)
	if !ok || h.Err != wire.OK {
		return false
	}
	e.node, e.owner = r.Text()[len("/e/"):], e.q.SessionID
	return true
}

func (e *candidate) resign() {
	h, _, ok := e.send(wire.OpDelete, (&wire.PathVersion{Path: "/e/" + e.node, Version: -1}).Encode)
	if ok && h.Err == wire.OK {
		e.node = ""
		return
	}
	e.node, e.owner = "", 0 // whether it is there is found out by enter
}

func (e *candidate) ownerOf(path string) (int64, bool) {
	h, r, ok := e.send(wire.OpExists, (&wire.PathWatch{Path: path}).Encode)
	if !ok || h.Err != wire.OK {
		return 0, false
	}
	var st wire.Stat
	st.Decode(r)
	return st.EphemeralOwner, true
}

func (e *candidate) send(op wire.Op, body func(*wire.Writer)) (wire.ReplyHeader, *wire.Reader, bool) {
	if e.c == nil {
		return wire.ReplyHeader{}, nil, false
	}
	e.beaten = time.Now()
	return e.ask(op, body)
}

func (e *candidate) children(path string) ([]string, bool) {
	if e.c == nil {
		return nil, false
	}
	e.beaten = time.Now()
	return e.session.children(path)
}

// plainCreate gives CreateRequest the common shape.
type plainCreate struct{ wire.CreateRequest }

func (c *plainCreate) Encode(w *wire.Writer) { c.CreateRequest.Encode(w, false) }

// children is false when the answer is not known; a node that is not there has none.
func (k *session) children(path string) ([]string, bool) {
	h, r, ok := k.ask(wire.OpGetChildren, (&wire.PathWatch{Path: path}).Encode)
	switch {
	case !ok:
		return nil, false
	case h.Err == wire.NoNode:
		return nil, true
	case h.Err != wire.OK:
		k.r.t.Errorf("the children of %s: %d", path, h.Err)
		return nil, false
	}
	return r.Strings(), true
}
