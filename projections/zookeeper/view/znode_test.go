package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func load(name, dir string) proto.Message {
	return &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: dir, NumShard: 1, Version: 1}}}}
}

func registered(r *replica.Replica) proto.Message {
	return &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}
}

func state(st replica.State) proto.Message {
	return &replica.Event{Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: st}}}
}

func TestChanges(t *testing.T) {
	open := []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}
	ps0 := &replica.Replica{ModelName: "m", ServerType: "ps", Container: "a", GrpcAddress: "h:1"}
	lost := &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "r"}}}
	s := view.New()
	for i, tc := range []struct {
		name    string
		subject events.Subject
		event   proto.Message
		want    []tree.Change
	}{
		{"parents first", events.Join("b", "model", "m"), load("m", "/1"), []tree.Change{
			{Kind: tree.Created, Path: "/b", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/", ACL: open},
			{Kind: tree.Created, Path: "/b/portal", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b", ACL: open},
			{Kind: tree.Created, Path: "/b/portal/m", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/portal", ACL: open},
		}},
		{"same bytes", events.Join("b", "model", "m"), load("m", "/1"), nil},
		{"other bytes", events.Join("b", "model", "m"), load("m", "/2"), []tree.Change{{Kind: tree.DataChanged, Path: "/b/portal/m", ACL: open}}},
		{"replica", events.Join("b", "replica", "m/ps:0/0"), registered(ps0), []tree.Change{
			{Kind: tree.Created, Path: "/b/service", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b", ACL: open},
			{Kind: tree.Created, Path: "/b/service/m", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/service", ACL: open},
			{Kind: tree.Created, Path: "/b/service/m/ps:0", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/service/m", ACL: open},
			{Kind: tree.Created, Path: "/b/service/m/ps:0/0", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/service/m/ps:0", ACL: open},
		}},
		{"state", events.Join("b", "replica", "m/ps:0/0"), state(replica.State_AVAILABLE), []tree.Change{{Kind: tree.DataChanged, Path: "/b/service/m/ps:0/0", ACL: open}}},
		{"request", events.Join("b", "replica", "m/ps:0/0").Request(), lost, nil},
		{"on another container", events.Join("b", "replica", "m/ps:0/0"), registered(&replica.Replica{ModelName: "m", ServerType: "ps", Container: "z", GrpcAddress: "h:1", Stat: replica.State_AVAILABLE}), []tree.Change{
			{Kind: tree.Deleted, Path: "/b/service/m/ps:0/0", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/service/m/ps:0", ACL: open},
			{Kind: tree.Created, Path: "/b/service/m/ps:0/0", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/service/m/ps:0", ACL: open},
		}},
		{"lost", events.Join("b", "replica", "m/ps:0/0"), lost, []tree.Change{
			{Kind: tree.Deleted, Path: "/b/service/m/ps:0/0", ACL: open}, {Kind: tree.ChildrenChanged, Path: "/b/service/m/ps:0", ACL: open},
		}},
		{"state of nobody", events.Join("b", "replica", "m/ps:0/0"), state(replica.State_END), nil},
	} {
		r := events.Recorded{Seq: uint64(i + 1), Subject: tc.subject, Time: time.UnixMilli(int64(i)), Event: tc.event}
		var got view.Effects
		s, got = apply(s, r)
		if diff := cmp.Diff(tc.want, got.Changes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if s, got = apply(s, r); got.Changes != nil {
			t.Errorf("%s, delivered again: %v", tc.name, got)
		}
	}
	if _, st, _ := s.Get("/b/service/m/ps:0"); st.Cversion != 4 || st.NumChildren != 0 || st.Pzxid != 8 || st.Mzxid != 4 {
		t.Errorf("stat of the parent: %+v, want cversion 4 (2 creations, 2 deletions), pzxid 8, mzxid 4", st)
	}
}

// What a real ZooKeeper 3.8 reports for an untouched tree.
func TestEmptyTree(t *testing.T) {
	s := view.New()
	for path, want := range map[string]wire.Stat{
		"/":                 {Cversion: -1, NumChildren: 1},
		"/zookeeper":        {Cversion: -2, NumChildren: 2},
		"/zookeeper/quota":  {},
		"/zookeeper/config": {Aversion: -1},
	} {
		if _, got, ok := s.Get(path); !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", path, got, ok, want)
		}
	}
}

// Names from outside never make a path that a client could not have made, and never
// one that hides the live tree behind a past one.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"movie", "", ".", "..", "a/b", "@5", "a:b:c", "\x00", "\u0085", "\uffff", "\xff", "é", "zookeeper"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, bzid, name string) {
		s := view.New()
		for i, r := range []events.Recorded{
			{Subject: events.Join(bzid, "model", name), Event: load(name, "/d")},
			{Subject: events.Join(bzid, "replica", name), Event: registered(&replica.Replica{})},
			{Subject: events.Join(bzid, "container", name), Event: &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: &container.Container{Kind: "training", Job: name, ServerType: name}}}}},
			{Subject: events.Join(bzid, "container", name), Event: &container.Event{Body: &container.Event_Lost{}}},
		} {
			r.Seq = uint64(i + 1)
			s = view.Fold(s, r)
		}
		s.Walk(func(path string, _ wire.Stat) bool {
			if path == "/" {
				return true
			}
			if path[0] != '/' || path[1] == '@' || path[len(path)-1] == '/' {
				t.Errorf("path %q", path)
			}
			for i := 1; i < len(path); i++ {
				if path[i] == '/' {
					if _, _, ok := s.Get(path[:i]); !ok || path[i-1] == '/' {
						t.Errorf("path %q without its parent %q", path, path[:i])
					}
				}
			}
			return true
		})
	})
}

// Below a node are its children and what is below them.
func TestDescendants(t *testing.T) {
	s := view.New()
	for i, path := range []string{"/a", "/a/b", "/a/b/c", "/a/b/d", "/a/e", "/f", "/ab"} {
		s, _ = apply(s, proposed(uint64(i+1), &znode.Proposed{Ops: []*znode.Op{{Op: &znode.Op_Create{Create: &znode.Create{Path: path}}}}}))
	}
	for _, top := range []string{"/", "/a", "/a/b", "/a/b/c", "/a/e", "/f", "/ab", "/zookeeper", "/none", ""} {
		want := 0
		s.Walk(func(path string, _ wire.Stat) bool {
			if top != "" && path != top && strings.HasPrefix(path, strings.TrimSuffix(top, "/")+"/") {
				want++
			}
			return true
		})
		if got := s.Descendants(top); got != want {
			t.Errorf("%d nodes lie below %q, want %d", got, top, want)
		}
	}
}

// apply folds one event, and says what it did.
func apply(s view.State, r events.Recorded) (view.State, view.Effects) {
	s = view.Fold(s, r)
	return s, s.Effects()
}
