package view_test

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

var anyone = []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}

func proposed(seq uint64, p *znode.Proposed) events.Recorded {
	return events.Recorded{
		Seq: seq, Subject: events.Join("b", "znode", "tree"), Time: time.UnixMilli(1_700_000_000_000 + int64(seq)),
		Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: p}},
	}
}

func createOf(path string, mode znode.Mode) *znode.Op {
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Data: []byte("d"), Mode: mode, Acl: anyone}}}
}

func deleteOf(path string, version int32) *znode.Op {
	return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: version}}}
}

func setOf(path string, version int32) *znode.Op {
	return &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: []byte("e"), Version: version}}}
}

func canonical(t *testing.T, s view.State) []byte {
	t.Helper()
	b, err := follow.Canonical(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
