package ensemble_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
)

// What stands on either side when a mirror begins stands on both then, and so does what is
// written afterwards: data, kinds and access lists. What lies beside the roots stays where it is.
func TestBothSidesBecomeTheSame(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/ours/deep/er", "1", 0)
	put(t, us, "/test/ours/held", "mine", zk.FlagEphemeral)
	put(t, us, "/testing/beside", "ours", 0)
	setACL(t, us, "/test/ours/deep", zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermDelete|zk.PermAdmin))
	setACL(t, us, "/test/ours/deep", zk.WorldACL(zk.PermAll&^zk.PermWrite))
	put(t, them, chroot+"/test/theirs/deep/er", "2", 0)
	put(t, them, chroot+"/test/theirs/held", "agent's", zk.FlagEphemeral)
	put(t, them, chroot+"/testing/beside", "theirs", 0)
	if _, err := them.Create(chroot+"/test/theirs/guarded", []byte("3"), 0, zk.WorldACL(zk.PermRead|zk.PermAdmin)); err != nil {
		t.Fatal(err)
	}
	m := mirrors(t, here, there, nil)
	both := same(t, "the beginning", us, them)
	for _, want := range []string{`/test/ours/deep/er 1 bytes "1"`, `held 4 bytes "mine" ephemeral=true`, `held 7 bytes "agent's" ephemeral=true`,
		`/test/theirs/deep/er 1 bytes "2"`, "guarded 1 bytes \"3\" ephemeral=false list 0 [{17 world anyone}]", "/test/ours/deep 0 bytes \"\" ephemeral=false list 2"} {
		if !strings.Contains(both, want) {
			t.Errorf("%s is missing in\n%s", want, both)
		}
	}
	imported := len(here.imports(t))
	st := m.shows(t, "rest", func(s ensemble.Status) bool { return s.Seq == here.last(t) && s.Lag == 0 && s.Held == 1 })
	if st.Nodes < 10 || st.Imports != imported || st.Drifts != 0 || st.LastDrift != nil || st.Stuck != 0 || st.Refused != 0 || !st.Bridge || st.Session == "" {
		t.Errorf("%d imports; %+v", imported, st)
	}
	for name, want := range map[string]float64{"mirror_connected": 1, "mirror_lag_events": 0, "mirror_held": 1, "mirror_nodes": float64(st.Nodes), "mirror_stuck_nodes": 0,
		"bridge_imports_total": float64(imported), "mirror_last_drift_timestamp_seconds": 0, "mirror_drift_total": 0} {
		if got := m.gauge(t, "monolith_zk_"+name, ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if at := m.gauge(t, "monolith_zk_mirror_compared_timestamp_seconds", ""); at < float64(st.Compared.Unix()) || at > float64(st.Compared.Unix()+1) {
		t.Errorf("compared at %v, want %v", at, st.Compared)
	}

	set(t, us, "/test/ours/held", "still mine")
	remove(t, us, "/test/ours/deep/er")
	set(t, them, chroot+"/test/ours", "annotated there")
	set(t, us, "/test/theirs", "annotated here")
	setACL(t, us, "/test/theirs/guarded", zk.WorldACL(zk.PermAll))
	remove(t, them, chroot+"/test/theirs/held")
	put(t, them, chroot+"/monolith/x/y", "", 0)
	holds(t, us, "/test/theirs/held", "-")
	holds(t, us, "/test/ours", "annotated there")
	both = same(t, "changes", us, them)
	if !strings.Contains(both, `"annotated here"`) || !strings.Contains(both, `"still mine"`) || strings.Contains(both, "/er 1 bytes \"1\"") || !strings.Contains(both, "/monolith/x/y") {
		t.Errorf("both show\n%s", both)
	}
	for c, want := range map[*zk.Conn]string{us: "/testing/beside", them: chroot + "/testing/beside"} {
		if names, _, err := c.Children(want[:strings.LastIndex(want, "/")]); err != nil || len(names) != 1 {
			t.Errorf("beside the roots: %v, %v", names, err)
		}
	}
	if data, _, err := them.Get(chroot + "/testing/beside"); string(data) != "theirs" {
		t.Errorf("what lies beside the roots is %q, %v", data, err)
	}
	setACL(t, us, "/test/ours", zk.WorldACL(zk.PermAll&^zk.PermWrite))
	same(t, "a list that was set here", us, them)
	setACL(t, us, "/test/ours", zk.WorldACL(zk.PermAll&^zk.PermWrite))
	same(t, "the same list once more", us, them)
	us.Close() // what it held goes with it
	holds(t, them, chroot+"/test/ours/held", "-")
}

// A mirror that comes back knows by the mark who has written meanwhile: what was made, set and
// removed on either side is so on both, nothing twice, and a write of the mirror's is no import.
func TestWhatHappensWithoutAMirror(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	for _, p := range []string{"removed-here", "removed-there", "set-here", "set-there", "kept"} {
		put(t, us, "/test/free/"+p, "1", 0)
	}
	put(t, us, "/test/free/parent/child", "1", 0)
	first := mirrors(t, here, there, nil)
	same(t, "the beginning", us, them)
	if n := len(here.imports(t)); n != 0 {
		t.Fatalf("%d imports of what is ours", n)
	}
	first.shows(t, "rest", func(s ensemble.Status) bool { return s.Seq == here.last(t) })
	settled(t, there)
	first.stop()
	if st := first.Status(); st.Connected || st.Session != "" || first.gauge(t, "monolith_zk_mirror_connected", "") != 0 {
		t.Errorf("behind its end: %+v", st)
	}
	remove(t, us, "/test/free/removed-here")
	remove(t, us, "/test/free/parent/child")
	remove(t, us, "/test/free/parent")
	remove(t, them, chroot+"/test/free/removed-there")
	set(t, us, "/test/free/set-here", "2")
	set(t, them, chroot+"/test/free/set-there", "3")
	put(t, us, "/test/free/made-here", "4", 0)
	put(t, them, chroot+"/test/free/made-there", "5", 0)
	second := mirrors(t, here, there, nil)
	second.compared(t)
	both := same(t, "the return", us, them)
	for p, want := range map[string]string{"removed-here": "", "removed-there": "", "parent": "", "set-here": "2", "set-there": "3", "made-here": "4", "made-there": "5", "kept": "1"} {
		if strings.Contains(both, fmt.Sprintf("/test/free/%s 1 bytes %q", p, want)) != (want != "") || strings.Contains(both, "/test/free/"+p) != (want != "") {
			t.Errorf("%s: want %q in\n%s", p, want, both)
		}
	}
	if n := len(here.imports(t)); n != 3 {
		t.Errorf("%d imports of what was made, set and removed there: %v", n, here.imports(t))
	}
	if st := second.Status(); st.Drifts != 0 || st.Imports != 3 {
		t.Errorf("%+v", st)
	}
}

// settled waits until the mark stands still: it says then how far both sides are the same.
func settled(t *testing.T, there *side) {
	t.Helper()
	was := -1
	wait.For(t, "the mark to stand still", func() bool {
		n := len(there.proposals(t, 1, mark))
		defer func() { was = n }()
		if n != was {
			<-time.After(1200 * time.Millisecond) // it is brought up to date each second
			return false
		}
		return true
	})
}

// What the importer refuses is put right over there, data, deletions and lists alike; what it
// cannot take now is asked again until it can.
func TestRefusedAndFailedImports(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	for _, p := range []string{"set", "deleted", "listed"} {
		put(t, us, "/test/free/"+p, "1", 0)
	}
	tries := map[string]int{}
	m := mirrors(t, here, there, func(c *ensemble.Config) {
		c.Resync = 500 * time.Millisecond // lists are found by comparing
		c.Importer = &importer{judge: func(m *znode.Imported) error {
			tries[m.GetPath()]++
			switch {
			case !strings.HasPrefix(m.GetPath(), "/test/free/"):
				return nil
			case strings.Contains(m.GetPath(), "later") && tries[m.GetPath()] < 3:
				return fmt.Errorf("not now")
			case strings.Contains(m.GetPath(), "later"):
				return nil
			}
			return fmt.Errorf("%w: not that one", ensemble.ErrRefused)
		}}
	})
	same(t, "the beginning", us, them)
	m.shows(t, "rest", func(s ensemble.Status) bool { return s.Seq == here.last(t) })
	set(t, them, chroot+"/test/free/set", "2")
	remove(t, them, chroot+"/test/free/deleted")
	put(t, them, chroot+"/test/free/made", "2", 0)
	setACL(t, them, chroot+"/test/free/listed", zk.WorldACL(zk.PermAll&^zk.PermDelete))
	put(t, them, chroot+"/test/free/later", "in time", 0)
	m.shows(t, "four refusals", func(s ensemble.Status) bool { return s.Refused >= 4 && s.Imports >= 1 })
	holds(t, them, chroot+"/test/free/made", "-")
	holds(t, us, "/test/free/later", "in time")
	holds(t, them, chroot+"/test/free/deleted", "1")
	wait.Seen(t, "both trees but for how often a list was set", func() (string, bool) {
		acl, _, err := them.GetACL(chroot + "/test/free/listed")
		return fmt.Sprint(acl, err), err == nil && fmt.Sprint(acl) == fmt.Sprint(zk.WorldACL(zk.PermAll))
	})
	holds(t, them, chroot+"/test/free/set", "1")
	if n := m.gauge(t, "monolith_zk_bridge_imports_total", "failed"); n != 2 {
		t.Errorf("%v imports failed", n)
	}
	if n := m.gauge(t, "monolith_zk_bridge_imports_total", "refused"); n != 4 {
		t.Errorf("%v imports were refused\n%s", n, m.said)
	}
	st := m.shows(t, "drifts put right", func(s ensemble.Status) bool { return s.Drifts >= 3 })
	if st.LastDrift == nil || !strings.HasPrefix(st.LastDrift.Path, "/test/free/") || m.gauge(t, "monolith_zk_mirror_drift_total", "") != float64(st.Drifts) ||
		m.gauge(t, "monolith_zk_mirror_last_drift_timestamp_seconds", "") < float64(st.Compared.Add(-time.Hour).Unix()) {
		t.Errorf("%+v, %+v", st, st.LastDrift)
	}
}

// What is written here behind an import, before the mirror looks, was never seen over there: that the foreign
// node goes does not take it along.
func TestAWriteBehindAnImportStays(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free", "", 0)
	m := mirrors(t, here, there, func(c *ensemble.Config) {
		c.Importer = &importer{after: func(m *znode.Imported) {
			if m.GetPath() == "/test/free/raced" && string(m.GetData()) == "theirs" {
				set(t, us, "/test/free/raced", "ours")
				remove(t, them, chroot+"/test/free/raced")
			}
		}}
	})
	same(t, "the beginning", us, them)
	put(t, them, chroot+"/test/free/raced", "theirs", 0)
	m.shows(t, "an import", func(s ensemble.Status) bool { return s.Imports >= 1 })
	holds(t, us, "/test/free/raced", "ours")
	holds(t, them, chroot+"/test/free/raced", "ours")
	same(t, "the end", us, them)
}

// Many nodes and large ones go over in as many multis as it takes, each within what an ensemble
// accepts. One that cannot be written there holds up nothing but itself, is named, and is
// written once it can be.
func TestManyAndLargeNodes(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	const nodes = 1200 // more than are compared in one step
	put(t, us, "/test/many/none", "", 0)
	for i := 0; i < nodes; i += 100 {
		var some []any
		for j := range 100 {
			some = append(some, &zk.CreateRequest{Path: fmt.Sprintf("/test/many/%04d", i+j), Data: []byte("x"), Acl: zk.WorldACL(zk.PermAll)})
		}
		if _, err := us.Multi(some...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		put(t, us, fmt.Sprint("/test/large/", i), strings.Repeat("x", 300<<10), 0)
	}
	m := mirrors(t, here, there, nil)
	same(t, "the beginning", us, them)
	multis, most := 0, 0
	for _, p := range there.proposals(t, 1, mark) {
		size := 0
		for _, op := range p.GetOps() {
			if op.GetSetData().GetPath() != mark {
				size += len(op.GetCreate().GetPath()) + len(op.GetCreate().GetData())
			}
		}
		if len(p.GetOps()) > 1 {
			multis++
		}
		if most = max(most, len(p.GetOps())-1); size > 512<<10 || len(p.GetOps()) > 129 {
			t.Errorf("%d bytes in %d operations", size, len(p.GetOps()))
		}
	}
	if most != 128 || multis > 20 {
		t.Errorf("%d multis, the longest of %d nodes", multis, most)
	}
	setACL(t, them, chroot+"/test/many", zk.WorldACL(zk.PermAll&^(zk.PermCreate|zk.PermDelete)))
	m.shows(t, "rest", func(s ensemble.Status) bool { return s.Seq == here.last(t) })
	remove(t, us, "/test/many/0000")
	m.shows(t, "what stays there", func(s ensemble.Status) bool { return s.Stuck == 1 && strings.HasPrefix(s.StuckAt[0].Why, "remove: ") })
	put(t, us, "/test/behind", "1", 0)
	holds(t, them, chroot+"/test/behind", "1")
	multi := []any{}
	for _, p := range []string{"/test/large/new", "/test/many/new", "/test/newer"} {
		multi = append(multi, &zk.CreateRequest{Path: p, Data: []byte("1"), Acl: zk.WorldACL(zk.PermAll)})
	}
	if _, err := us.Multi(multi...); err != nil {
		t.Fatal(err)
	}
	holds(t, them, chroot+"/test/large/new", "1")
	holds(t, them, chroot+"/test/newer", "1")
	m.shows(t, "what is stuck", func(s ensemble.Status) bool {
		return s.Stuck == 2 && s.StuckAt[0].Path == "/test/many/0000" && s.StuckAt[1].Path == "/test/many/new" && strings.HasPrefix(s.StuckAt[1].Why, "create: ")
	})
	put(t, us, "/test/meanwhile", "1", 0) // which moves the mark, and not behind what is still to be written
	holds(t, them, chroot+"/test/meanwhile", "1")
	wait.For(t, "some more attempts", func() bool { return len(there.proposals(t, 1, chroot+"/test/many/new")) > 5 })
	for _, p := range []string{"/test/many/new", "/test/meanwhile", "/test/behind"} {
		holds(t, us, p, "1") // what was never written there has not been removed there
	}
	setACL(t, them, chroot+"/test/many", zk.WorldACL(zk.PermAll))
	holds(t, them, chroot+"/test/many/new", "1")
	holds(t, them, chroot+"/test/many/0000", "-")
	m.shows(t, "that nothing is", func(s ensemble.Status) bool { return s.Stuck == 0 })
}
