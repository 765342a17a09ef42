package tree_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

var anyone = []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}

func createOf(path string, mode znode.Mode, acl ...*znode.ACL) *znode.Op {
	if acl == nil {
		acl = anyone
	}
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Data: []byte("d"), Mode: mode, Acl: acl}}}
}

func ttlOf(path string, ms int64) *znode.Op {
	op := createOf(path, znode.Mode_PERSISTENT_WITH_TTL)
	op.GetCreate().TtlMs = ms
	return op
}

func deleteOf(path string, version int32) *znode.Op {
	return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: version}}}
}

func setOf(path string, version int32) *znode.Op {
	return &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: []byte("e"), Version: version}}}
}

func setACLOf(path string, version int32, acl ...*znode.ACL) *znode.Op {
	return &znode.Op{Op: &znode.Op_SetAcl{SetAcl: &znode.SetACL{Path: path, Version: version, Acl: acl}}}
}

func checkOf(path string, version int32) *znode.Op {
	return &znode.Op{Op: &znode.Op_Check{Check: &znode.Check{Path: path, Version: version}}}
}

func sweepOf(path string) *znode.Op {
	return &znode.Op{Op: &znode.Op_DeleteContainer{DeleteContainer: &znode.DeleteContainer{Path: path}}}
}

func acl(perms int32, scheme, id string) *znode.ACL {
	return &znode.ACL{Perms: perms, Scheme: scheme, Id: id}
}

// world is a tree with one node of each sort, session 1 open, at sequence 100.
func world(t *testing.T) view.State {
	t.Helper()
	s := view.New()
	s, _ = apply(s, events.Recorded{Seq: 50, Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{
		Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: 1, TimeoutMs: 1, PasswordHash: make([]byte, 32)}}}})
	s, did := apply(s, events.Recorded{Seq: 100, Time: time.UnixMilli(10_000), Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{
		Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: 1, Multi: true, Ops: []*znode.Op{
			createOf("/p", 0), createOf("/p/kid", 0), createOf("/e", znode.Mode_EPHEMERAL), createOf("/c", znode.Mode_CONTAINER),
			createOf("/c/kid", 0), deleteOf("/c/kid", -1), createOf("/fresh", znode.Mode_CONTAINER), ttlOf("/ttl", 100),
			createOf("/locked", 0, acl(1, "world", "anyone"), acl(30, "digest", "u:h")), createOf("/locked/kid", 0, acl(31, "digest", "u:h")),
			createOf("/net", 0, acl(31, "ip", "10.1.0.0/16")),
		}, Auth: []*znode.Identity{{Scheme: "digest", Id: "u:h"}}}}}})
	if did.Outcome.Code != 0 {
		t.Fatalf("%+v", did.Outcome)
	}
	return s
}

// Who asks: nobody, the owner of /locked, and a client in the network of /net.
var (
	nobody = []*znode.Identity{}
	owner  = []*znode.Identity{{Scheme: "ip", Id: "127.0.0.1"}, {Scheme: "digest", Id: "u:h"}}
	near   = []*znode.Identity{{Scheme: "ip", Id: "10.1.2.3"}}
)

// codeCase is one write to the world and its answer.
type codeCase struct {
	name    string
	op      *znode.Op
	session int64
	auth    []*znode.Identity
	code    wire.Code
	path    string
}

var codesOfCreate = []codeCase{
	{"create", createOf("/n", 0), 1, nobody, 0, "/n"},
	{"create there already", createOf("/p", 0), 1, nobody, -110, ""},
	{"create the root", createOf("/", 0), 1, nobody, -110, ""},
	{"create without its parent", createOf("/x/y", 0), 1, nobody, -101, ""},
	{"create below an ephemeral", createOf("/e/x", 0), 1, nobody, -108, ""},
	{"sequence", createOf("/p/s-", znode.Mode_PERSISTENT_SEQUENTIAL), 1, nobody, 0, "/p/s-0000000001"},
	{"sequence counts what was created", createOf("/c/", znode.Mode_EPHEMERAL_SEQUENTIAL), 1, nobody, 0, "/c/0000000001"},
	{"unknown mode", createOf("/n", 7), 1, nobody, -8, ""},
	{"no time to live", createOf("/n", znode.Mode_PERSISTENT_WITH_TTL), 1, nobody, -8, ""},
	{"longest time to live", ttlOf("/n", 1<<40-1), 1, nobody, 0, "/n"},
	{"longer", ttlOf("/n", 1<<40), 1, nobody, -8, ""},
	{"relative", createOf("n", 0), 1, nobody, -8, ""},
	{"empty path", createOf("", 0), 1, nobody, -8, ""},
	{"NUL", createOf("/n\x00", 0), 1, nobody, -8, ""},
	{"empty step", createOf("/p//n", 0), 1, nobody, -101, ""},
	{"slash behind", createOf("/p/", 0), 1, nobody, -8, ""},
	{"dot", createOf("/p/.", 0), 1, nobody, -8, ""},
	{"dots", createOf("/p/..", 0), 1, nobody, -8, ""},
	{"control character", createOf("/p/a\x1f", 0), 1, nobody, -8, ""},
	{"surrogates in UTF-16", createOf("/p/😀", 0), 1, nobody, -8, ""},
	{"private use", createOf("/p/\ue000", 0), 1, nobody, -8, ""},
	{"replacement character", createOf("/p/\ufffd", 0), 1, nobody, -8, ""},
	{"a control character beside other letters", createOf("/p/ä\x1f", 0), 1, nobody, -8, ""},
	{"delete beside other letters", createOf("/p/ä\x7f", 0), 1, nobody, -8, ""},
	{"the last of the second control characters", createOf("/p/\u009f", 0), 1, nobody, -8, ""},
	{"behind them", createOf("/p/\u00a0", 0), 1, nobody, 0, "/p/\u00a0"},
	{"the last of private use", createOf("/p/\uf8ff", 0), 1, nobody, -8, ""},
	{"behind private use", createOf("/p/\uf900", 0), 1, nobody, 0, "/p/\uf900"},
	{"in front of the surrogates", createOf("/p/\ud7ff", 0), 1, nobody, 0, "/p/\ud7ff"},
	{"in front of the specials", createOf("/p/\uffef", 0), 1, nobody, 0, "/p/\uffef"},
	{"the first of the specials", createOf("/p/\ufff0", 0), 1, nobody, -8, ""},
	{"other letters", createOf("/p/ä中", 0), 1, nobody, 0, "/p/ä中"},
	{"no ACL comes before no parent", createOf("/x/y", 0, &znode.ACL{}), 1, nobody, -114, ""},
	{"world is anyone only", createOf("/n", 0, acl(31, "world", "me")), 1, nobody, -114, ""},
	{"digest without a hash", createOf("/n", 0, acl(31, "digest", "u")), 1, nobody, -114, ""},
	{"ip of five parts", createOf("/n", 0, acl(31, "ip", "1.2.3.4.5")), 1, nobody, -114, ""},
	{"ip range too long", createOf("/n", 0, acl(31, "ip", "1.2.3.4/33")), 1, nobody, -114, ""},
	{"auth of nobody", createOf("/n", 0, acl(31, "auth", "")), 1, near, -114, ""},
	{"auth of somebody", createOf("/n", 0, acl(31, "auth", "")), 1, owner, 0, "/n"},
	{"unknown scheme", createOf("/n", 0, acl(31, "sasl", "u")), 1, nobody, -114, ""},
	{"create where one may not", createOf("/locked/x", 0), 1, nobody, -102, ""},
	{"create where one may", createOf("/locked/x", 0), 1, owner, 0, "/locked/x"},
	{"create of an expired session", createOf("/n", 0), 9, nobody, -112, ""},
	{"a bad path of an expired session", createOf("n", 0), 9, nobody, -112, ""},
	{"a bad mode of an expired session", createOf("n", 7), 9, nobody, -8, ""},
}

var codesOfOthers = []codeCase{
	{"delete", deleteOf("/p/kid", 0), 1, nobody, 0, ""},
	{"delete any version", deleteOf("/p/kid", -1), 1, nobody, 0, ""},
	{"delete another version", deleteOf("/p/kid", 1), 1, nobody, -103, ""},
	{"delete with children", deleteOf("/p", -1), 1, nobody, -111, ""},
	{"wrong version comes before children", deleteOf("/p", 1), 1, nobody, -103, ""},
	{"delete nothing", deleteOf("/x", -1), 1, nobody, -101, ""},
	{"delete the root", deleteOf("/", -1), 1, nobody, -8, ""},
	{"delete ZooKeeper's own", deleteOf("/zookeeper/quota", -1), 1, nobody, -8, ""},
	{"delete below a locked parent", deleteOf("/locked/kid", -1), 1, nobody, -102, ""},
	{"no right comes before no node", deleteOf("/locked/x", -1), 1, nobody, -102, ""},
	{"the child's ACL does not matter", deleteOf("/locked/kid", -1), 1, owner, 0, ""},
	{"delete of an expired session", deleteOf("/p/kid", -1), 9, nobody, -112, ""},
	{"set", setOf("/p", 0), 1, nobody, 0, ""},
	{"set the root", setOf("/", -1), 1, nobody, 0, ""},
	{"set another version", setOf("/p", 3), 1, nobody, -103, ""},
	{"set nothing", setOf("/x", -1), 1, nobody, -101, ""},
	{"set a bad path", setOf("/p/", -1), 1, nobody, -8, ""},
	{"set where one may not", setOf("/locked", -1), 1, nobody, -102, ""},
	{"set where one may", setOf("/locked", 0), 1, owner, 0, ""},
	{"set from the right address", setOf("/net", 0), 1, near, 0, ""},
	{"set from another address", setOf("/net", 0), 1, owner, -102, ""},
	{"set ZooKeeper's configuration", setOf("/zookeeper/config", -1), 1, owner, -102, ""},
	{"setACL", setACLOf("/p", 0, anyone...), 1, nobody, 0, ""},
	{"setACL another version", setACLOf("/p", 1, anyone...), 1, nobody, -103, ""},
	{"setACL to nothing", setACLOf("/x", 0), 1, nobody, -114, ""},
	{"setACL on nothing", setACLOf("/x", 0, anyone...), 1, nobody, -101, ""},
	{"setACL where one may not", setACLOf("/locked", -1, anyone...), 1, nobody, -102, ""},
	{"check", checkOf("/p", 0), 1, nobody, 0, ""},
	{"check another version", checkOf("/p", 1), 1, nobody, -103, ""},
	{"check nothing", checkOf("/x", -1), 1, nobody, -101, ""},
	{"check where one may not read", checkOf("/locked/kid", -1), 1, nobody, -102, ""},
	{"an empty container", sweepOf("/c"), 0, nobody, 0, ""},
	{"a container that never had children", sweepOf("/fresh"), 0, nobody, -103, ""},
	{"a container of nothing", sweepOf("/x"), 0, nobody, -101, ""},
	{"no container, with children", sweepOf("/p"), 0, nobody, -111, ""},
	{"no container", sweepOf("/p/kid"), 0, nobody, -103, ""},
	{"a time to live that has passed", sweepOf("/ttl"), 0, nobody, 0, ""},
	{"an ephemeral of nobody", createOf("/n", znode.Mode_EPHEMERAL), 0, nobody, -112, ""},
}

// Each code, and where several things are wrong the one that ZooKeeper tells first.
func TestCodes(t *testing.T) {
	for _, tc := range slices.Concat(codesOfCreate, codesOfOthers) {
		t.Run(tc.name, func(t *testing.T) {
			s := world(t)
			before := canonical(t, s)
			at := time.UnixMilli(10_101)
			r := events.Recorded{Seq: 101, Subject: events.Join("b", "znode", "tree"), Time: at, Event: &znode.Event{
				Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: tc.session, Ops: []*znode.Op{tc.op}, Auth: tc.auth}}}}
			s, did := apply(s, r)
			if did.Outcome == nil || did.Outcome.Code != tc.code || did.Outcome.Results[0].Path != tc.path {
				t.Fatalf("%+v, want code %d and path %q", did.Outcome, tc.code, tc.path)
			}
			if (len(did.Changes) == 0) != (tc.code != 0 || did.Outcome.Results[0].Op == tree.OpCheck || did.Outcome.Results[0].Op == tree.OpSetACL) {
				t.Errorf("changes %v", did.Changes)
			}
			if tc.code != 0 && len(canonical(t, s)) != len(before) {
				t.Error("a failed proposal changed the tree")
			}
		})
	}
	early, did := apply(world(t), events.Recorded{Seq: 101, Time: time.UnixMilli(10_100), Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{
		Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{sweepOf("/ttl")}}}}})
	if did.Outcome.Code != -103 {
		t.Errorf("at its last millisecond: %+v", did.Outcome)
	}
	if got := early.Over(10_101); cmp.Diff([]string{"/c", "/ttl"}, got) != "" {
		t.Errorf("over: %v", got)
	}
}

// All of a multi or nothing, its answers as ZooKeeper gives them, and its watches in the
// order of its operations.
func TestMulti(t *testing.T) {
	propose := func(ops ...*znode.Op) (view.State, view.Effects) {
		return apply(world(t), events.Recorded{Seq: 101, Time: time.UnixMilli(11_000), Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{
			Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: 1, Multi: true, Ops: ops}}}})
	}
	s, did := propose(createOf("/m", 0), createOf("/m/s-", znode.Mode_PERSISTENT_SEQUENTIAL), setOf("/m", 0), deleteOf("/m/s-0000000000", 0),
		createOf("/m/s-", znode.Mode_PERSISTENT_SEQUENTIAL), checkOf("/m", 1))
	var paths []string
	for _, r := range did.Outcome.Results {
		if r.Code != 0 {
			t.Fatalf("%+v", did.Outcome)
		}
		paths = append(paths, r.Path)
	}
	if diff := cmp.Diff([]string{"/m", "/m/s-0000000000", "", "", "/m/s-0000000001", ""}, paths); diff != "" {
		t.Error(diff)
	}
	st, _ := s.Stat("/m")
	if want := (wire.Stat{Czxid: 101, Mzxid: 101, Pzxid: 101, Ctime: 11_000, Mtime: 11_000, Version: 1, Cversion: 3, DataLength: 1, NumChildren: 1}); st != want {
		t.Errorf("%+v, want %+v", st, want)
	}
	var kinds []tree.ChangeKind
	for _, c := range did.Changes {
		kinds = append(kinds, c.Kind)
	}
	if diff := cmp.Diff([]tree.ChangeKind{1, 4, 1, 4, 3, 2, 4, 1, 4}, kinds); diff != "" {
		t.Error(diff)
	}

	s, did = propose(createOf("/m", 0), setOf("/p", 0), deleteOf("/p/kid", -1), setACLOf("/p", 0, anyone...), createOf("/p/kid", 0), createOf("/m/x/y", 0), deleteOf("/e", -1))
	want := []wire.Code{0, 0, 0, 0, 0, -101, -2}
	for i, r := range did.Outcome.Results {
		if r.Code != want[i] || r.Path != "" || r.Stat != (wire.Stat{}) {
			t.Errorf("operation %d: %+v, want code %d alone", i, r, want[i])
		}
	}
	if did.Outcome.Code != -101 || did.Changes != nil {
		t.Errorf("%+v", did)
	}
	fresh := world(t)
	for _, path := range []string{"/", "/p", "/p/kid"} {
		_, was, _ := fresh.Get(path)
		if _, is, _ := s.Get(path); is != was {
			t.Errorf("%s is %+v after a failed multi, was %+v", path, is, was)
		}
	}
	if _, did = propose(); did.Outcome.Code != 0 || len(did.Outcome.Results) != 0 {
		t.Errorf("an empty multi: %+v", did.Outcome)
	}
}

// The end of a session takes its ephemerals in one event; a service's child keeps what a
// client made ephemeral.
func TestSessionEnds(t *testing.T) {
	s := world(t)
	subject := events.Join("b", "znode", "tree")
	s, _ = apply(s, events.Recorded{Seq: 101, Subject: subject, Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{
		Session: 1, Multi: true, Ops: []*znode.Op{createOf("/p/e1", znode.Mode_EPHEMERAL), createOf("/b", znode.Mode_EPHEMERAL)}}}}})
	s, _ = apply(s, events.Recorded{Seq: 102, Subject: events.Join("b", "model", "m"), Event: &model.Event{Body: &model.Event_LoadAccepted{
		LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 1, Version: 1}}}}})
	end := &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: 1, Reason: znode.Expired}}}
	s, did := apply(s, events.Recorded{Seq: 103, Subject: subject, Event: end})
	var deleted []string
	for _, c := range did.Changes {
		if c.Kind == tree.Deleted {
			deleted = append(deleted, c.Path)
		}
	}
	if diff := cmp.Diff([]string{"/e", "/p/e1"}, deleted); diff != "" || did.Closed != 1 || did.Outcome.Code != 0 {
		t.Errorf("%s%+v", diff, did)
	}
	if st, ok := s.Stat("/b"); !ok || st.EphemeralOwner != 0 {
		t.Errorf("/b is %+v, %v: a service's node is below it", st, ok)
	}
	if _, did = apply(s, events.Recorded{Seq: 104, Subject: subject, Event: end}); did.Outcome.Code != -112 || did.Closed != 0 {
		t.Errorf("ended twice: %+v", did)
	}
}

// apply folds one event, and says what it did.
func apply(s view.State, r events.Recorded) (view.State, view.Effects) {
	s = view.Fold(s, r)
	return s, s.Effects()
}
