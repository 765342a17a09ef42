package view_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func importedAt(seq uint64, m *znode.Imported) events.Recorded {
	return events.Recorded{Seq: seq, Time: time.UnixMilli(int64(seq)), Subject: "monolith.b.znode.tree",
		Event: &znode.Event{Body: &znode.Event_Imported{Imported: m}}}
}

func wrote(path, data string, owner, czxid, mzxid int64) *znode.Imported {
	return &znode.Imported{Path: path, Kind: znode.Imported_WRITTEN, Data: []byte(data), Owner: owner, Czxid: czxid, Mzxid: mzxid}
}

func gone(path string) *znode.Imported {
	return &znode.Imported{Path: path, Kind: znode.Imported_DELETED}
}

// Sessions of the ensemble and of ours; one over there has the number of ours.
const importAgent, importClient = 0x0200000000000001, 0x0100000000000001

// listed gives an import an access list.
func listed(m *znode.Imported, scheme, id string) *znode.Imported {
	m.Acl = []*znode.ACL{{Perms: 1, Scheme: scheme, Id: id}}
	return m
}

// imports in their order, what each answers, and the node behind it.
var imports = []struct {
	name    string
	m       *znode.Imported
	code    wire.Code
	data    string // "": no node
	owner   int64
	version int32
	last    bool
}{
	{"made, with its parents", wrote("/x/y", "1", importAgent, 10, 10), 0, "1", importAgent, 0, true},
	{"seen before", wrote("/x/y", "other", importAgent, 10, 10), 0, "1", importAgent, 0, true},
	{"written", wrote("/x/y", "2", importAgent, 10, 11), 0, "2", importAgent, 1, true},
	{"the same bytes", wrote("/x/y", "2", importAgent, 10, 12), 0, "2", importAgent, 1, true},
	{"another session's", wrote("/x/y", "2", importAgent+1, 13, 13), 0, "2", importAgent + 1, 0, true},
	{"a parent that has children", gone("/x"), wire.NotEmpty, "", 0, 0, false},
	{"made at another zxid, by an ensemble that lost its data", wrote("/x/y", "2b", importAgent+1, 12, 13), 0, "2b", importAgent + 1, 1, true},
	{"written at another zxid", wrote("/x/y", "2c", importAgent+1, 12, 12), 0, "2c", importAgent + 1, 2, true},
	{"of a session that has the number of one of ours", wrote("/x/y", "2d", importClient, 20, 20), 0, "2d", importClient, 0, true},
	{"written by it", wrote("/x/y", "2e", importClient, 20, 21), 0, "2e", importClient, 1, true},
	{"over a client's", wrote("/persistent", "p", 0, 20, 20), 0, "p", 0, 1, true},
	{"gone", gone("/x/y"), 0, "", 0, 0, false},
	{"gone twice", gone("/x/y"), 0, "", 0, 0, false},
	{"made again by an older zxid, of an ensemble that lost its data", wrote("/x/y", "3", 0, 2, 2), 0, "3", 0, 0, true},
	{"a service's", wrote("/b/service/m/ps:0/0", "v", 0, 20, 20), wire.NoAuth, "", 0, 0, false},
	{"a service's, gone", gone("/b/service/m/ps:0/0"), wire.NoAuth, "", 0, 0, false},
	{"a client's", wrote("/e", "v", importAgent, 20, 20), wire.NoAuth, "", 0, 0, false},
	{"its access list comes along", listed(wrote("/secret", "s", 0, 20, 20), "digest", "u:hash"), 0, "s", 0, 0, true},
	{"a list that is none", listed(wrote("/nonsense", "s", 0, 20, 20), "nobody", "x"), wire.InvalidACL, "", 0, 0, false},
	{"the past", wrote("/@5/x", "v", 0, 20, 20), wire.BadArguments, "", 0, 0, false},
	{"an empty path", wrote("", "v", 0, 20, 20), wire.BadArguments, "", 0, 0, false},
	{"a relative path", wrote("x/y", "v", 0, 20, 20), wire.BadArguments, "", 0, 0, false},
	{"no list, which is everybody's", wrote("/open", "o", 0, 20, 20), 0, "o", 0, 0, true},
	{"no path", wrote("x", "v", 0, 20, 20), wire.BadArguments, "", 0, 0, false},
	{"ZooKeeper's own", gone("/zookeeper"), wire.BadArguments, "", 0, 0, false},
}

// beforeImports has a service's node, a client's ephemeral and a client's persistent one.
func beforeImports() view.State {
	s := view.New()
	ours := registered(&replica.Replica{ModelName: "m", ServerType: "ps", Container: "c"})
	s = view.Fold(s, events.Recorded{Seq: 2, Time: time.UnixMilli(2), Subject: events.Join("b", "replica", "m/ps:0/0"), Event: ours})
	s = view.Fold(s, events.Recorded{Seq: 3, Time: time.UnixMilli(3), Subject: "monolith.b.znode.tree", Event: &znode.Event{
		Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: importClient, TimeoutMs: 1000, PasswordHash: make([]byte, 32)}}}})
	s = view.Fold(s, proposed(4, &znode.Proposed{Session: importClient, Ops: []*znode.Op{createOf("/e", znode.Mode_EPHEMERAL)}}))
	s = view.Fold(s, proposed(5, &znode.Proposed{Ops: []*znode.Op{createOf("/persistent", znode.Mode_PERSISTENT)}}))
	return s
}

func TestImported(t *testing.T) {
	s := beforeImports()
	for i, tc := range imports {
		t.Run(tc.name, func(t *testing.T) {
			var did view.Effects
			if s, did = apply(s, importedAt(uint64(10+i), tc.m)); did.Outcome == nil || did.Outcome.Code != tc.code {
				t.Fatalf("%+v, want code %d", did.Outcome, tc.code)
			}
			if tc.code != 0 {
				if len(did.Changes) > 0 {
					t.Errorf("refused, it changed %v", did.Changes)
				}
				return
			}
			data, st, ok := s.Get(tc.m.GetPath())
			_, last, external := s.Imported(tc.m.GetPath())
			if ok != (tc.data != "") || string(data) != tc.data || ok && (st.EphemeralOwner != tc.owner || st.Version != tc.version) || last != tc.last || external != ok {
				t.Errorf("%q %+v, from the ensemble %v, last %v", data, st, external, last)
			}
			restored(t, s)
		})
	}
	if got, _, _ := s.ACL("/secret"); len(got) != 1 || got[0].Scheme != "digest" {
		t.Errorf("the secret's list is %v", got)
	}
	if got, _, _ := s.ACL("/open"); len(got) != 1 || got[0].Scheme != "world" || got[0].Perms != 31 {
		t.Errorf("the list of a node that came without one is %v", got)
	}
	s = view.Fold(s, proposed(100, &znode.Proposed{Ops: []*znode.Op{setOf("/x/y", -1)}}))
	if _, last, ok := s.Imported("/x/y"); last || !ok {
		t.Errorf("written here, it counts as imported last: %v, %v", last, ok)
	}
	s = view.Fold(s, proposed(101, &znode.Proposed{Ops: []*znode.Op{deleteOf("/x/y", -1)}}))
	s = view.Fold(s, proposed(102, &znode.Proposed{Ops: []*znode.Op{createOf("/x/y", 0)}}))
	if i, _, ok := s.Imported("/x/y"); ok {
		t.Errorf("made here, it counts as one from the ensemble: %+v", i)
	}
	restored(t, s)
}

// What is written here behind an import is not imported last, at the same zxid too.
func TestImportedAndWrittenInOnePack(t *testing.T) {
	in := func(es ...*znode.Event) events.Recorded {
		return events.Recorded{Seq: 1, Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: es}}}}
	}
	imports := &znode.Event{Body: &znode.Event_Imported{Imported: wrote("/x", "1", 0, 10, 10)}}
	write := &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{setOf("/x", -1)}}}}
	for last, pack := range map[bool]events.Recorded{true: in(imports, imports), false: in(imports, write)} {
		if _, got, ok := view.Fold(view.New(), pack).Imported("/x"); got != last || !ok {
			t.Errorf("imported last: %v, %v, want %v", got, ok, last)
		}
	}
}

// An access list comes with its version, of a node that is made and of one that is there;
// whoever is known there only is kept as he stands.
func TestImportedACL(t *testing.T) {
	const client = 0x0100000000000001
	s := view.Fold(view.New(), events.Recorded{Seq: 2, Time: time.UnixMilli(2), Subject: "monolith.b.znode.tree", Event: &znode.Event{
		Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: client, TimeoutMs: 1000, PasswordHash: make([]byte, 32)}}}})
	s = view.Fold(s, proposed(3, &znode.Proposed{Session: client, Ops: []*znode.Op{createOf("/e", znode.Mode_EPHEMERAL)}}))
	list := func(scheme, id string) []*znode.ACL { return []*znode.ACL{{Perms: 31, Scheme: scheme, Id: id}} }
	made := wrote("/x", "1", 0, 10, 10)
	made.Acl, made.Aversion = list("digest", "u:hash"), 3
	again := wrote("/x", "2", 0, 20, 20)
	again.Acl, again.Aversion = list("world", "anyone"), 0
	set := func(path string, acl []*znode.ACL, version int32) *znode.Imported {
		return &znode.Imported{Path: path, Kind: znode.Imported_ACL_SET, Acl: acl, Aversion: version}
	}
	for i, tc := range []struct {
		name    string
		m       *znode.Imported
		code    wire.Code
		scheme  string
		version int32
	}{
		{"made", made, 0, "digest", 3},
		{"set", set("/x", list("x509", "CN=agent"), 7), 0, "x509", 7},
		{"written: the list stays", wrote("/x", "1b", 0, 10, 11), 0, "x509", 7},
		{"made again there", again, 0, "world", 0},
		{"sasl", set("/x", list("sasl", "agent"), 1), 0, "sasl", 1},
		{"the same list", set("/x", list("sasl", "agent"), 2), 0, "sasl", 2},
		{"no list", set("/x", nil, 3), wire.InvalidACL, "sasl", 2},
		{"no scheme of theirs", set("/x", list("auth", ""), 3), wire.InvalidACL, "sasl", 2},
		{"a client's ephemeral", set("/e", list("world", "anyone"), 3), wire.NoAuth, "world", 0},
		{"of nothing", set("/y", list("world", "anyone"), 3), wire.NoNode, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var did view.Effects
			if s, did = apply(s, importedAt(uint64(10+i), tc.m)); did.Outcome == nil || did.Outcome.Code != tc.code {
				t.Fatalf("%+v, want code %d", did.Outcome, tc.code)
			}
			if acl, st, ok := s.ACL(tc.m.GetPath()); ok && (acl[0].Scheme != tc.scheme || st.Aversion != tc.version) {
				t.Errorf("%v, version %d", acl, st.Aversion)
			}
			restored(t, s)
		})
	}
}

// restored says that both forms of a snapshot hold all of the state.
func restored(t *testing.T, s view.State) {
	t.Helper()
	var b bytes.Buffer
	if err := view.Encode(s)(&b); err != nil {
		t.Fatal(err)
	}
	back, err := view.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(canonical(t, s)), string(canonical(t, back))); diff != "" {
		t.Fatal(diff)
	}
	var parsed view.State
	if err := parsed.UnmarshalJSON(canonical(t, s)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(canonical(t, s)), string(canonical(t, parsed))); diff != "" {
		t.Fatal(diff)
	}
}
