package rows

import (
	"testing"
)

func TestPick(t *testing.T) {
	r := newRoutes(nil, nil)
	a, b, c := &endpoint{addr: "a"}, &endpoint{addr: "b"}, &endpoint{addr: "c"}
	key, want := shardKey{"m", 1}, exportID{3, "job"}
	r.byShard.Store(&map[shardKey]*choice{key: {all: []*endpoint{a, b, c}}})
	if r.pick(shardKey{"m", 2}, want, nil) != nil {
		t.Error("a replica of a shard that has none")
	}
	seen := map[*endpoint]int{}
	for range 30 {
		seen[r.pick(key, want, nil)]++
	}
	if seen[a] != 10 || seen[b] != 10 || seen[c] != 10 {
		t.Errorf("equals took turns %d, %d, %d times", seen[a], seen[b], seen[c])
	}
	a.outstanding.Store(2)
	b.outstanding.Store(1)
	if got := r.pick(key, want, []*endpoint{c}); got != b {
		t.Errorf("least outstanding: %s", got.addr)
	}
	b.failed()
	if got := r.pick(key, want, []*endpoint{c}); got != a {
		t.Errorf("one that failed goes before a busy one: %s", got.addr)
	}
	if got := r.pick(key, want, []*endpoint{c, a}); got != b {
		t.Error("one that failed is not asked even as the last")
	}
	if got := r.pick(key, want, []*endpoint{c, a, b}); got != nil {
		t.Errorf("all tried: %s", got.addr)
	}
	c.lacks(want)
	if got := r.pick(key, want, []*endpoint{b}); got != a {
		t.Errorf("one that lacks the version goes before a busy one: %s", got.addr)
	}
	if got := r.pick(key, exportID{3, "another"}, []*endpoint{b}); got != c {
		t.Errorf("of another version nothing is known: %s", got.addr)
	}
}
