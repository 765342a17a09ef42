package tree

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A node goes when more than its time has passed, and none that has children.
func TestWhenNodesAreOver(t *testing.T) {
	tr := New()
	s := tr.Reader()
	tr.ms = 1000
	for name, owner := range map[string]int64{"ttl": ttlOwner | 50, "container": containerOwner, "plain": 0, "session": 7} {
		tr.create(root, "/"+name, name, nil, owner, openACL)
	}
	parent := tr.create(root, "/parent", "parent", nil, ttlOwner|1, openACL)
	tr.create(parent, "/parent/child", "child", nil, 0, openACL)
	used := tr.create(root, "/used", "used", nil, containerOwner, openACL)
	child := tr.create(used, "/used/child", "child", nil, 0, openACL)
	tr.Remove(child, "/used/child")
	tr.Commit()
	for ms, want := range map[int64][]string{0: {"/used"}, 1049: {"/used"}, 1050: {"/used"}, 1051: {"/ttl", "/used"}, math.MaxInt64: {"/ttl", "/used"}} {
		if got := s.Over(ms); !slices.Equal(got, want) {
			t.Errorf("at %d %v are over, want %v", ms, got, want)
		}
	}
	var want int64
	s.Walk(func(path string, st wire.Stat) bool { want += int64(len(path)) + int64(st.DataLength); return true })
	if got := s.DataSize(); got != want {
		t.Errorf("paths and data have %d bytes, want %d", got, want)
	}
	n := 0
	if s.Walk(func(string, wire.Stat) bool { n++; return n < 3 }); n != 3 {
		t.Errorf("a walk went on to %d nodes behind the third", n)
	}
}
