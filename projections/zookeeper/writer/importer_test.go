package writer

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// What a foreign client writes to a service's path is asked of the service; anything else is
// a fact, and so is an access list. What cannot be taken over is refused, and says so.
func TestImport(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	calls := portalOn(t, b)
	s := newTestWriter(t, b)
	s.leads(t)
	written := func(path, data string, owner int64) *znode.Imported {
		return &znode.Imported{Path: path, Kind: znode.Imported_WRITTEN, Data: []byte(data), Owner: owner, Czxid: 5, Mzxid: 5}
	}
	later := written("/free", "2", 0)
	later.Mzxid = 6
	for _, tc := range []struct {
		name    string
		in      *znode.Imported
		refused bool
		asked   string
	}{
		{"a node", written("/free", "1", 0), false, ""},
		{"the same again, later", later, false, ""},
		{"a parent", written("/test/portal", "", 0), false, ""},
		{"a service's", written("/test/portal/m1", loadMeta, 0), false, `{"modelDir":"/d","modelName":"m1","numShard":-1}`},
		{"a service's that is there", written("/test/portal/m1", `{"model_dir":"/refuse"}`, 0), true, `{"modelDir":"/refuse","modelName":"m1"}`},
		{"a service's of a session", written("/test/portal/m2", loadMeta, 9), true, ""},
		{"its access list", &znode.Imported{Path: "/test/portal/m1", Kind: znode.Imported_ACL_SET, Acl: []*znode.ACL{{Perms: 1, Scheme: "world", Id: "anyone"}}, Aversion: 1}, false, ""},
		{"its end", &znode.Imported{Path: "/test/portal/m1", Kind: znode.Imported_DELETED}, false, `{"modelName":"m1","reason":"the node was deleted through ZooKeeper"}`},
		{"more than the log takes", written("/large", string(make([]byte, 600<<10)), 0), true, ""},
		{"what is no fact", &znode.Imported{Path: "/odd"}, true, ""},
	} {
		errs := s.Importer().Import(t.Context(), []*znode.Imported{tc.in})
		if len(errs) != 1 || (errs[0] != nil) != tc.refused || tc.refused && !errors.Is(errs[0], ensemble.ErrRefused) {
			t.Errorf("%s: %v", tc.name, errs)
		}
		asked := ""
		if len(calls) > 0 {
			asked = regexp.MustCompile(`"expectSeq":\d+,|,"expectSeq":\d+`).ReplaceAllString(<-calls, "")
		}
		if asked != tc.asked {
			t.Errorf("%s: the portal was asked %s, want %s", tc.name, asked, tc.asked)
		}
	}
	s.tree.Read(func(st view.State) {
		if data, _, _ := st.Get("/free"); string(data) != "2" {
			t.Errorf("/free holds %q", data)
		}
	})

	// One answer for each, in their places; of what nobody waits for nothing is known.
	errs := s.Importer().Import(t.Context(), []*znode.Imported{written("/a", "", 0), written("/test/portal/m2", "", 9), written("/b", "", 0)})
	if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], ensemble.ErrRefused) || errs[2] != nil {
		t.Errorf("three at once: %v", errs)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	s.stop()
	if errs := s.Importer().Import(gone, []*znode.Imported{written("/late", "", 0)}); len(errs) != 1 || errs[0] == nil || errors.Is(errs[0], ensemble.ErrRefused) {
		t.Errorf("of a registry that has stopped: %v", errs)
	}
}
