package replicaregistry

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Histories of clients that write to a few nodes, while what serves them is killed and
// cut off, must be those of one register with a version for each node.

// call is one request to one key, or, with other, a multi: key is set at its version and
// other is created, or nothing of it.
type call struct {
	op      wire.Op
	key     string
	value   string
	version int32
}

// answer says what came back; unknown: the connection was lost first.
type reply struct {
	unknown bool
	code    wire.Code
	value   string
	version int32
}

// register is one node; the zero value: it is not there.
type register struct {
	there   bool
	value   string
	version int32
}

// step is what ZooKeeper's documentation says of one node.
func step(s register, c call) (register, reply) {
	switch c.op {
	case wire.OpCreate:
		if s.there {
			return s, reply{code: wire.NodeExists}
		}
		return register{true, c.value, 0}, reply{}
	case wire.OpGetData:
		if !s.there {
			return s, reply{code: wire.NoNode}
		}
		return s, reply{value: s.value, version: s.version}
	}
	switch {
	case !s.there:
		return s, reply{code: wire.NoNode}
	case c.version != -1 && c.version != s.version:
		return s, reply{code: wire.BadVersion}
	case c.op == wire.OpDelete:
		return register{}, reply{}
	}
	return register{true, c.value, s.version + 1}, reply{version: s.version + 1}
}

// nodeModel takes a lost answer for one that may have been any: the operation happened at
// some time, or never.
var nodeModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		s, c, got := state.(register), input.(call), output.(reply)
		after, want := step(s, c)
		switch {
		case got.unknown && after != s:
			return []any{after, s}
		case got.unknown:
			return []any{s}
		case got != want:
			return nil
		}
		return []any{after}
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(call).key
			byKey[k] = append(byKey[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range byKey {
			parts = append(parts, p)
		}
		return parts
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
}

// session is a client that goes on wherever it is let in, and opens a new one when
// the old one has expired.
type session struct {
	r    *cluster
	c    *client.Conn
	q    wire.ConnectRequest
	seen int64 // the greatest zxid
	at   int   // registry
}

func (k *session) connect(until time.Time) bool {
	for time.Now().Before(until) {
		k.at = (k.at + 1) % len(k.r.addrs)
		k.q.LastZxidSeen = k.seen
		c, err := client.Dial(k.r.addrs[k.at], k.q, k.r.patience)
		if err != nil {
			<-time.After(5 * time.Millisecond)
			continue
		}
		if c.Session.SessionID == 0 {
			_ = c.Close() // expired
			k.q.SessionID, k.q.Password = 0, nil
			continue
		}
		k.c, k.q.SessionID, k.q.Password = c, c.Session.SessionID, c.Session.Password
		return true
	}
	return false
}

// cut loses the connection.
func (k *session) cut() {
	if k.c != nil {
		_ = k.c.Close()
		k.c = nil
	}
}

// ask is one request and its answer; false: the answer is not known.
func (k *session) ask(op wire.Op, body func(*wire.Writer)) (wire.ReplyHeader, *wire.Reader, bool) {
	xid := k.c.Send(op, body)
	err := k.c.Deadline(k.r.patience)
	if err == nil {
		err = k.c.Flush()
	}
	if err != nil {
		k.cut()
		return wire.ReplyHeader{}, nil, false
	}
	return k.hear(xid)
}

// hear is the next answer, which must be that to request xid.
func (k *session) hear(xid int32) (wire.ReplyHeader, *wire.Reader, bool) {
	h, r, err := k.c.Next()
	if err != nil {
		k.cut()
		return h, r, false
	}
	if h.Xid != xid {
		k.r.t.Errorf("the answer to request %d has number %d", xid, h.Xid)
	}
	if h.Zxid < k.seen {
		k.r.t.Errorf("zxid %d after %d in session %#x", h.Zxid, k.seen, k.q.SessionID)
	}
	k.seen = max(k.seen, h.Zxid)
	return h, r, true
}

// read reads a node, behind a sync where those who serve may be behind.
func (k *session) read(path string) (h wire.ReplyHeader, r *wire.Reader, ok bool) {
	get := (&wire.PathWatch{Path: path}).Encode
	if !k.r.synced {
		return k.ask(wire.OpGetData, get)
	}
	h, _, ok = k.ask(wire.OpSync, (&wire.Path{Path: path}).Encode)
	if !ok || h.Err != wire.OK {
		k.cut()
		return h, nil, false
	}
	return k.ask(wire.OpGetData, get)
}

func (k *session) do(c call) reply {
	data := []byte(c.value)
	var h wire.ReplyHeader
	var r *wire.Reader
	var ok bool
	switch c.op {
	case wire.OpCreate:
		h, r, ok = k.ask(c.op, func(w *wire.Writer) {
			(&wire.CreateRequest{Path: c.key, Data: data, ACL: anybody}).Encode(w, false)
		})
	case wire.OpDelete:
		h, r, ok = k.ask(c.op, (&wire.PathVersion{Path: c.key, Version: c.version}).Encode)
	case wire.OpSetData:
		h, r, ok = k.ask(c.op, (&wire.SetDataRequest{Path: c.key, Data: data, Version: c.version}).Encode)
	case wire.OpMulti: // a check and a set, which is a set with a version
		h, r, ok = k.ask(c.op, func(w *wire.Writer) {
			(&wire.MultiHeader{Op: wire.OpCheck, Err: -1}).Encode(w)
			(&wire.PathVersion{Path: c.key, Version: c.version}).Encode(w)
			(&wire.MultiHeader{Op: wire.OpSetData, Err: -1}).Encode(w)
			(&wire.SetDataRequest{Path: c.key, Data: data, Version: -1}).Encode(w)
			wire.MultiEnd().Encode(w)
		})
	default:
		h, r, ok = k.read(c.key)
	}
	switch {
	case !ok:
		return reply{unknown: true}
	case h.Err != wire.OK:
		return reply{code: h.Err}
	}
	var st wire.Stat
	switch c.op {
	case wire.OpGetData:
		got := reply{value: string(r.Buffer())}
		st.Decode(r)
		got.version = st.Version
		return got
	case wire.OpSetData:
		st.Decode(r)
		return reply{version: st.Version}
	case wire.OpMulti:
		return multiReply(k.r.t, r)
	}
	return reply{}
}

// multiReply is the outcome of check and set: the first code that is none of success,
// or the stat of the set.
func multiReply(t *testing.T, r *wire.Reader) reply {
	var out reply
	for {
		var h wire.MultiHeader
		h.Decode(r)
		if r.Err() != nil {
			t.Errorf("the answer to a multi: %v", r.Err())
			return out
		}
		if h.Done {
			return out
		}
		switch h.Op {
		case wire.OpError:
			if code := wire.Code(r.Int32()); code != wire.OK && code != wire.RuntimeInconsistency && out.code == wire.OK {
				out.code = code
			}
		case wire.OpSetData:
			var st wire.Stat
			st.Decode(r)
			out.version = st.Version
		}
	}
}

var anybody = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

// recorder keeps what clients asked and heard, by one clock.
type recorder struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *recorder) add(o porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// enough outcomes for a history to say something.
const enough = 150

// play has clients work on keys until a time, and on a slow machine until enough is known,
// and returns what happened.
func (r *cluster) play(clients int, keys []string, seed uint64, began, until time.Time) []porcupine.Operation {
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-time.After(time.Until(until))
		r.enough(until.Add(wait.Patience))
	}()
	return r.playUntil(clients, keys, seed, began, done)
}

// enough waits, but not for ever, until enough outcomes are known of what is being played.
func (r *cluster) enough(until time.Time) {
	for r.known.Load() < enough && time.Now().Before(until) {
		<-time.After(10 * time.Millisecond)
	}
}

// playUntil is play until done is closed.
func (r *cluster) playUntil(clients int, keys []string, seed uint64, began time.Time, done <-chan struct{}) []porcupine.Operation {
	r.known.Store(0)
	over := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	h := &recorder{began: began}
	var ids atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			k := &session{r: r, at: i, q: wire.ConnectRequest{TimeoutMS: 10_000, Password: make([]byte, 16)}}
			defer k.cut()
			known := map[string]int32{}
			for n := 0; !over(); n++ {
				if k.c == nil && !k.connect(time.Now().Add(100*time.Millisecond)) {
					continue
				}
				if rng.IntN(200) == 0 {
					k.cut()
					continue
				}
				c := call{key: keys[rng.IntN(len(keys))], value: fmt.Sprintf("%d.%d", i, n), version: -1}
				c.op = []wire.Op{wire.OpCreate, wire.OpGetData, wire.OpGetData, wire.OpSetData, wire.OpSetData, wire.OpMulti, wire.OpDelete}[rng.IntN(7)]
				if c.op == wire.OpMulti || rng.IntN(2) == 0 {
					c.version = known[c.key]
				}
				if c.op == wire.OpCreate || c.op == wire.OpGetData {
					c.version = -1
				}
				// A client's next request is another process's, so to speak: what an unknown
				// outcome leaves behind may still happen.
				o := porcupine.Operation{ClientId: int(ids.Add(1)), Input: c, Call: int64(time.Since(h.began))}
				got := k.do(c)
				o.Return = int64(time.Since(h.began))
				if got.unknown {
					if c.op == wire.OpGetData {
						continue // it changed nothing
					}
					o.Metadata = k.at
				}
				o.Output = got
				h.add(o)
				if !got.unknown {
					r.known.Add(1)
				}
				if !got.unknown && got.code == wire.OK {
					known[c.key] = got.version
				}
			}
		})
	}
	all.Wait()
	return h.ops
}

// settle says how long each operation may have taken whose outcome is not known.
func (r *cluster) settle(ops []porcupine.Operation, began time.Time) {
	for i := range ops {
		if o := &ops[i]; o.Output.(reply).unknown {
			end, known := r.over(o.Metadata.(int), began.Add(time.Duration(o.Call)))
			if o.Return = int64(time.Hour); known {
				o.Return = int64(end.Sub(began))
			}
			o.Metadata = nil
		}
	}
}

// length of a recorded history: short, unless a soak is asked for.
func length(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if v := os.Getenv("MONOLITH_SOAK"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("MONOLITH_SOAK=%s: give a number", v)
		}
		return time.Duration(n) * short
	}
	return short
}

// Whatever is killed, restarted or cut off, the histories are those of one register for
// each node, and what was acked is there.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		registries int
		disturb    func(r *cluster, rng *rand.Rand)
	}{
		{"undisturbed", 1, func(*cluster, *rand.Rand) {}},
		{"registry killed and started again", 1, func(r *cluster, _ *rand.Rand) { r.stop(0); r.start(0) }},
		{"two registries killed in turns", 2, func(r *cluster, rng *rand.Rand) { i := rng.IntN(2); r.stop(i); r.start(i) }},
		{"NATS restarted", 1, func(r *cluster, _ *rand.Rand) { r.stopNATS(); r.startNATS() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			r := newCluster(t, tc.registries)
			until := time.Now().Add(length(t, 4*time.Second))
			var disturbing sync.WaitGroup
			disturbing.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 99))
				for time.Now().Before(until.Add(-time.Second)) {
					r.serves(until)
					<-time.After(time.Duration(50+rng.IntN(500)) * time.Millisecond)
					tc.disturb(r, rng)
				}
			})
			keys := []string{"/k0", "/k1", "/k2", "/k3", "/k4", "/k5", "/k6", "/k7"}
			began := time.Now()
			ops := r.play(36, keys, seed, began, until)
			disturbing.Wait()
			r.settle(ops, began)
			ops = append(ops, r.last(keys, len(ops))...)
			known := len(slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool { return o.Output.(reply).unknown }))
			if known < enough {
				t.Errorf("only %d of %d outcomes are known", known, len(ops))
			}
			t.Logf("%d operations, %d with an unknown outcome", len(ops), len(ops)-known)
			linear(t, ops, seed)
		})
	}
}

// linear says whether a history is one of registers.
func linear(t *testing.T, ops []porcupine.Operation, seed uint64) {
	t.Helper()
	m := nodeModel.ToModel()
	res, info := porcupine.CheckOperationsVerbose(m, ops, 2*wait.Patience)
	if res != porcupine.Ok {
		file := filepath.Join(os.TempDir(), fmt.Sprintf("monolith-history-%d.html", seed))
		t.Errorf("the history is not linearizable: %v; it is drawn in %s (%v)", res, file, porcupine.VisualizePath(m, info, file))
	}
}

// last reads every key once more when everything is quiet: what was acked is in it.
func (r *cluster) last(keys []string, n int) (ops []porcupine.Operation) {
	r.t.Helper()
	k := &session{r: r, q: wire.ConnectRequest{TimeoutMS: 10_000, Password: make([]byte, 16)}}
	defer k.cut()
	for i, key := range keys {
		for {
			if k.c == nil && !k.connect(time.Now().Add(wait.Patience)) {
				r.t.Fatal("nobody serves any more")
			}
			c := call{op: wire.OpGetData, key: key, version: -1}
			at := int64(30*time.Minute) + int64(i)
			if got := k.do(c); !got.unknown {
				ops = append(ops, porcupine.Operation{ClientId: n + i + 1, Input: c, Output: got, Call: at, Return: at})
				break
			}
		}
	}
	return ops
}
