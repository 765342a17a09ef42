package view

import (
	"encoding/json"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// An event whose fold ends in its middle leaves the tree as it was, is counted, and is
// answered as one that did not happen.
func TestFailedTakesTheTreeBack(t *testing.T) {
	s := New()
	id := s.nodes.Create(s.nodes.Find("/"), "/a", "a", []byte("a"), 0, nil)
	s.nodes.Commit()
	before, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	s.nodes.Create(s.nodes.Find("/"), "/b", "b", nil, 7, nil)
	s.nodes.Set(id, "/a", []byte("changed"))
	s.nodes.Remove(id, "/a")
	op := func() *znode.Op { return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: "/a"}}} }
	r := events.Recorded{Seq: 5, Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Multi: true, Ops: []*znode.Op{op(), op()}}}}}
	s = Failed(s, r)
	o := s.Effects().Outcome
	if s.Seq != 5 || s.Skipped["panicked"] != 1 || o == nil || o.Code == wire.OK || len(o.Results) != 2 || len(s.Effects().Changes) > 0 {
		t.Errorf("seq %d, skipped %v, effects %+v", s.Seq, s.Skipped, s.Effects())
	}
	s.Seq, s.Skipped = 0, nil
	if after, err := json.Marshal(s); err != nil || string(after) != string(before) {
		t.Errorf("the tree is\n%s\nand was\n%s\n%v", after, before, err)
	}
}
