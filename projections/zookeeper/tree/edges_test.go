package tree

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A list of ACLs is kept once, for as long as a node has it; the two that every tree has stay.
func TestListsAreKeptWhileTheyAreUsed(t *testing.T) {
	a := newACLs()
	list := func(id string) []wire.ACL { return []wire.ACL{{Perms: 1, Scheme: "digest", ID: id}} }
	first := a.intern(list("u:1"))
	a.retain(first)
	a.retain(a.intern(list("u:1")))
	if second := a.intern(list("u:2")); second == first || first <= readOnlyACL {
		t.Fatalf("two lists are number %d and %d", first, second)
	}
	a.release(first)
	if again := a.intern(list("u:1")); again != first {
		t.Errorf("a list in use is number %d, and was %d", again, first)
	}
	a.release(first)
	if other := a.intern(list("u:3")); other != first || len(a.lists[other].acl) != 1 || a.lists[other].acl[0].ID != "u:3" {
		t.Errorf("a list takes number %d, and %d is not used any more", other, first)
	}
	for _, own := range []uint32{openACL, readOnlyACL} {
		was := a.lists[own].acl
		for range 3 {
			a.retain(own)
		}
		for range 5 {
			a.release(own)
		}
		if got := a.intern(was); got != own || len(a.lists[own].acl) != 1 || slices.Contains(a.free, own) {
			t.Errorf("the list %v is number %d, and was %d", was, got, own)
		}
	}
	tr := New()
	id := tr.Create(root, "/a", "a", nil, 0, nil)
	if acl, _, _ := tr.Reader().ACL("/a"); len(acl) != 1 || acl[0] != (wire.ACL{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}) || tr.aclRef(id) != (aclRef{}) {
		t.Errorf("a node that was made without a list has %v", acl)
	}
}

// Blobs keep their bytes whatever is given out and freed around them, and what a frozen copy
// holds stays while it is read; what the arena says of its units is a count of them.
func TestArenaKeepsWhatItHolds(t *testing.T) {
	for size, want := range map[int]uint32{0: 1, 1: 1, unit - 1: 1, unit: 1, unit + 1: 2, 2 * unit: 2, 2*unit + 1: 3} {
		if got := unitsOf(size); got != want {
			t.Errorf("%d bytes take %d units, want %d", size, got, want)
		}
	}
	g := rand.New(rand.NewPCG(1, 1))
	var a arena
	live, frozen := map[uint32][]byte{}, map[uint32][]byte{}
	var copied arena
	check := func(what string, in *arena, blobs map[uint32][]byte) {
		t.Helper()
		for ref, want := range blobs {
			if got := in.bytes(ref, len(want)); !bytes.Equal(got, want) {
				t.Fatalf("%s: blob %d of %d bytes has changed", what, ref, len(want))
			}
		}
	}
	for i := range 20_000 {
		switch {
		case i%5000 == 1000:
			copied, frozen = a.freeze(), maps.Clone(live)
		case i%5000 == 3000:
			check("frozen", &copied, frozen)
			a.thaw()
			frozen = nil
		}
		if len(live) > 0 && g.IntN(5) < 2 {
			for ref, was := range live { // any
				a.release(ref, len(was))
				delete(live, ref)
				break
			}
			continue
		}
		size := g.IntN(200)
		if g.IntN(50) == 0 {
			size = g.IntN(40_000)
		}
		ref, b := a.alloc(size)
		if _, there := live[ref]; ref == 0 || there || len(b) != size {
			t.Fatalf("blob %d of %d bytes, in use: %v", ref, len(b), there)
		}
		for j := range b {
			b[j] = byte(i)
		}
		live[ref] = bytes.Clone(b)
		if i%1000 == 0 {
			check("live", &a, live)
		}
	}
	check("live", &a, live)
	used := 0
	for _, b := range live {
		_, n := class(unitsOf(len(b)))
		used += int(n)
	}
	idle := 0
	for c, ref := range a.heads {
		for ; ref != 0; ref = binary.LittleEndian.Uint32(a.bytes(ref, unit)) {
			n := uint32(1)
			for at, units := class(n); int(at) != c; at, units = class(n) {
				n = units + 1
			}
			_, units := class(n)
			idle += int(units)
		}
	}
	if a.used != used || a.idle != idle || idle == 0 {
		t.Errorf("%d units are used and %d idle, it says %d and %d", used, idle, a.used, a.idle)
	}
}

// A piece is filled to its last unit before another is begun, and what is left of it when
// that is too little is given out later.
func TestPiecesAreFilled(t *testing.T) {
	var a arena
	for range firstPiece - 1 { // unit 0 is none
		a.alloc(unit)
	}
	if len(a.pieces) != 1 || a.idle != 0 {
		t.Errorf("%d pieces and %d idle units when the first is full", len(a.pieces), a.idle)
	}
	if a.alloc(1); len(a.pieces) != 2 || a.idle != 0 {
		t.Errorf("%d pieces and %d idle units behind it", len(a.pieces), a.idle)
	}
	for _, rest := range []int{1, exact - 1, exact, exact + 1, 100, 700} {
		var a arena
		for range firstPiece - 1 - rest {
			a.alloc(unit)
		}
		a.alloc((rest + 1) * unit)
		if len(a.pieces) != 2 || a.idle != rest {
			t.Errorf("%d units are left: %d pieces, %d idle units", rest, len(a.pieces), a.idle)
		}
	}
	for _, tc := range []struct {
		a    arena
		want bool
	}{
		{arena{idle: wasteful + 1, used: wasteful}, true}, {arena{idle: wasteful + 1, used: 0}, true}, {arena{idle: wasteful, used: 0}, false}, {arena{idle: 2, used: 1}, false},
		{arena{idle: 2 * wasteful, used: 2 * wasteful}, false}, {arena{idle: 2 * wasteful, used: 3 * wasteful}, false}, {arena{idle: 2 * wasteful, used: 1, shared: true}, false},
	} {
		if tc.a.wasted() != tc.want {
			t.Errorf("%d units idle and %d used, shared: %v: tidied up %v", tc.a.idle, tc.a.used, tc.a.shared, !tc.want)
		}
	}
}

// sorts is a tree with one node of every sort, in JSON.
func sorts() map[string]JSONNode {
	digest := []wire.ACL{{Perms: 3, Scheme: "digest", ID: "u:h"}}
	return map[string]JSONNode{
		"/":           {Data: Bytes("root"), Creates: 7, Pzxid: 9, Mzxid: 2, Mtime: 3, Version: 4},
		"/a":          {Data: Bytes{}, Czxid: 3, Mzxid: 4, Pzxid: 3, Ctime: 5, Mtime: 6, Version: 1},
		"/b":          {Czxid: 3, Mzxid: 3, Pzxid: 3, Creates: 2}, // whose children came and went with it
		"/c":          {Data: Bytes("\xff"), Czxid: 3, Mzxid: 3, Pzxid: 5},
		"/c/d":        {Data: Bytes("<&>"), Czxid: 4, Mzxid: 4, Pzxid: 4, Owner: 77, ACL: digest, Aversion: 2},
		"/c/e":        {Data: Bytes("x"), Czxid: 4, Mzxid: 4, Pzxid: 4, Owner: containerOwner},
		"/c/e/f":      {Data: Bytes("x"), Czxid: 4, Mzxid: 4, Pzxid: 4, Owner: ttlOwner | 5, ACL: digest},
		"/c/open":     {Data: Bytes("x"), Czxid: 4, Mzxid: 4, Pzxid: 4, Aversion: 1},
		"/read":       {Data: Bytes("x"), Czxid: 4, Mzxid: 4, Pzxid: 4, ACL: []wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}, Aversion: -1},
		"/c/e/f/ä中":   {Data: Bytes("x"), Czxid: 1 << 60, Mzxid: 1<<63 - 1, Pzxid: 1 << 62, Ctime: -1, Mtime: -2, Version: -3},
		"/c/e/f/g":    {Data: Bytes("x"), Czxid: 4, Mzxid: 4, Pzxid: 8},
		"/c/e/f/g/h!": {Data: Bytes("x"), Czxid: 4, Mzxid: 4, Pzxid: 4},
	}
}

func inJSON(t *testing.T, tr *Tree) map[string]JSONNode {
	t.Helper()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	w.WriteByte('{')
	if err := tr.WriteNodes(w); err != nil {
		t.Fatal(err)
	}
	w.WriteByte('}')
	w.Flush()
	var back map[string]JSONNode
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	return back
}

// A tree is the same one behind its JSON and behind its snapshot, with all that its nodes
// have.
func TestATreeBehindItsForms(t *testing.T) {
	want := sorts()
	sessions := map[int64]Session{77: {BZID: "b", TimeoutMS: 5, PasswordHash: Bytes("h")}}
	tr, err := FromJSON(want, sessions)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := tr.Encode(&file, []byte("meta")); err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(&file, func(meta []byte) (Head, error) {
		if string(meta) != "meta" {
			t.Errorf("its JSON is %q", meta)
		}
		h := tr.Head()
		h.Sessions = maps.Clone(h.Sessions)
		return h, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tr := range map[string]*Tree{"JSON": tr, "snapshot": decoded} {
		if diff := cmp.Diff(want, inJSON(t, tr)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		r := tr.Reader()
		if got, ok := r.Session(77); !ok || got.TimeoutMS != 5 || r.SessionCount() != 1 || !slices.Equal(r.Sessions(), []int64{77}) {
			t.Errorf("%s: session %+v", name, got)
		}
		if got := r.EphemeralOwners(); !maps.Equal(got, map[int64]int{77: 1}) || !slices.Equal(r.Ephemerals(77), []string{"/c/d"}) {
			t.Errorf("%s: owners of ephemerals %v", name, got)
		}
		if got := r.Over(1 << 50); !slices.Equal(got, []string{}) { // both have children
			t.Errorf("%s: %v are over", name, got)
		}
		if out := tr.CloseSession(77); out.Code != wire.OK || len(r.EphemeralOwners()) != 0 || tr.Find("/c/d") != 0 || r.SessionCount() != 0 {
			t.Errorf("%s: a session's end: %+v, %v", name, out, r.EphemeralOwners())
		}
		for _, session := range []int64{0, 77, 78} {
			if out := tr.CloseSession(session); out.Code != wire.SessionExpired {
				t.Errorf("%s: session %d ends: %+v", name, session, out)
			}
		}
	}
	none, err := FromJSON(map[string]JSONNode{"/": {}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if out := none.OpenSession(5, Session{}); out.Code != wire.OK || none.OpenSession(5, Session{}).Code != wire.NodeExists || none.OpenSession(0, Session{}).Code != wire.NodeExists {
		t.Errorf("a session of a tree that had none: %+v", out)
	}
}

// JSON is canonical: nodes by path, and what is not there left out. States are hashed by it,
// so that what of it is escaped stays escaped.
func TestNodesInJSON(t *testing.T) {
	tr := newTree()
	tr.Begin(5, 1000)
	tr.Create(root, "/b<", "b<", []byte("<&>"), 0, nil)
	tr.Create(root, "/a", "a", nil, 7, []wire.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}})
	tr.Commit()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	if err := tr.WriteNodes(w); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	const want = `"/":{"data":"","czxid":0,"mzxid":0,"pzxid":5,"ctime":0,"mtime":0,"version":0,"creates":2},` +
		`"/a":{"data":null,"czxid":5,"mzxid":5,"pzxid":5,"ctime":1000,"mtime":1000,"version":0,"creates":0,"owner":7,"acl":[{"perms":1,"scheme":"world","id":"anyone"}]},` +
		`"/b<":{"data":"\u003c\u0026\u003e","czxid":5,"mzxid":5,"pzxid":5,"ctime":1000,"mtime":1000,"version":0,"creates":0}`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	full := errors.New("the disk is full")
	if err := tr.WriteNodes(bufio.NewWriterSize(failing{full}, 16)); !errors.Is(err, full) {
		t.Errorf("written to a full disk: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A snapshot has as many nodes as it says, one at least, and nothing behind them.
func TestSnapshotsOfSoManyNodes(t *testing.T) {
	for nodes, there := range map[int]int{-1: 0, 0: 0, 1: 1, 2: 2, 3: 2, 4: 5} {
		file := append([]byte(magic), 0)
		for i := range there {
			back := uint64(1)
			if i == 0 {
				back = 0
			}
			name := strconv.Itoa(i)
			file = append(file, written(0, back, name[:min(i, 1)], nil)...)
		}
		tr, err := Decode(bytes.NewReader(file), func([]byte) (Head, error) { return Head{Nodes: nodes}, nil })
		if ok := nodes == there && nodes > 0; (err == nil) != ok || ok && tr.count != nodes || !ok && !errors.Is(err, errSnapshot) {
			t.Errorf("%d nodes where %d are said: %v", there, nodes, err)
		}
	}
	if _, err := Decode(bytes.NewReader([]byte(magic+"\x00")), func([]byte) (Head, error) { return Head{}, io.ErrNoProgress }); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("of JSON that is none: %v", err)
	}
}

// Two names of one hash are two nodes of a snapshot; the same name twice is damage.
func TestASnapshotsNamesOfOneHash(t *testing.T) {
	tr := newTree()
	type key struct {
		shard any
		hash  uint32
	}
	seen := map[key]string{}
	for i := range 8_000_000 {
		name := strconv.Itoa(i)
		shard, hash := tr.index.hash(root, name)
		first, found := seen[key{shard, hash}]
		if !found {
			seen[key{shard, hash}] = name
			continue
		}
		for n, node := range [][]byte{written(0, 0, "", nil), written(0, 1, first, nil), written(0, 2, name, nil), written(0, 3, first, nil)} {
			err := tr.decode(&decoder{r: bufio.NewReader(bytes.NewReader(node))}, uint32(n), nil)
			if (err == nil) != (n < 3) {
				t.Fatalf("node %d of %q, %q and %q again: %v", n, first, name, first, err)
			}
			if n == 2 && (tr.Find("/"+first) != 2 || tr.Find("/"+name) != 3 || tr.siblings(root, first) != 1 || tr.siblings(root, name) != 1) {
				t.Fatalf("%q and %q are nodes %d and %d", first, name, tr.Find("/"+first), tr.Find("/"+name))
			}
		}
		return
	}
	t.Fatal("no two names have the same hash")
}

// Owners say what ends a node: a session, nothing, the last child, or time.
func TestSortsOfOwners(t *testing.T) {
	for owner, want := range map[int64][2]bool{ // ephemeral, of a service
		0: {}, containerOwner: {}, ttlOwner: {}, ttlOwner | 1: {}, ttlOwner | maxTTL: {}, 1: {true, false}, 0x7f00000000000001: {true, false}, containerOwner + 1: {true, false},
		ServiceOwner << 56: {true, true}, ServiceOwner<<56 | 5: {true, true}, (ServiceOwner+1)<<56 - 1: {true, true}, (ServiceOwner + 1) << 56: {true, false}, ServiceOwner<<56 - 1: {true, false},
	} {
		if IsEphemeral(owner) != want[0] || IsService(owner) != want[1] {
			t.Errorf("owner %x: ephemeral %v, a service %v", owner, IsEphemeral(owner), IsService(owner))
		}
	}
	tr, err := FromJSON(sorts(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/": 11, "/a": 0, "/c": 7, "/c/e": 4, "/c/e/f": 3, "/c/e/f/g": 1, "/none": 0, "": 0} {
		if got := tr.Reader().Descendants(path); got != want {
			t.Errorf("%d nodes lie below %q, want %d", got, path, want)
		}
	}
	for name, want := range map[string]bool{"a": true, "...": true, "ä": true, "": false, ".": false, "..": false, "a/b": false, "/": false, "ä/b": false, "a\x00": false, "\x1f": false, " ": true, "\x7f": false, "~": true, "\u009f": false, "\u00a0": true, "\x80": false, "a\xff": false, "\ue000": false, "\uf8ff": false, "\uf900": true, "\ufff0": false} {
		if ValidName(name) != want || name != "" && name != "/" && name != "a/b" && name != "ä/b" && ValidPath("/"+name) != want {
			t.Errorf("%q is a name: %v", name, !want)
		}
	}
	for _, path := range []string{"\x00/a", "/a\x00", "\x00/", "a"} {
		if _, _, ok := SplitPath(path); ok {
			t.Errorf("%q is taken apart", path)
		}
	}
}

// A place is remembered of a node that nobody can have made again under its zxid.
func TestPlacesThatAreNotRemembered(t *testing.T) {
	for czxid, want := range map[uint64]bool{0: false, 1: true, 5: true, 6: false} {
		tr, err := FromJSON(map[string]JSONNode{"/": {}, "/a": {Czxid: czxid}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tr.Begin(5, 0)
		var at Place
		if id := tr.Look("/a", &at); id == 0 || (at != Place{}) != want {
			t.Errorf("made at %d, looked up at 5: node %d at %v", czxid, id, at)
		}
	}
}
