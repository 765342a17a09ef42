package server

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func TestStockClientWrites(t *testing.T) {
	h, _ := writable(t, Config{})
	c := h.stock(net.DialTimeout)
	open := zk.WorldACL(zk.PermAll)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path, err := c.Create("/a", []byte("1"), 0, open)
	must(err)
	if path != "/a" {
		t.Fatalf("created %q", path)
	}
	if _, err := c.Create("/a", nil, 0, open); !errors.Is(err, zk.ErrNodeExists) {
		t.Errorf("again: %v", err)
	}
	if _, err := c.Create("/none/a", nil, 0, open); !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("without a parent: %v", err)
	}
	seq, err := c.Create("/a/s-", nil, zk.FlagSequence|zk.FlagEphemeral, open)
	must(err)
	if seq != "/a/s-0000000000" {
		t.Errorf("sequence %q", seq)
	}
	if _, err := c.Create(seq+"/x", nil, 0, open); !errors.Is(err, zk.ErrNoChildrenForEphemerals) {
		t.Errorf("below an ephemeral: %v", err)
	}
	st, err := c.Set("/a", []byte("22"), 0)
	must(err)
	if st.Version != 1 || st.DataLength != 2 || st.NumChildren != 1 {
		t.Errorf("set: %+v", st)
	}
	if _, err := c.Set("/a", nil, 0); !errors.Is(err, zk.ErrBadVersion) {
		t.Errorf("set of an old version: %v", err)
	}
	if err := c.Delete("/a", -1); !errors.Is(err, zk.ErrNotEmpty) {
		t.Errorf("delete of a parent: %v", err)
	}
	must(c.Delete(seq, 0))
	res, err := c.Multi(&zk.CreateRequest{Path: "/a/m", Acl: open}, &zk.SetDataRequest{Path: "/a/m", Data: []byte("x"), Version: -1}, &zk.CheckVersionRequest{Path: "/a", Version: 1})
	must(err)
	if len(res) != 3 || res[0].String != "/a/m" || res[1].Stat.Version != 1 {
		t.Errorf("multi: %+v", res)
	}
	res, err = c.Multi(&zk.DeleteRequest{Path: "/a/m", Version: -1}, &zk.CheckVersionRequest{Path: "/a", Version: 7}, &zk.DeleteRequest{Path: "/a", Version: -1})
	if !errors.Is(err, zk.ErrBadVersion) || len(res) != 3 || res[0].Error != nil || !errors.Is(res[1].Error, zk.ErrBadVersion) || res[2].Error == nil {
		t.Errorf("failed multi: %v, %+v", err, res)
	}
	if _, _, err := c.Get("/a/m"); err != nil {
		t.Errorf("the failed multi deleted: %v", err)
	}
	must(c.AddAuth("digest", []byte("u:p")))
	_, err = c.Create("/secret", bytes.Repeat([]byte("s"), 10), 0, zk.DigestACL(zk.PermAll, "u", "p"))
	must(err)
	other := h.stock(net.DialTimeout)
	if _, _, err := other.Get("/secret"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("a stranger reads: %v", err)
	}
	if _, err := other.Create("/@1/x", nil, 0, open); err == nil || !strings.Contains(err.Error(), "-119") {
		t.Errorf("writing the past: %v", err)
	}
	if names, _, err := other.Children("/"); err != nil || !slices.Equal(names, []string{"a", "secret", "zookeeper"}) {
		t.Errorf("children %v, %v", names, err)
	}
	if _, err := c.CreateContainer("/box", nil, zk.FlagTTL, open); err != nil {
		t.Logf("container: %v", err)
	}
}

// The size of a multi is its limit, not the number of its parts.
func TestMultiOfManyOperations(t *testing.T) {
	h, _ := writable(t, Config{})
	a := h.connect(wire.ConnectRequest{})
	a.ask(1, wire.OpCreate, creating("/a", 0))
	a.code(1, wire.OK)
	const n = 20_000
	a.ask(2, wire.OpMulti, func(w *wire.Writer) {
		for range n {
			(&wire.MultiHeader{Op: wire.OpCheck}).Encode(w)
			(&wire.PathVersion{Path: "/a", Version: 0}).Encode(w)
		}
		wire.MultiEnd().Encode(w)
	})
	head, r := a.reply(2)
	parts := 0
	for r.Len() > 0 {
		var m wire.MultiHeader
		if m.Decode(r); m.Done {
			break
		}
		if m.Op != wire.OpCheck || r.Err() != nil {
			t.Fatalf("part %d: %+v %v", parts, m, r.Err())
		}
		parts++
	}
	if head.Err != wire.OK || parts != n {
		t.Errorf("%+v with %d parts", head, parts)
	}
}

// What a multiRead asks for is bounded by the bytes of its answer.
func TestMultiReadIsBoundedByItsAnswer(t *testing.T) {
	h, _ := writable(t, Config{MaxQueuedBytes: 1 << 20})
	a := h.connect(wire.ConnectRequest{})
	a.ask(1, wire.OpCreate, func(w *wire.Writer) {
		(&wire.CreateRequest{Path: "/a", Data: make([]byte, 400<<10), ACL: open31}).Encode(w, false)
	})
	a.code(1, wire.OK)
	for xid, tc := range []struct {
		parts int
		want  wire.Code
	}{{2, wire.OK}, {10_000, wire.ThrottledOp}, {2, wire.OK}} {
		a.ask(int32(10+xid), wire.OpMultiRead, func(w *wire.Writer) {
			for range tc.parts {
				(&wire.MultiHeader{Op: wire.OpGetData}).Encode(w)
				on("/a", false)(w)
			}
			wire.MultiEnd().Encode(w)
		})
		if h, r := a.reply(int32(10 + xid)); h.Err != tc.want || (tc.want != wire.OK && r.Len() != 0) {
			t.Errorf("%d parts: %+v, %d bytes", tc.parts, h, r.Len())
		}
	}
}
