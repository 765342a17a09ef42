package ensemble

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// A mark lists its own zxids as runs, so that a busy mirror's mark stays small; what lies up
// to where both sides have been looked at is not listed.
func TestOwnZxids(t *testing.T) {
	m := cursor{Zxid: 10}
	for _, zxid := range []int64{9, 10, 11, 12, 12, 13, 15, 20, 21} {
		m.own(zxid)
	}
	if want := [][2]int64{{11, 13}, {15, 15}, {20, 21}}; !reflect.DeepEqual(m.Own, want) {
		t.Fatalf("%v, want %v", m.Own, want)
	}
	for zxid, want := range map[int64]bool{10: false, 11: true, 12: true, 13: true, 14: false, 15: true, 16: false, 19: false, 20: true, 21: true, 22: false} {
		if m.isOwn(zxid) != want {
			t.Errorf("%d is its own: %v", zxid, !want)
		}
	}
	for _, tc := range []struct {
		to   int64
		want [][2]int64
	}{{12, [][2]int64{{11, 13}, {15, 15}, {20, 21}}}, {13, [][2]int64{{15, 15}, {20, 21}}}, {20, [][2]int64{{20, 21}}}, {21, [][2]int64{}}} {
		if m.advance(tc.to); m.Zxid != tc.to || !reflect.DeepEqual(m.Own, tc.want) {
			t.Errorf("at %d: %v, want %v", tc.to, m.Own, tc.want)
		}
	}
}

// The edges of who has written what: a node as old as the mark has been there, an agent's
// node that was dealt with is left to the agent, and digests alone can be hidden.
func TestDecideAtTheEdges(t *testing.T) {
	imported := importedOurs("a", 9, agentSession, 200, true)
	handled := importedOurs("a", 9, agentSession, 80, true)
	for _, tc := range []decision{
		{"held, made just at the mark, gone there", &localNode{held: true, created: 10, written: 10}, nil, marked(10, 100), create, true},
		{"held, made behind the mark", &localNode{held: true, created: 11, written: 11}, nil, marked(10, 100), create, false},
		{"held, by a mirror that knows nothing", heldOurs("a", 0), nil, marked(0, 0), create, false},
		{"made just at the mark, gone there", &localNode{created: 10, written: 10}, nil, marked(10, 100), importDelete, false},
		{"an agent's, of another session, imported already", imported, theirs("a", 200, 7), marked(10, 100), agree, false},
		{"an agent's, of another session, dealt with", handled, theirs("b", 200, 7), told(), agree, false},
		{"an agent's, of another session, no bridge", handled, theirs("b", 200, 7), alone(), agree, false},
		{"an agent's, of another session, older than the mark", handled, theirs("b", 90, 7), marked(10, 100), importWrite, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.o.data == nil {
				tc.o.data = []byte("a")
			}
			if v, drift := decide("/p", tc.o, tc.t, &tc.p); v != tc.want || drift != tc.drift {
				t.Errorf("%v, drift %v; want %v, %v", v, drift, tc.want, tc.drift)
			}
		})
	}
	for id, want := range map[wire.ACL]bool{{Scheme: "digest", ID: "u:x"}: true, {Scheme: "digest", ID: "u:hash="}: false, {Scheme: "x509", ID: "CN=a:x"}: false} {
		if masked([]wire.ACL{id}) != want {
			t.Errorf("%v is hidden: %v", id, !want)
		}
	}
	if v, drift := decideACL("/p", &localNode{acl: everybody(1), aversion: 2}, &remoteNode{acl: everybody(31), aversion: 2}, &syncState{}); v != setACL || drift {
		t.Errorf("a list of the same count that differs: %v, drift %v", v, drift)
	}
}

func idle(t *testing.T, cfg Config) *Mirror {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	m, err := New(cfg, follow.New(b.Log(), registry.Znode, follow.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What is touched is compared once, in order; beside the roots nothing is. Past a bound
// everything is compared instead of remembering each path.
func TestWhatIsTouched(t *testing.T) {
	m := idle(t, Config{BZID: "demo"})
	for _, path := range []string{"/demo/b", "/demo", "/demo/a", "/demo/b", "/demon", "/dem", "/other/demo", "/monolith/x"} {
		m.touch(path)
	}
	if paths, all := m.take(); all || !slices.Equal(paths, []string{"/demo", "/demo/a", "/demo/b", "/monolith/x"}) {
		t.Errorf("%v, all %v", paths, all)
	}
	for i := range maxDirty {
		m.touch(fmt.Sprint("/demo/", i))
	}
	if m.all || len(m.dirty) != maxDirty {
		t.Errorf("%d paths are remembered, all %v", len(m.dirty), m.all)
	}
	m.touch("/demo/one-more")
	if paths, all := m.take(); !all || len(paths) != 0 {
		t.Errorf("%d paths, all %v", len(paths), all)
	}
	if paths, all := m.take(); all || len(paths) != 0 {
		t.Errorf("again: %v, all %v", paths, all)
	}
}

// A node that cannot be kept the same is named with the newest reason, until it agrees; a
// status lists the first of many, and no more are remembered than paths are.
func TestWhatIsStuck(t *testing.T) {
	m := idle(t, Config{BZID: "demo"})
	for i := range shownStuck + 5 {
		m.stick(fmt.Sprintf("/demo/%02d", i), "set", errors.New("first"))
	}
	m.stick("/demo/00", "set", zk.ErrNoAuth)
	s := m.Status()
	if s.Stuck != shownStuck+5 || len(s.StuckAt) != shownStuck || s.StuckAt[0] != (Failure{"/demo/00", "set: " + zk.ErrNoAuth.Error()}) || s.StuckAt[1] != (Failure{"/demo/01", "set: first"}) {
		t.Errorf("%+v", s)
	}
	m.loosen([]string{"/demo/00", "/demo/none"})
	if s := m.Status(); s.Stuck != shownStuck+4 || s.StuckAt[0].Path != "/demo/01" {
		t.Errorf("%+v", s)
	}
	for i := range maxDirty + 10 {
		m.stick(fmt.Sprint("/demo/many/", i), "set", errors.New("first"))
	}
	if m.stick("/demo/01", "set", errors.New("second")); len(m.stuck) != maxDirty || m.stuck["/demo/01"].why != "set: second" {
		t.Errorf("%d are remembered, %+v", len(m.stuck), m.stuck["/demo/01"])
	}
}

// Zero fields take their defaults, others stay.
func TestDefaults(t *testing.T) {
	c := Config{BZID: "demo"}.withDefaults()
	if !slices.Equal(c.Roots, []string{"/demo", "/monolith"}) || c.Session != 20*time.Second || c.Resync != 5*time.Minute || c.Poll != 10*time.Second || c.Dial == nil {
		t.Errorf("%+v", c)
	}
	c = Config{Roots: []string{"/r"}, Session: 1, Resync: 2, Poll: 3}.withDefaults()
	if !slices.Equal(c.Roots, []string{"/r"}) || c.Session != 1 || c.Resync != 2 || c.Poll != 3 {
		t.Errorf("%+v", c)
	}
}
