package view_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A fact from before the rules that bound it is skipped and counted where it would make a
// node larger than nodes can be; what stood there stays, and what comes behind is folded.
func TestFactsThatMakeTooLargeNodesAreSkipped(t *testing.T) {
	long := strings.Repeat("é", 200_000) // of which JSON in ASCII makes 1.2 MB
	reported := func(address string) *container.Event {
		return &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: &container.Container{Id: "c", Kind: "serving", AgentAddress: address}}}}
	}
	load := func(replicas string) *model.Event {
		return &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: "m", ModelDir: "/m", SpecReplicas: []string{replicas}}}}}
	}
	s := view.New()
	for _, e := range []events.Recorded{
		{Subject: events.Join("b", "container", "c"), Event: reported("h:1")},
		{Subject: events.Join("b", "container", "c"), Event: &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: 1}}}},
		{Subject: events.Join("b", "model", "m"), Event: load("0")},
		{Subject: events.Join("b", "container", "c"), Event: reported(long)},
		{Subject: events.Join("b", "model", "m"), Event: load(long)},
		{Subject: events.Join("b", "model", "n"), Event: load(strings.Repeat("\x01", 170_000))}, // of which it makes 1 MB
	} {
		e.Seq = s.Seq + 1
		s = view.Fold(s, e)
	}
	if diff := cmp.Diff(map[string]uint64{"size": 3}, map[string]uint64(s.Skipped)); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"/b/resource/0:0": `"address": "h:1"`, "/b/portal/m": `"spec_replicas": ["0"]`} {
		if data, _, ok := s.Get(path); !ok || !strings.Contains(string(data), want) {
			t.Errorf("%s: %s", path, data)
		}
	}
	s = view.Fold(s, events.Recorded{Seq: s.Seq + 1, Subject: events.Join("b", "model", "m"), Event: load("1")})
	if data, _, _ := s.Get("/b/portal/m"); !strings.Contains(string(data), `["1"]`) {
		t.Errorf("what came behind was not folded: %s", data)
	}
	var file bytes.Buffer
	if err := view.Encode(s)(&file); err != nil {
		t.Fatal(err)
	}
	back, err := view.Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := follow.Canonical(s)
	if got, err := follow.Canonical(back); err != nil || !bytes.Equal(got, want) {
		t.Errorf("restored to another state: %v", err)
	}
}

// What a client asks for beyond the bounds is answered as ZooKeeper answers what cannot
// be, and costs no time that grows with its square.
func TestClientsBounds(t *testing.T) {
	acl := make([]*znode.ACL, 30)
	for i := range acl {
		acl[i] = &znode.ACL{Perms: int32(i) + 1, Scheme: "auth"}
	}
	crowd := make([]*znode.Identity, 100)
	for i := range crowd {
		crowd[i] = &znode.Identity{Scheme: "digest", Id: "u:p"}
	}
	world := []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}
	for name, tc := range map[string]struct {
		path string
		acl  []*znode.ACL
		auth []*znode.Identity
		want wire.Code
	}{
		"a long path":             {path: "/" + strings.Repeat("a", znode.MaxPath-1), acl: world},
		"a longer path":           {path: "/" + strings.Repeat("a", znode.MaxPath), acl: world, want: wire.BadArguments},
		"a list of identities":    {path: "/a", acl: acl[:10], auth: crowd},
		"a longer one":            {path: "/a", acl: acl, auth: crowd, want: wire.InvalidACL},
		"more entries than allow": {path: "/a", acl: entries(znode.MaxACL + 1), want: wire.InvalidACL},
	} {
		op := &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: tc.path, Acl: tc.acl}}}
		_, did := apply(view.New(), proposed(1, &znode.Proposed{Ops: []*znode.Op{op}, Auth: tc.auth}))
		if did.Outcome.Code != tc.want {
			t.Errorf("%s: code %d, want %d", name, did.Outcome.Code, tc.want)
		}
	}
}

func entries(n int) (list []*znode.ACL) {
	for i := range n {
		list = append(list, &znode.ACL{Perms: int32(i), Scheme: "world", Id: "anyone"})
	}
	return list
}
