package view

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
)

// What the fold has worked out is forgotten before it takes more than its bound, whichever of
// its maps grows.
func TestMemoIsBounded(t *testing.T) {
	for name, grow := range map[string]func(m *memo, i int){
		"subjects": func(m *memo, i int) { m.subject(events.Join("b", "znode", fmt.Sprint(i))) },
		"hosts":    func(m *memo, i int) { m.host("b", fmt.Sprint(i), &container.Container{}) },
		"seats":    func(m *memo, i int) { m.seat("b", fmt.Sprint(i), ReplicaMeta{}) },
	} {
		m := newMemo()
		most := 0
		for i := range maxMemo + 10 {
			grow(&m, i)
			most = max(most, len(m.subjects)+len(m.hosts)+len(m.seats))
		}
		if left := len(m.subjects) + len(m.hosts) + len(m.seats); most != maxMemo || left != 10 {
			t.Errorf("%s: up to %d are kept, and %d at the end, want %d and 10", name, most, left, maxMemo)
		}
	}
}

// A place leads to the node that it was found for as long as that stands, and not to what
// took its memory.
func TestAPlaceIsOfOneNode(t *testing.T) {
	tr := New().tree
	make := func(path string) uint32 {
		tr.zxid++
		id := tr.create(root, path, path[1:], nil, 0, openACL)
		tr.commit()
		return id
	}
	a := make("/a")
	var at place
	for range 2 { // found, and found again
		if got := tr.look("/a", &at); got != a || at != (place{a, tr.zxid}) {
			t.Fatalf("/a is node %d at %v, want %d", got, at, a)
		}
	}
	tr.zxid++
	kept := at
	tr.remove(a, "/a")
	if got := tr.look("/a", &at); got != 0 || at != (place{}) {
		t.Errorf("/a is removed and found as node %d", got)
	}
	tr.commit()
	if b := make("/b"); b != a {
		t.Fatalf("node %d came in the place of %d: nothing is tested", b, a)
	}
	if at = kept; tr.look("/a", &at) != 0 || at != (place{}) {
		t.Error("/a is found where /b stands")
	}
	if again := make("/a"); tr.look("/a", &kept) != again {
		t.Error("/a is not found where it stands now")
	}
}
