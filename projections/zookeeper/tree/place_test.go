package tree

import "testing"

// A place leads to the node that it was found for as long as that stands, and not to what
// took its memory.
func TestAPlaceIsOfOneNode(t *testing.T) {
	tr := New()
	make := func(path string) uint32 {
		tr.zxid++
		id := tr.create(root, path, path[1:], nil, 0, openACL)
		tr.Commit()
		return id
	}
	a := make("/a")
	var at Place
	for range 2 { // found, and found again
		if got := tr.Look("/a", &at); got != a || at != (Place{a, tr.zxid}) {
			t.Fatalf("/a is node %d at %v, want %d", got, at, a)
		}
	}
	tr.zxid++
	kept := at
	tr.Remove(a, "/a")
	if got := tr.Look("/a", &at); got != 0 || at != (Place{}) {
		t.Errorf("/a is removed and found as node %d", got)
	}
	tr.Commit()
	if b := make("/b"); b != a {
		t.Fatalf("node %d came in the place of %d: nothing is tested", b, a)
	}
	if at = kept; tr.Look("/a", &at) != 0 || at != (Place{}) {
		t.Error("/a is found where /b stands")
	}
	if again := make("/a"); tr.Look("/a", &kept) != again {
		t.Error("/a is not found where it stands now")
	}
}
