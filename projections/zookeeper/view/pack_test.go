package view

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A pack is its events one after the other at one zxid: each is decided by itself, and
// the state is at that sequence once the last one is in.
func TestPack(t *testing.T) {
	create := func(path string) *znode.Event {
		return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{{Op: &znode.Op_Create{Create: &znode.Create{
			Path: path, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}}}}}
	}
	record := func(seq uint64, e *znode.Event) events.Recorded {
		return events.Recorded{Seq: seq, Subject: "monolith.b.znode.tree", Time: time.UnixMilli(1_700_000_000_000), Event: e}
	}
	pack := record(7, &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: []*znode.Event{create("/a"), create("/a"), create("/a/b")}}}})
	whole := Fold(New(), pack)
	s := New()
	var codes []wire.Code
	for part := range Parts(pack) {
		if part.More && s.Seq != 0 {
			t.Errorf("part %d finds the state at %d", part.Part, s.Seq)
		}
		s = Fold(s, part)
		codes = append(codes, s.Effects().Outcome.Code)
	}
	if len(codes) != 3 || codes[0] != wire.OK || codes[1] != wire.NodeExists || codes[2] != wire.OK {
		t.Errorf("codes %v", codes)
	}
	for name, s := range map[string]State{"whole": whole, "by parts": s, "again": Fold(whole, pack)} {
		a, _ := s.Stat("/a")
		b, ok := s.Stat("/a/b")
		if s.Seq != 7 || !ok || a.Czxid != 7 || b.Czxid != 7 || a.Cversion != 1 || a.NumChildren != 1 {
			t.Errorf("%s: at %d, %+v, %+v", name, s.Seq, a, b)
		}
	}
}
