package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/znode"
)

func TestAddressesOfACLs(t *testing.T) {
	for id, want := range map[string]bool{
		"1.2.3.4": true, "0.0.0.0": true, "255.255.255.255": true, "1.2.3.4/0": true, "1.2.3.4/1": true, "1.2.3.4/32": true, "001.2.3.4": true,
		"1.2.3.4/33": false, "1.2.3.4/-1": false, "1.2.3.4/x": false, "1.2.3.4/": false, "1.2.3": false, "1.2.3.4.5": false, "1.2.3.256": false, "-1.2.3.4": false, "": false, "::1": false,
	} {
		if got := ipID(id); got != want {
			t.Errorf("%q is an address: %v", id, got)
		}
		if got := ipMatches("1.2.3.4", id); got && !want {
			t.Errorf("1.2.3.4 lies in %q", id)
		}
	}
	for expr, want := range map[string]bool{
		"1.2.3.4": true, "1.2.3.5": false, "9.9.9.9/0": true, "9.9.9.9/1": true, "129.0.0.0/1": false, "1.2.3.5/31": true, "1.2.3.6/31": false, "1.2.3.4/32": true, "1.2.3.5/32": false, "1.2.9.9/16": true, "1.3.3.4/16": false,
	} {
		if got := ipMatches("1.2.3.4", expr); got != want {
			t.Errorf("1.2.3.4 lies in %q: %v", expr, got)
		}
		if ipMatches("no address", expr) {
			t.Errorf("what is no address lies in %q", expr)
		}
	}
	for id, want := range map[string]bool{"u:h": true, ":h": true, "u:h::": true, "u": false, "u:": false, "u:h:x": false, "": false} {
		if got := digestID(id); got != want {
			t.Errorf("%q is user and hash: %v", id, got)
		}
	}
}

func TestListsOfACLs(t *testing.T) {
	one := &znode.ACL{Perms: 1, Scheme: "world", Id: "anyone"}
	auth := &znode.ACL{Perms: 3, Scheme: "auth"}
	many := func(n int) (list []*znode.ACL) {
		for i := range n {
			list = append(list, &znode.ACL{Perms: int32(i), Scheme: "world", Id: "anyone"})
		}
		return list
	}
	shown := func(n int) (ids []*znode.Identity) {
		for i := range n {
			ids = append(ids, &znode.Identity{Scheme: "digest", Id: fmt.Sprint("u", i, ":h")})
		}
		return ids
	}
	for name, tc := range map[string]struct {
		asked []*znode.ACL
		auth  []*znode.Identity
		want  int // entries; 0: none is taken
	}{
		"none": {nil, nil, 0}, "one": {many(1), nil, 1}, "the same twice": {[]*znode.ACL{one, one}, nil, 1}, "as many as may be": {many(znode.MaxACL), nil, znode.MaxACL}, "one more": {many(znode.MaxACL + 1), nil, 0},
		"what was shown": {[]*znode.ACL{one, auth}, shown(2), 3}, "nothing was shown": {[]*znode.ACL{one, auth}, nil, 0}, "only an address was": {[]*znode.ACL{auth}, []*znode.Identity{{Scheme: "ip", Id: "1.2.3.4"}}, 0},
		"as much as may be shown": {[]*znode.ACL{auth}, shown(znode.MaxACL), znode.MaxACL}, "more": {[]*znode.ACL{auth}, shown(znode.MaxACL + 1), 0},
		"a world of somebody": {[]*znode.ACL{{Scheme: "world", Id: "me"}}, nil, 0}, "no such scheme": {[]*znode.ACL{one, {Scheme: "x", Id: "anyone"}}, nil, 0}, "no digest": {[]*znode.ACL{{Scheme: "digest", Id: "u"}}, nil, 0},
		"an address": {[]*znode.ACL{{Scheme: "ip", Id: "1.2.3.4/8"}}, nil, 1}, "no address": {[]*znode.ACL{{Scheme: "ip", Id: "1.2.3"}}, nil, 0}, "an address as digest": {[]*znode.ACL{{Scheme: "digest", Id: "1.2.3.4"}}, nil, 0},
	} {
		list, ok := fix(tc.asked, tc.auth)
		if ok != (tc.want > 0) || ok && len(list) != tc.want {
			t.Errorf("%s: %d entries, %v, want %d", name, len(list), ok, tc.want)
		}
	}
	list := []ACL{{PermRead, "digest", "u:h"}, {PermWrite, "ip", "10.0.0.0/8"}}
	for _, tc := range []struct {
		perm  int32
		id    *znode.Identity
		allow bool
	}{
		{PermRead, &znode.Identity{Scheme: "digest", Id: "u:h"}, true}, {PermWrite, &znode.Identity{Scheme: "digest", Id: "u:h"}, false}, {PermRead, &znode.Identity{Scheme: "digest", Id: "v:h"}, false},
		{PermWrite, &znode.Identity{Scheme: "ip", Id: "10.1.2.3"}, true}, {PermRead, &znode.Identity{Scheme: "ip", Id: "10.1.2.3"}, false}, {PermWrite, &znode.Identity{Scheme: "ip", Id: "11.1.2.3"}, false},
		{PermRead, &znode.Identity{Scheme: "ip", Id: "u:h"}, false}, {PermAdmin, &znode.Identity{Scheme: "super"}, true}, {PermRead, nil, false},
	} {
		if got := Allowed(list, tc.perm, []*znode.Identity{tc.id}); got != tc.allow {
			t.Errorf("%v may do %d: %v", tc.id, tc.perm, got)
		}
	}
	if !Allowed(nil, PermAdmin, nil) || !Allowed([]ACL{{PermRead, "world", "anyone"}}, PermRead, nil) || Allowed([]ACL{{PermRead, "world", "anyone"}}, PermWrite, nil) || Allowed([]ACL{{PermRead, "world", "me"}}, PermRead, nil) {
		t.Error("what everybody may do")
	}
}

func TestContainersOfForeignAgents(t *testing.T) {
	for id, want := range map[string]bool{"znode-1:2": true, "znode-0:0": true, "1:2": false, "znode-1": false, "znode-a:2": false, "znode-1:b": false, "znode-": false, "": false} {
		node, shard, number, ok := foreignNode(id)
		if ok != want || ok && (ForeignContainer(node) != id || node != fmt.Sprintf("%d:%d", shard, number)) {
			t.Errorf("%q is a foreign agent's: %v; %q, %d, %d", id, ok, node, shard, number)
		}
	}
}

// Texts and numbers are as Python writes them.
func TestTextsAndNumbersOfPython(t *testing.T) {
	for s, want := range map[string]string{
		"": ``, " ": ` `, "~": `~`, "\x7f": `\u007f`, "\x1f": `\u001f`, "\x00": `\u0000`, `"`: `\"`, `\`: `\\`, `\\`: `\\\\`, `a"b`: `a\"b`, "\n\r\t\b\f": `\n\r\t\b\f`, "\v": `\u000b`,
		"é": `\u00e9`, "é ~": `\u00e9 ~`, "é\x7f": `\u00e9\u007f`, "é\x1f": `\u00e9\u001f`, "\uffff": `\uffff`, "\U00010000": `\ud800\udc00`, "\U0010ffff": `\udbff\udfff`, "\xff": `\ufffd`,
	} {
		if got := string(pyString(nil, s)); got != `"`+want+`"` {
			t.Errorf("%q is written as %s, want %q", s, got, want)
		}
	}
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", -1: "-1.0", 1.5: "1.5", 0.1: "0.1", 1e-4: "0.0001", 9.9e-5: "9.9e-05", -1e-4: "-0.0001", 1e15: "1000000000000000.0", 1e16: "1e+16", -1e16: "-1e+16",
		9999999999999998: "9999999999999998.0", 1 << 53: "9007199254740992.0", 1<<53 - 1: "9007199254740991.0", math.Inf(1): "Infinity", math.Inf(-1): "-Infinity", math.MaxFloat64: "1.7976931348623157e+308", 5e-324: "5e-324",
	} {
		if got := string(pyFloat(nil, v)); got != want {
			t.Errorf("%g is written as %s, want %s", v, got, want)
		}
	}
	if a, b := string(pyFloat(nil, math.Copysign(0, -1))), string(pyFloat(nil, math.NaN())); a != "-0.0" || b != "NaN" {
		t.Errorf("-0 is %s, no number %s", a, b)
	}
}

// Steps of paths are as ZooKeeper allows them, to the last letter.
func TestPathsAtTheirBounds(t *testing.T) {
	for r, want := range map[rune]bool{
		0: false, 0x1f: false, 0x20: true, '.': true, 0x7e: true, 0x7f: false, 0x9f: false, 0xa0: true, 0xd7ff: true, 0xe000: false, 0xf8ff: false, 0xf900: true, 0xffef: true, 0xfff0: false, 0xffff: false, 0x10000: false,
	} {
		if r == '.' { // alone it stands for a folder
			continue
		}
		for _, path := range []string{"/" + string(r), "/a/" + string(r) + "b", "/é/" + string(r)} {
			if got := validPath(path); got != want {
				t.Errorf("%q: %v", path, got)
			}
		}
	}
	for path, want := range map[string]bool{
		"/": true, "/a": true, "/a/b": true, "/...": true, "/.a": true, "/a.": true, "": false, "a": false, "//": false, "/a/": false, "/a//b": false, "/.": false, "/..": false, "/a/.": false, "/a/../b": false, "/./a": false, "/é/..": false, "/é/": false, "/\xff": false,
		"/" + strings.Repeat("a", znode.MaxPath-1): true, "/" + strings.Repeat("a", znode.MaxPath): false,
	} {
		if got := validPath(path); got != want {
			t.Errorf("%.20q of %d bytes: %v", path, len(path), got)
		}
	}
	for path, want := range map[string][2]string{"/a": {"/", "a"}, "/a/b": {"/a", "b"}, "/": {"/", ""}, "/a/": {"/a", ""}} {
		if up, name, ok := splitPath(path); !ok || up != want[0] || name != want[1] || parentPath(path) != want[0] {
			t.Errorf("%q is %q in %q, %v", path, name, up, ok)
		}
	}
	for _, path := range []string{"", "a", "/a\x00"} {
		if _, _, ok := splitPath(path); ok {
			t.Errorf("%q is taken apart", path)
		}
	}
	for s, want := range map[string]bool{"count=1,bytes=2": true, "count=-1,bytes=-2": true, "1,2": true, "count=1": false, "count=x,bytes=2": false, "count=1,bytes=": false, "": false} {
		if _, _, ok := parseStats(s); ok != want {
			t.Errorf("%q says how much there is: %v", s, ok)
		}
	}
}

// A node goes when more than its time has passed, and none that has children.
func TestWhenNodesAreOver(t *testing.T) {
	s := New()
	tr := s.tree
	tr.ms = 1000
	for name, owner := range map[string]int64{"ttl": ttlOwner | 50, "container": containerOwner, "plain": 0, "session": 7} {
		tr.create(root, "/"+name, name, nil, owner, openACL)
	}
	parent := tr.create(root, "/parent", "parent", nil, ttlOwner|1, openACL)
	tr.create(parent, "/parent/child", "child", nil, 0, openACL)
	used := tr.create(root, "/used", "used", nil, containerOwner, openACL)
	child := tr.create(used, "/used/child", "child", nil, 0, openACL)
	tr.remove(child, "/used/child")
	tr.commit()
	for ms, want := range map[int64][]string{0: {"/used"}, 1049: {"/used"}, 1050: {"/used"}, 1051: {"/ttl", "/used"}, math.MaxInt64: {"/ttl", "/used"}} {
		if got := s.Over(ms); !slices.Equal(got, want) {
			t.Errorf("at %d %v are over, want %v", ms, got, want)
		}
	}
	var want int64
	s.Walk(func(path string, st Stat) bool { want += int64(len(path)) + int64(st.DataLength); return true })
	if got := s.DataSize(); got != want {
		t.Errorf("paths and data have %d bytes, want %d", got, want)
	}
	n := 0
	if s.Walk(func(string, Stat) bool { n++; return n < 3 }); n != 3 {
		t.Errorf("a walk went on to %d nodes behind the third", n)
	}
}
