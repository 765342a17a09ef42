package tree

import (
	"strconv"
	"testing"
)

// Every size up to the greatest has a class of its own or shares one with sizes that are an
// eighth smaller at most; a blob of a class holds what is asked for.
func TestClasses(t *testing.T) {
	before, have := uint32(0), uint32(0)
	for n := uint32(1); n <= pieceUnits; n++ {
		c, units := class(n)
		switch {
		case c >= classes || units < n || units > n+n/8 || units > pieceUnits:
			t.Fatalf("%d units: class %d of %d units", n, c, units)
		case n > 1 && (c < before || c > before+1 || (c == before) != (units == have)):
			t.Fatalf("%d units: class %d of %d units behind class %d of %d", n, c, units, before, have)
		}
		before, have = c, units
	}
}

// Two nodes whose hashes are the same are two nodes: of one name below two parents, too.
func TestHashesThatAreTheSame(t *testing.T) {
	tr := New()
	type key struct {
		shard any
		hash  uint32
	}
	seen := map[key]uint32{}
	for i := range 2_000_000 {
		name := strconv.Itoa(i) // or they would all stand in one row of the index
		id := tr.create(root, "/"+name, name, nil, 0, openACL)
		shard, hash := tr.index.hash(id, "x")
		at := key{shard, hash}
		other, found := seen[at]
		if seen[at] = id; !found {
			continue
		}
		first := tr.create(other, "/n/x", "x", nil, 0, openACL)
		if got := tr.child(id, "x"); got != 0 {
			t.Errorf("node %d has child %d, which is the one of node %d", id, got, other)
		}
		second := tr.create(id, "/n/x", "x", nil, 0, openACL)
		if a, b := tr.child(other, "x"), tr.child(id, "x"); a != first || b != second || a == b {
			t.Errorf("children %d and %d, want %d and %d", a, b, first, second)
		}
		if a, b := tr.siblings(other, "x"), tr.siblings(id, "x"); a != 1 || b != 1 {
			t.Errorf("%d and %d children of one name", a, b)
		}
		return
	}
	t.Fatal("no two hashes are the same")
}

// What is found under a hash is a child of that name and that parent, or it is none.
func TestAPlaceOfAnothersHash(t *testing.T) {
	tr := New()
	a := tr.create(root, "/a", "a", nil, 0, openACL)
	ab := tr.create(root, "/ab", "ab", nil, 0, openACL)
	for _, tc := range []struct {
		parent uint32
		name   string
		there  uint32 // what lies under the hash of it
	}{{root, "b", a}, {root, "abc", ab}, {a, "a", a}, {ab, "ab", ab}, {root, "abb", a}} {
		s, h := tr.index.hash(tc.parent, tc.name)
		if len(s.slots) == 0 {
			s.grow(8)
		}
		s.n++
		s.put(slot{h, tc.there})
		if id := tr.child(tc.parent, tc.name); id != 0 {
			t.Errorf("%q below node %d is node %d, which is %s", tc.name, tc.parent, id, tr.path(id))
		}
	}
	if tr.child(root, "a") != a || tr.child(root, "ab") != ab {
		t.Error("nodes are lost")
	}
}
