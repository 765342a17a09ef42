package ensemble_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// asks says that what is sent is one request with that operation.
func asks(b []byte, op wire.Op) bool {
	return len(b) >= 12 && wire.Op(binary.BigEndian.Uint32(b[8:])) == op
}

// A mirror of another log takes what it finds for foreign: it removes nothing, and makes it
// its own. One of the same log goes on, also where the event by which it would know its log
// was trimmed away.
func TestWhichLogTheEnsembleShows(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		another, blind bool
		trimmed        bool
		want           string // of what was removed here meanwhile
	}{
		{"the same log", false, false, false, "-"},
		{"the same log, trimmed", false, false, true, "-"},
		{"another log", true, false, false, "1"},
		{"another log, and nobody looks", true, true, false, "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			here, there := open(t, namespace), open(t, "ensemble")
			us, them := here.client(t), there.client(t)
			put(t, us, "/test/free/n", "1", 0)
			first := mirrors(t, here, there, nil)
			same(t, "the beginning", us, them)
			first.shows(t, "rest", func(s ensemble.Status) bool { return s.Seq == here.last(t) })
			settled(t, there)
			first.stop()
			seq := here.last(t)
			if tc.another {
				here = open(t, namespace)
				us = here.client(t)
				for here.last(t) < seq { // a log as long as the other
					put(t, us, fmt.Sprint("/test/other/", here.last(t)), "", 0)
				}
			} else {
				remove(t, us, "/test/free/n")
			}
			with := func(c *ensemble.Config) {
				if tc.blind {
					c.Log = nil
				}
				if tc.trimmed {
					c.Log = trimmedLog{here.Log()}
				}
			}
			second := mirrors(t, here, there, with)
			second.compared(t)
			holds(t, us, "/test/free/n", tc.want)
			same(t, "the end", us, them)
			if other := strings.Contains(second.said.String(), "the ensemble shows another log"); other != (tc.another && !tc.blind) {
				t.Errorf("it says\n%s", second.said)
			}
		})
	}
}

// trimmedLog has no event any more.
type trimmedLog struct{ bus.Log }

func (trimmedLog) Get(context.Context, uint64) (events.Recorded, error) {
	return events.Recorded{}, bus.ErrTrimmed
}

// Of two mirrors of one namespace the one that came last writes; the other hears that it may
// not, and waits before it tries again, so that they take no turns at full speed.
func TestASecondMirrorFencesTheFirst(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free/n", "1", 0)
	long := func(c *ensemble.Config) { c.Session = 20 * time.Second }
	first := mirrors(t, here, there, long)
	same(t, "the first", us, them)
	second := mirrors(t, here, there, long)
	second.shows(t, "the second", func(s ensemble.Status) bool { return s.Connected && !s.Compared.IsZero() })
	set(t, us, "/test/free/n", "2")
	wait.For(t, "the first one to be told", func() bool { return strings.Contains(first.said.String(), "another mirror writes") })
	same(t, "the second", us, them)
	if st := second.Status(); !st.Connected || first.Status().Connected {
		t.Errorf("the second: %+v\nthe first: %+v", st, first.Status())
	}
	if n := strings.Count(first.said.String(), "mirror begins"); n != 1 || strings.Contains(first.said.String(), "write to the ensemble") {
		t.Errorf("the first one has begun %d times\n%s", n, first.said)
	}
}

// When the connection for reads breaks, everything is compared anew over another one; what was
// written meanwhile is imported, and the session, with what it holds, stays.
func TestReadsAreCut(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free/held", "mine", zk.FlagEphemeral)
	var net lines
	m := mirrors(t, here, there, func(c *ensemble.Config) { c.Dial = net.dial })
	same(t, "the beginning", us, them)
	session := m.compared(t).Session
	_, before, err := them.Get(chroot + "/test/free/held")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		net.cut()
		put(t, them, fmt.Sprint(chroot, "/test/free/", i), "theirs", 0)
		holds(t, us, fmt.Sprint("/test/free/", i), "theirs")
	}
	same(t, "the end", us, them)
	_, after, err := them.Get(chroot + "/test/free/held")
	if err != nil || after.EphemeralOwner != before.EphemeralOwner || after.Czxid != before.Czxid {
		t.Errorf("held as %+v, before %+v, %v", after, before, err)
	}
	m.shows(t, "the session", func(s ensemble.Status) bool { return s.Session == session && s.Connected })
}

// While nobody can be reached the session ends; the next one takes over what it held, and what
// was written on either side meanwhile is not lost.
func TestTheSessionIsLost(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free/held", "mine", zk.FlagEphemeral)
	var net lines
	m := mirrors(t, here, there, func(c *ensemble.Config) { c.Dial, c.Session = net.dial, 500*time.Millisecond })
	same(t, "the beginning", us, them)
	session := m.compared(t).Session
	net.set(true)
	net.cut()
	holds(t, them, chroot+"/test/free/held", "-")
	set(t, us, "/test/free/held", "mine still")
	put(t, them, chroot+"/test/free/theirs", "2", 0)
	m.shows(t, "its end", func(s ensemble.Status) bool { return !s.Connected })
	wait.For(t, "the attempts to be told", func() bool { return strings.Contains(m.said.String(), "not reached; trying again") })
	net.set(false)
	both := same(t, "the return", us, them)
	if !strings.Contains(both, `"mine still" ephemeral=true`) || !strings.Contains(both, "/theirs") {
		t.Errorf("both show\n%s", both)
	}
	m.shows(t, "another session", func(s ensemble.Status) bool { return s.Connected && s.Session != session })
}

// A write whose answer is lost has happened all the same: it is recognized by the mark, and
// neither repeated nor taken for a foreign one.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	var net lines
	m := mirrors(t, here, there, func(c *ensemble.Config) { c.Dial = net.dial })
	m.compared(t)
	put(t, us, "/test", "", 0)
	same(t, "the beginning", us, them)
	var multis atomic.Int64
	net.mu.Lock()
	net.before = func(c *line, b []byte) []byte {
		if asks(b, wire.OpMulti) && multis.Add(1) == 1 {
			c.lose.Store(true)
		}
		return b
	}
	net.mu.Unlock()
	from := there.last(t) + 1
	put(t, us, "/test/once", "1", 0)
	holds(t, them, chroot+"/test/once", "1")
	put(t, us, "/test/next", "2", 0)
	same(t, "the end", us, them)
	if n := len(there.proposals(t, from, chroot+"/test/once")); n != 1 {
		t.Errorf("it was written %d times", n)
	}
	if n := len(here.imports(t)); n != 0 {
		t.Errorf("%d imports of what is ours: %v\n%s", n, here.imports(t), m.said)
	}
	if strings.Contains(m.said.String(), "interrupted") {
		t.Errorf("it began again\n%s", m.said)
	}
}

// An ensemble without addWatch is compared from time to time.
func TestWithoutWatches(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	net := lines{before: func(_ *line, b []byte) []byte {
		for i := 0; i+12 <= len(b); i += 4 + int(binary.BigEndian.Uint32(b[i:])) {
			if asks(b[i:], wire.OpAddWatch) {
				binary.BigEndian.PutUint32(b[i+8:], 9999)
			}
		}
		return b
	}}
	m := mirrors(t, here, there, func(c *ensemble.Config) { c.Dial, c.Poll, c.Resync = net.dial, 100*time.Millisecond, time.Hour })
	put(t, them, chroot+"/test/a", "1", 0)
	holds(t, us, "/test/a", "1")
	for i := range 3 {
		set(t, them, chroot+"/test/a", fmt.Sprint(i))
		holds(t, us, "/test/a", fmt.Sprint(i))
	}
	if !strings.Contains(m.said.String(), "without addWatch") {
		t.Errorf("it says\n%s", m.said)
	}
}

// Who shows an identity that the ensemble does not take says so and mirrors nothing.
func TestAnIdentityThatIsNotTaken(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	them := there.client(t)
	m := mirrors(t, here, there, func(c *ensemble.Config) { c.Auth = []ensemble.Auth{{Scheme: "nonsense", Secret: []byte("x")}} })
	wait.For(t, "two attempts to be told", func() bool { return strings.Count(m.said.String(), "show the nonsense identity") >= 2 })
	if ok, _, err := them.Exists(mark); ok || err != nil {
		t.Errorf("it has written its mark: %v", err)
	}
	if m.Status().Connected {
		t.Errorf("%+v", m.Status())
	}
}

// With the identity that it shows the mirror reads and writes what is closed to others. What it
// may not read it leaves alone and names, until it may.
func TestIdentities(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	for _, c := range []*zk.Conn{us, them} {
		for _, id := range []string{"mirror:secret", "other:secret"} {
			if err := c.AddAuth("digest", []byte(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ours, others := zk.DigestACL(zk.PermAll, "mirror", "secret"), zk.DigestACL(zk.PermAll, "other", "secret")
	put(t, them, chroot+"/test/a", "", 0)
	for p, acl := range map[string][]zk.ACL{"/open": ours, "/closed": others} {
		if _, err := them.Create(chroot+"/test/a"+p, []byte("1"), 0, acl); err != nil {
			t.Fatal(err)
		}
	}
	m := mirrors(t, here, there, func(c *ensemble.Config) {
		c.Resync, c.Auth = 300*time.Millisecond, []ensemble.Auth{{Scheme: "digest", Secret: []byte("mirror:secret")}}
	})
	holds(t, us, "/test/a/open", "1")
	m.shows(t, "what it may not read", func(s ensemble.Status) bool {
		return s.Stuck == 1 && s.StuckAt[0].Path == "/test/a/closed" && strings.HasPrefix(s.StuckAt[0].Why, "read: ")
	})
	wait.For(t, "how that is mended", func() bool { return strings.Contains(m.said.String(), "--zk-auth-file") })
	if n := strings.Count(m.said.String(), "cannot be kept the same"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	set(t, us, "/test/a/open", "2")
	holds(t, them, chroot+"/test/a/open", "2")
	setACL(t, them, chroot+"/test/a/closed", ours)
	same(t, "the end", us, them)
	m.shows(t, "that nothing is stuck", func(s ensemble.Status) bool { return s.Stuck == 0 && len(s.StuckAt) == 0 })
}

// marks are those that mirrors have written over there, oldest first, with how much was written
// with each.
func marks(t *testing.T, there *side) (all []written) {
	t.Helper()
	for _, p := range there.proposals(t, 1, mark) {
		for _, op := range p.GetOps() {
			if q := op.GetSetData(); q.GetPath() == mark {
				w := written{ops: p.GetOps()}
				if err := json.Unmarshal(q.GetData(), &w); err != nil {
					t.Fatal(err)
				}
				all = append(all, w)
			}
		}
	}
	return all
}

type written struct {
	Writer string
	Seq    uint64
	Zxid   int64
	ops    []*znode.Op
}

// A mirror writes its mark before anything else, so that no other one writes; what it writes
// then goes with a mark that says so, and what it imported with a later one.
func TestTheMarkSaysWhatIsDone(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free/n", "1", 0)
	m := mirrors(t, here, there, nil)
	same(t, "the beginning", us, them)
	if all := marks(t, there); len(all[0].ops) != 1 || all[0].Writer == "" || all[0].Seq != 0 {
		t.Errorf("the first mark is %+v", all[0])
	}
	m.shows(t, "rest", func(s ensemble.Status) bool { return s.Seq == here.last(t) })
	settled(t, there)
	set(t, us, "/test/free/n", "2")
	seq := here.last(t)
	holds(t, them, chroot+"/test/free/n", "2")
	with := slices.IndexFunc(marks(t, there), func(w written) bool {
		return slices.ContainsFunc(w.ops, func(op *znode.Op) bool { return string(op.GetSetData().GetData()) == "2" })
	})
	if with < 0 || marks(t, there)[with].Seq < seq {
		t.Errorf("with what was written at %d goes the mark %+v", seq, marks(t, there)[with])
	}
	put(t, them, chroot+"/test/free/theirs", "3", 0)
	_, st, err := them.Get(chroot + "/test/free/theirs")
	if err != nil {
		t.Fatal(err)
	}
	wait.Seen(t, "a mark behind what was imported", func() (string, bool) {
		all := marks(t, there)
		last := all[len(all)-1]
		return fmt.Sprintf("%+v, the write at %d", last, st.Mzxid), last.Zxid >= st.Mzxid
	})
}

// A mirror that may not make its mark says so, and writes nothing.
func TestAMarkThatCannotBeMade(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free/n", "1", 0)
	put(t, them, chroot, "", 0)
	setACL(t, them, chroot, zk.WorldACL(zk.PermAll&^zk.PermCreate))
	m := mirrors(t, here, there, nil)
	wait.Seen(t, "two attempts to be told", func() (string, bool) {
		return m.said.String(), strings.Count(m.said.String(), "create "+chroot+"/@monolith: ") >= 2
	})
	if m.Status().Connected {
		t.Errorf("%+v", m.Status())
	}
	setACL(t, them, chroot, zk.WorldACL(zk.PermAll))
	same(t, "the end", us, them)
}

// Who was fenced waits for the time of a session, hears once more that the other one writes, and
// waits again before it takes the tree back.
func TestWhoWasFencedWaitsTwice(t *testing.T) {
	t.Parallel()
	here, there := open(t, namespace), open(t, "ensemble")
	us, them := here.client(t), there.client(t)
	put(t, us, "/test/free/n", "1", 0)
	first := mirrors(t, here, there, func(c *ensemble.Config) { c.Session = 700 * time.Millisecond })
	same(t, "the first", us, them)
	second := mirrors(t, here, there, func(c *ensemble.Config) { c.Session = time.Minute })
	second.compared(t)
	set(t, us, "/test/free/n", "2") // of which both hear
	const begins, fenced = "zookeeper mirror begins", "another mirror writes"
	wait.Seen(t, "the first one's return", func() (string, bool) {
		return first.said.String(), strings.Count(first.said.String(), begins) >= 2
	})
	before, _, _ := strings.Cut(first.said.String()[len(begins):], begins)
	if n := strings.Count(before, fenced); n != 2 {
		t.Errorf("it was told %d times before it came back:\n%s", n, first.said)
	}
}
