package view

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// told folds one more event.
func told(s State, bzid, context, aggregate string, e proto.Message) State {
	return Fold(s, events.Recorded{Seq: s.Seq + 1, Subject: events.Join(bzid, context, aggregate), Time: time.UnixMilli(1), Event: e})
}

func asks(s State, ops ...*znode.Op) State {
	return told(s, "b", "znode", "tree", &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: ops}}})
}

func creates(path string) *znode.Op {
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Data: []byte("c"), Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
}

func deletes(path string) *znode.Op {
	return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: -1}}}
}

func loaded(dir string) *model.Event {
	return &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: "m", ModelDir: dir}}}}
}

func unloaded() *model.Event {
	return &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{}}}
}

func reported(c *container.Container) *container.Event {
	return &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}}
}

func available(r *replica.Replica) *replica.Event {
	r.Stat = replica.State_AVAILABLE
	return &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}
}

// Names of which ZooKeeper takes no path, or whose path would name a past state, are
// counted and make no node, whichever of a fact's names it is.
func TestNamesThatMakeNoPath(t *testing.T) {
	planned := &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{Assignments: []*publish.Assignment{{Container: "c"}}}}}
	declared := &layout.Event{Body: &layout.Event_SavedModelsDeclared{SavedModelsDeclared: &layout.SavedModelsDeclared{SavedModels: []*layout.SavedModel{{SubGraph: "ps_0"}}}}}
	added := &layout.Event{Body: &layout.Event_EntriesAdded{EntriesAdded: &layout.EntriesAdded{Entries: []string{"m:ps_0"}}}}
	serving, training := &container.Container{Id: "c", Kind: "serving"}, &container.Container{Id: "c", Kind: "training", Job: "j", ServerType: "ps"}
	odd := &container.Container{Id: "c", Kind: "training", Job: "..", ServerType: "ps"}
	psm := &container.Container{Id: "c", Kind: "serving", Psm: "\x01"}
	at := &replica.Replica{ModelName: "m", ServerType: "ps", Container: "c"}
	for _, tc := range []struct {
		bzid, context, aggregate string
		e                        proto.Message
		skipped                  uint64
	}{
		{"b", "model", "m", loaded("/d"), 0}, {"b", "model", "..", loaded("/d"), 1}, {"..", "model", "m", loaded("/d"), 1}, {"@5", "model", "m", loaded("/d"), 1}, {"b", "model", "@5", loaded("/d"), 0},
		{"b", "publish", "m", planned, 0}, {"b", "publish", "a/b", planned, 1}, {"b", "publish", "..", planned, 1}, {"..", "publish", "m", planned, 1}, {"@5", "publish", "m", planned, 1},
		{"b", "replica", "m/ps:0/0", available(at), 0}, {"b", "replica", "m/lf/ps:0/0", available(at), 0}, {"b", "replica", "ps:0/0", available(at), 1}, {"b", "replica", "m/n/lf/ps:0/0", available(at), 1},
		{"b", "replica", "m/../0", available(at), 1}, {"@5", "replica", "m/ps:0/0", available(at), 1}, {"@5", "replica", "m/lf/ps:0/0", available(at), 1}, {"@5", "replica", "m/0", available(at), 1},
		{"b", "container", "c", reported(serving), 0}, {"@5", "container", "c", reported(serving), 1}, {"..", "container", "c", reported(serving), 1}, {"b", "container", "c", reported(psm), 1},
		{"b", "container", "c", reported(training), 0}, {"@5", "container", "c", reported(training), 0}, {"b", "container", "c", reported(odd), 1},
		{"b", "layout", layout.ModelAggregate("m"), declared, 0}, {"b", "layout", layout.ModelAggregate(".."), declared, 1}, {"@5", "layout", layout.ModelAggregate("m"), declared, 1}, {"b", "layout", "m", declared, 1},
		{"b", "layout", layout.LayoutAggregate("a/b"), added, 0}, {"b", "layout", layout.LayoutAggregate("a/../b"), added, 1}, {"@5", "layout", layout.LayoutAggregate("a"), added, 1},
	} {
		s := told(New(), tc.bzid, tc.context, tc.aggregate, tc.e)
		if s.Skipped[unnamable] != tc.skipped || len(s.Skipped) > int(tc.skipped) {
			t.Errorf("%s of %q in %q: skipped %v, want %d", tc.context, tc.aggregate, tc.bzid, s.Skipped, tc.skipped)
		}
		if made := s.Count() > New().Count(); made != (tc.skipped == 0) {
			t.Errorf("%s of %q in %q makes nodes: %v %v", tc.context, tc.aggregate, tc.bzid, made, s.Children("/"))
		}
	}
}

// A fact makes a node as large as nodes can be, its path counted, and none that is larger.
func TestTheLargestNodeOfAFact(t *testing.T) {
	const path = "/b/portal/m"
	s := told(New(), "b", "model", "m", loaded("/"))
	data, _, _ := s.Get(path)
	fill := tree.MaxBlob - len(path) - len(data)
	for more, want := range map[int]uint64{-1: 0, 0: 0, 1: 1} {
		s := told(New(), "b", "model", "m", loaded("/"+strings.Repeat("x", fill+more)))
		data, _, there := s.Get(path)
		if s.Skipped[oversize] != want || there != (want == 0) || there && len(path)+len(data) != tree.MaxBlob+more {
			t.Errorf("%d bytes beyond the bound: %d bytes are there, skipped %v", more, len(data), s.Skipped)
		}
	}
}

// What a fact takes away is its own node: a node that clients put something below stays, and
// so does one that they put in its place.
func TestWhatClientsPutStays(t *testing.T) {
	s := told(New(), "b", "model", "m", unloaded()) // which nobody loaded
	if s.Count() != New().Count() {
		t.Fatalf("%d nodes", s.Count())
	}
	s = told(s, "b", "model", "m", loaded("/d"))
	s = asks(s, creates("/b/portal/m/x"))
	if s = told(s, "b", "model", "m", unloaded()); s.Effects().Changes != nil {
		t.Errorf("unloaded under a client's node, it changes %v", s.Effects().Changes)
	}
	s = asks(s, deletes("/b/portal/m/x"))
	s = told(s, "b", "model", "m", unloaded())
	if _, ok := s.Stat("/b/portal/m"); ok {
		t.Error("unloaded, it stays")
	}

	// A client's node with something below it is taken as it is, and stays the client's.
	const binding, service = "/b/binding/m/ps_0:unknown;None;None:c", "/b/container_service/unknown;None;None:c"
	s = asks(s, creates("/b/binding"), creates("/b/binding/m"), creates(binding), creates(binding+"/x"), creates("/b/container_service"), creates(service), creates(service+"/x"))
	s = told(s, "b", "container", "c", reported(&container.Container{Id: "c", Kind: "serving"}))
	s = told(s, "b", "replica", "m/ps:0/0", available(&replica.Replica{ModelName: "m", ServerType: "ps", Container: "c"}))
	s = asks(s, deletes(binding+"/x"), deletes(service+"/x"))
	s = told(s, "b", "container", "c", &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{}}})
	for _, path := range []string{binding, service} {
		if st, ok := s.Stat(path); !ok || st.EphemeralOwner != 0 {
			t.Errorf("%s went with a container whose it is not: %+v", path, st)
		}
	}
}

// A namespace's tree has its own events; those of others, and what is none of ours, only
// move it on.
func TestATreeOfOneNamespace(t *testing.T) {
	for bzid, want := range map[string]string{"": "a b", "a": "a", "b": "b", "c": ""} {
		s := New()
		for i, r := range []events.Recorded{
			{Subject: events.Join("a", "model", "m"), Event: loaded("/d")},
			{Subject: "elsewhere"},
			{Subject: events.Join("b", "model", "m"), Event: loaded("/d")},
			{Subject: events.Join("b", "model", "m").Request(), Event: loaded("/e")},
		} {
			r.Seq = uint64(i + 1)
			if s = FoldIn(bzid, s, r); s.Seq != r.Seq {
				t.Errorf("%q: at %d behind event %d", bzid, s.Seq, r.Seq)
			}
		}
		var got []string
		for _, name := range s.Children("/") {
			if name != "zookeeper" {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want || s.Skipped["subject"] != 1 || len(s.Skipped) != 1 {
			t.Errorf("%q: namespaces %v, skipped %v, want %s", bzid, got, s.Skipped, want)
		}
	}
}

// An event that ends a session names it; one that finds none ends none.
func TestSessionsThatEnd(t *testing.T) {
	const id = 0x0100000000000001
	closed := &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: id}}}
	s := told(New(), "b", "znode", "tree", closed)
	if e := s.Effects(); e.Closed != 0 || e.Outcome.Code != wire.SessionExpired {
		t.Errorf("a session that nobody opened: %+v", e)
	}
	s = told(s, "b", "znode", "tree", &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: id}}})
	s = told(s, "b", "znode", "tree", closed)
	if e := s.Effects(); e.Closed != id || e.Outcome.Code != wire.OK {
		t.Errorf("an open one: %+v", e)
	}
}

// A snapshot from which a part is missing is refused, whichever it is.
func TestSnapshotsThatLackAPart(t *testing.T) {
	for missing, ok := range map[string]bool{"": true, "imports": true, "skipped": true, "containers": false, "replicas": false, "sessions": false} {
		s := told(New(), "b", "model", "m", loaded("/d"))
		frozen, release := s.nodes.Freeze()
		head, err := json.Marshal(snapshotHead{Seq: s.Seq, Nodes: frozen.Head().Nodes, Containers: s.Containers, Replicas: s.Replicas, Sessions: map[int64]tree.Session{}, ACLs: frozen.Head().ACLs})
		if err != nil {
			t.Fatal(err)
		}
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(head, &parts); err != nil {
			t.Fatal(err)
		}
		if missing != "" {
			parts[missing] = json.RawMessage("null")
		}
		if head, err = json.Marshal(parts); err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := frozen.Encode(&file, head); err != nil {
			t.Fatal(err)
		}
		release()
		if back, err := Decode(&file); (err == nil) != ok || ok && back.Seq != s.Seq {
			t.Errorf("without %q: %v", missing, err)
		}
	}
}

// What is kept for the next proposal is bounded, and as long as it is within its bound it is
// kept, emptied.
func TestProposalsLeaveABoundedRoom(t *testing.T) {
	for room, kept := range map[int]bool{1: true, maxAsked: true, maxAsked + 1: false} {
		for what, grow := range map[string]func(a *asked, n int) func() int{
			"operations": func(a *asked, n int) func() int {
				a.Ops = make([]tree.Op, 1, n)
				return func() int { return cap(a.Ops) }
			},
			"identities": func(a *asked, n int) func() int {
				a.Auth = make([]tree.Identity, 1, n)
				return func() int { return cap(a.Auth) }
			},
			"lists": func(a *asked, n int) func() int {
				a.acl = make([]wire.ACL, 1, n)
				return func() int { return cap(a.acl) }
			},
		} {
			m := newCache()
			left := grow(&m.asked, room)
			m.ended()
			if got := left(); (got == room) != kept || !kept && got != 0 || len(m.asked.Ops)+len(m.asked.Auth)+len(m.asked.acl) != 0 {
				t.Errorf("%s: room for %d of %d is kept", what, got, room)
			}
		}
	}
}
