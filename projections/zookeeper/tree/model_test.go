package tree_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// naive is ZooKeeper's tree the plain way: a map of whole nodes that every proposal
// copies, so that a failed one has nothing to take back.
type naive struct {
	nodes    map[string]naiveNode
	sessions map[int64]bool
	zxid, ms int64
}

type naiveNode struct {
	data                string
	none                bool // no data at all
	czxid, mzxid, pzxid int64
	ctime, mtime        int64
	version, creates    int32
	aversion            int32
	owner, ttl          int64
	container           bool
	acl                 []wire.ACL
}

var open = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

func newNaive() *naive {
	n := &naive{nodes: map[string]naiveNode{}, sessions: map[int64]bool{}}
	for _, p := range []string{"/", "/zookeeper", "/zookeeper/quota"} {
		n.nodes[p] = naiveNode{acl: open}
	}
	n.nodes["/zookeeper/config"] = naiveNode{aversion: -1, acl: []wire.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}}
	return n
}

func up(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }

func (n *naive) kids(path string) (names []string) {
	names = []string{}
	for p := range n.nodes {
		if p != "/" && up(p) == path {
			names = append(names, p[strings.LastIndexByte(p, '/')+1:])
		}
	}
	slices.Sort(names)
	return names
}

func (n *naive) stat(path string) wire.Stat {
	v, kids := n.nodes[path], int32(len(n.kids(path)))
	owner := v.owner
	if v.container {
		owner = -1 << 63
	}
	if v.ttl > 0 {
		owner = -1<<56 | v.ttl
	}
	return wire.Stat{
		Czxid: v.czxid, Mzxid: v.mzxid, Pzxid: v.pzxid, Ctime: v.ctime, Mtime: v.mtime, Version: v.version,
		Cversion: 2*v.creates - kids, Aversion: v.aversion, EphemeralOwner: owner, DataLength: int32(len(v.data)), NumChildren: kids,
	}
}

func permits(acl []wire.ACL, perm int32, auth []*znode.Identity) bool {
	for _, a := range acl {
		for _, id := range append([]*znode.Identity{{Scheme: "world", Id: "anyone"}}, auth...) {
			if a.Perms&perm != 0 && a.Scheme == id.GetScheme() && a.ID == id.GetId() {
				return true
			}
		}
	}
	return false
}

func acls(list []*znode.ACL, auth []*znode.Identity) (out []wire.ACL) {
	for _, a := range list {
		if a.GetScheme() == "auth" {
			for _, id := range auth {
				out = append(out, wire.ACL{Perms: a.GetPerms(), Scheme: id.GetScheme(), ID: id.GetId()})
			}
			continue
		}
		out = append(out, wire.ACL{Perms: a.GetPerms(), Scheme: a.GetScheme(), ID: a.GetId()})
	}
	return out
}

func (n *naive) op(p *znode.Proposed, op *znode.Op) (code wire.Code, r tree.Result) {
	r.Op = view.KindOf(op)
	if r.Op != tree.OpDeleteContainer && !n.sessions[p.GetSession()] {
		return -112, r
	}
	switch o := op.GetOp().(type) {
	case *znode.Op_Create:
		code = n.create(p, o.Create, &r)
	case *znode.Op_Delete:
		code = n.remove(p, o.Delete)
	case *znode.Op_DeleteContainer:
		code = n.sweep(op.Path())
	case *znode.Op_SetData:
		code = n.setData(p, o.SetData, &r)
	case *znode.Op_SetAcl:
		code = n.setACL(p, o.SetAcl, &r)
	case *znode.Op_Check:
		code = n.check(p, o.Check)
	}
	return code, r
}

func (n *naive) create(p *znode.Proposed, c *znode.Create, r *tree.Result) wire.Code {
	path := c.GetPath()
	_, exists := n.nodes[path]
	parent, hasParent := n.nodes[up(path)]
	list := acls(c.GetAcl(), p.GetAuth())
	switch {
	case len(list) == 0:
		return -114
	case !hasParent:
		return -101
	case !permits(parent.acl, 4, p.GetAuth()):
		return -102
	}
	if m := c.GetMode(); m == 2 || m == 3 || m == 6 {
		path = fmt.Sprintf("%s%010d", path, parent.creates)
		_, exists = n.nodes[path]
	}
	if exists {
		return -110
	}
	if parent.owner != 0 {
		return -108
	}
	n.nodes[path] = n.fresh(p, c, list)
	parent.creates++
	parent.pzxid = n.zxid
	n.nodes[up(path)] = parent
	r.Path, r.Stat = path, n.stat(path)
	return 0
}

// fresh is what a create makes.
func (n *naive) fresh(p *znode.Proposed, c *znode.Create, list []wire.ACL) naiveNode {
	fresh := naiveNode{data: string(c.GetData()), none: c.Data == nil, czxid: n.zxid, mzxid: n.zxid, pzxid: n.zxid, ctime: n.ms, mtime: n.ms, acl: list}
	switch c.GetMode() {
	case 1, 3:
		fresh.owner = p.GetSession()
	case 4:
		fresh.container = true
	case 5, 6:
		fresh.ttl = c.GetTtlMs()
	}
	return fresh
}

func (n *naive) remove(p *znode.Proposed, o *znode.Delete) wire.Code {
	path := o.GetPath()
	v, exists := n.nodes[path]
	parent, hasParent := n.nodes[up(path)]
	switch {
	case path == "/":
		return -8
	case !hasParent:
		return -101
	case !permits(parent.acl, 8, p.GetAuth()):
		return -102
	case !exists:
		return -101
	case o.GetVersion() != -1 && o.GetVersion() != v.version:
		return -103
	case len(n.kids(path)) > 0:
		return -111
	}
	n.drop(path)
	return 0
}

func (n *naive) sweep(path string) wire.Code {
	v, exists := n.nodes[path]
	switch {
	case path == "/":
		return -8
	case !exists:
		return -101
	case len(n.kids(path)) > 0:
		return -111
	case v.container && v.creates > 0, v.ttl > 0 && n.ms-v.mtime > v.ttl:
		n.drop(path)
	default:
		return -103
	}
	return 0
}

func (n *naive) setData(p *znode.Proposed, o *znode.SetData, r *tree.Result) wire.Code {
	path := o.GetPath()
	v, exists := n.nodes[path]
	switch {
	case !exists:
		return -101
	case !permits(v.acl, 2, p.GetAuth()):
		return -102
	case o.GetVersion() != -1 && o.GetVersion() != v.version:
		return -103
	}
	v.data, v.none, v.mzxid, v.mtime = string(o.GetData()), o.Data == nil, n.zxid, n.ms
	v.version++
	n.nodes[path] = v
	r.Stat = n.stat(path)
	return 0
}

func (n *naive) setACL(p *znode.Proposed, o *znode.SetACL, r *tree.Result) wire.Code {
	path := o.GetPath()
	v, exists := n.nodes[path]
	list := acls(o.GetAcl(), p.GetAuth())
	switch {
	case len(list) == 0:
		return -114
	case !exists:
		return -101
	case !permits(v.acl, 16, p.GetAuth()):
		return -102
	case o.GetVersion() != -1 && o.GetVersion() != v.aversion:
		return -103
	}
	v.acl = list
	v.aversion++
	n.nodes[path] = v
	r.Stat = n.stat(path)
	return 0
}

func (n *naive) check(p *znode.Proposed, o *znode.Check) wire.Code {
	v, exists := n.nodes[o.GetPath()]
	switch {
	case !exists:
		return -101
	case !permits(v.acl, 1, p.GetAuth()):
		return -102
	case o.GetVersion() != -1 && o.GetVersion() != v.version:
		return -103
	}
	return 0
}

func (n *naive) drop(path string) {
	delete(n.nodes, path)
	parent := n.nodes[up(path)]
	parent.pzxid = n.zxid
	n.nodes[up(path)] = parent
}

func (n *naive) propose(p *znode.Proposed) *tree.Outcome {
	before := map[string]naiveNode{}
	for k, v := range n.nodes {
		before[k] = v
	}
	o := &tree.Outcome{Multi: p.GetMulti()}
	for _, op := range p.GetOps() {
		r := tree.Result{Op: view.KindOf(op)}
		if o.Code != 0 {
			r.Code = -2
		} else {
			o.Code, r = n.op(p, op)
			r.Code = o.Code
		}
		o.Results = append(o.Results, r)
	}
	if o.Code != 0 {
		n.nodes = before
		for i := range o.Results {
			o.Results[i].Path, o.Results[i].Stat = "", wire.Stat{}
		}
	}
	return o
}

func randomOp(g *rand.Rand, paths []string) *znode.Op {
	path := paths[g.IntN(len(paths))]
	version := int32(g.IntN(4)) - 1
	data := bytes.Repeat([]byte{byte(g.Uint32())}, g.IntN(4)*g.IntN(60)*g.IntN(20))
	if g.IntN(8) == 0 {
		data = nil
	}
	lists := [][]*znode.ACL{
		{{Perms: 31, Scheme: "world", Id: "anyone"}}, {{Perms: 31, Scheme: "world", Id: "anyone"}},
		{{Perms: 31, Scheme: "world", Id: "anyone"}}, {{Perms: 31, Scheme: "auth"}},
		{{Perms: 15, Scheme: "digest", Id: "u:h"}}, {{Perms: 1, Scheme: "world", Id: "anyone"}, {Perms: 30, Scheme: "digest", Id: "v:h"}}, {},
	}
	acl := lists[g.IntN(len(lists))]
	if path == "/" || path == "/a" || path == "/b" {
		acl = lists[0] // or nobody could go on
	}
	switch g.IntN(12) {
	case 0, 1, 2, 3, 4:
		c := &znode.Create{Path: path, Data: data, Acl: acl, Mode: znode.Mode(g.IntN(7))}
		if path == "/e" {
			c.Mode, c.Acl = 1, lists[0]
		}
		if c.Mode >= 5 {
			c.TtlMs = int64(1 + g.IntN(50))
		}
		return &znode.Op{Op: &znode.Op_Create{Create: c}}
	case 5, 6:
		return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: version}}}
	case 7, 8:
		return &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: data, Version: version}}}
	case 9:
		return &znode.Op{Op: &znode.Op_SetAcl{SetAcl: &znode.SetACL{Path: path, Acl: acl, Version: version}}}
	case 10:
		return &znode.Op{Op: &znode.Op_Check{Check: &znode.Check{Path: path, Version: version}}}
	}
	return &znode.Op{Op: &znode.Op_DeleteContainer{DeleteContainer: &znode.DeleteContainer{Path: path}}}
}

// drawn is a random event, and what the model answers to it; nil: none this time.
func drawn(g *rand.Rand, n *naive, seq int) (r events.Recorded, want *tree.Outcome) {
	r = events.Recorded{Seq: uint64(seq), Subject: events.Join("b", "znode", "tree"), Time: time.UnixMilli(int64(1000 + 7*(seq-1)))}
	n.zxid, n.ms = int64(r.Seq), r.Time.UnixMilli()
	session := int64(1 + g.IntN(4))
	switch g.IntN(20) {
	case 0:
		r.Event = &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: session, TimeoutMs: 1, PasswordHash: make([]byte, 32)}}}
		return r, n.opened(session)
	case 1:
		if g.IntN(3) > 0 {
			return r, nil
		}
		r.Event = &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: session, Reason: "closed"}}}
		return r, n.closed(session)
	}
	p := &znode.Proposed{Session: session, Multi: g.IntN(3) == 0, Auth: []*znode.Identity{{Scheme: "digest", Id: "u:h"}}}
	for range 1 + g.IntN(5) {
		p.Ops = append(p.Ops, randomOp(g, modelPaths))
		if !p.Multi {
			break
		}
	}
	r.Event = &znode.Event{Body: &znode.Event_Proposed{Proposed: p}}
	return r, n.propose(p)
}

var modelPaths = []string{"/", "/a", "/b", "/a/x", "/a/y", "/b/z", "/a/x/1", "/a/x/2", "/b/z/1", "/zookeeper/q", "/c-", "/a/s-", "/e", "/e/c"}

func (n *naive) opened(session int64) *tree.Outcome {
	o := &tree.Outcome{}
	if n.sessions[session] {
		o.Code = -110
	}
	n.sessions[session] = true
	return o
}

func (n *naive) closed(session int64) *tree.Outcome {
	o := &tree.Outcome{}
	if !n.sessions[session] {
		o.Code = -112
	}
	delete(n.sessions, session)
	for p, v := range n.nodes {
		if v.owner == session {
			n.drop(p)
		}
	}
	return o
}

// frozen is a copy that is written only after the tree has gone on.
type frozen struct {
	write func(*bytes.Buffer) error
	want  []byte
}

func freeze(t *testing.T, s view.State) *frozen {
	write := view.Encode(s)
	return &frozen{func(b *bytes.Buffer) error { return write(b) }, canonical(t, s)}
}

func (f *frozen) unchanged(t *testing.T, event int) {
	t.Helper()
	var b bytes.Buffer
	if err := f.write(&b); err != nil {
		t.Fatal(err)
	}
	back, err := view.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := canonical(t, back); !bytes.Equal(got, f.want) {
		t.Fatalf("event %d: a frozen copy has changed (-then +now):\n%s", event, cmp.Diff(string(f.want), string(got)))
	}
}

// Random writes, multis and session losses give the same answers and the same tree as
// the plain model, also across snapshots, and frozen copies stay as they were.
func TestAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := rand.New(rand.NewPCG(seed, 1))
	s, n := view.New(), newNaive()
	var copied *frozen
	codes := map[wire.Code]int{}
	for i := range 5000 {
		r, want := drawn(g, n, i+1)
		if want == nil {
			continue
		}
		var did view.Effects
		s, did = apply(s, r)
		codes[want.Code]++
		if diff := cmp.Diff(want, did.Outcome); diff != "" {
			t.Fatalf("event %d %v (-model +fold):\n%s", i, r.Event, diff)
		}
		if want.Code != 0 && did.Changes != nil {
			t.Fatalf("event %d failed and changed %v", i, did.Changes)
		}
		if i%200 == 0 {
			compare(t, n, s)
		}
		switch {
		case i%400 == 100:
			copied = freeze(t, s)
		case i%400 == 200 && copied != nil:
			copied.unchanged(t, i)
			copied = nil
		case i%400 == 300: // go on from a snapshot
			var b bytes.Buffer
			if err := view.Encode(s)(&b); err != nil {
				t.Fatal(err)
			}
			back, err := view.Decode(&b)
			if err != nil || !bytes.Equal(canonical(t, back), canonical(t, s)) {
				t.Fatalf("event %d: the snapshot differs: %v", i, err)
			}
			s = back
		}
	}
	compare(t, n, s)
	for _, code := range []wire.Code{0, -101, -102, -103, -108, -110, -111, -112, -114, -8} {
		if codes[code] == 0 {
			t.Errorf("code %d never came up: %v", code, codes)
		}
	}
}

func compare(t *testing.T, n *naive, s view.State) {
	t.Helper()
	if s.Count() != len(n.nodes) {
		t.Errorf("%d nodes, the model has %d", s.Count(), len(n.nodes))
	}
	for path, v := range n.nodes {
		data, st, ok := s.Get(path)
		if want := n.stat(path); !ok || string(data) != v.data || (data == nil) != v.none || st != want {
			t.Fatalf("%s: %v %+v, want %+v", path, ok, st, want)
		}
		if got := s.Children(path); !reflect.DeepEqual(got, n.kids(path)) {
			t.Fatalf("children of %s: %v, want %v", path, got, n.kids(path))
		}
		if acl, _, _ := s.ACL(path); !slices.Equal(acl, v.acl) {
			t.Fatalf("ACL of %s: %v, want %v", path, acl, v.acl)
		}
	}
	for session := range int64(5) {
		want := []string{}
		for path, v := range n.nodes {
			if session > 0 && v.owner == session {
				want = append(want, path)
			}
		}
		slices.Sort(want)
		if got := s.Ephemerals(session); !slices.Equal(got, want) {
			t.Fatalf("ephemerals of %d: %v, want %v", session, got, want)
		}
		if _, ok := s.Session(session); ok != n.sessions[session] {
			t.Fatalf("session %d: %v", session, ok)
		}
	}
}

func canonical(t *testing.T, s view.State) []byte {
	t.Helper()
	b, err := follow.Canonical(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
