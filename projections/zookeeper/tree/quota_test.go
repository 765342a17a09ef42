package tree_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

const statsOfQ = "/zookeeper/quota/q/zookeeper_stats"

// quotaWorld is a tree with session 1 and a quota over /q, which has a node already.
func quotaWorld(t *testing.T) (write func(multi bool, ops ...*znode.Op) wire.Code, state func() view.State) {
	t.Helper()
	s, seq := world(t), uint64(200)
	write = func(multi bool, ops ...*znode.Op) wire.Code {
		t.Helper()
		var did view.Effects
		seq++
		s, did = apply(s, events.Recorded{Seq: seq, Time: time.UnixMilli(int64(20_000 + seq)), Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{
			Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: 1, Multi: multi, Ops: ops}}}})
		return did.Outcome.Code
	}
	for _, op := range []*znode.Op{
		createOf("/q", 0), createOf("/q/first", 0), createOf("/zookeeper/quota/q", 0),
		dataOf("/zookeeper/quota/q/zookeeper_limits", "count=3,bytes=-1"), dataOf(statsOfQ, "count=0,bytes=0"),
	} {
		if code := write(false, op); code != 0 {
			t.Fatalf("%v: %d", op, code)
		}
	}
	return write, func() view.State { return s }
}

func dataOf(path, data string) *znode.Op {
	op := createOf(path, 0)
	op.GetCreate().Data = []byte(data)
	return op
}

// Statistics of a quota count what is there and follow what changes, as ZooKeeper's do:
// quietly, and not for what is taken back.
func TestQuotaStatisticsFollow(t *testing.T) {
	write, state := quotaWorld(t)
	is := func(want string) {
		t.Helper()
		data, st, _ := state().Get(statsOfQ)
		if string(data) != want || int(st.DataLength) != len(data) || st.Version != 0 || st.Mzxid != st.Czxid || st.Mtime != st.Ctime {
			t.Fatalf("%q %+v, want %q and a node that nobody has written", data, st, want)
		}
	}
	is("count=2,bytes=2")
	write(false, dataOf("/q/a", "12345"))
	is("count=3,bytes=7")
	write(false, createOf("/quite", 0)) // not below /q
	is("count=3,bytes=7")
	write(false, dataOf("/q/empty", ""))
	is("count=4,bytes=7")
	write(false, deleteOf("/q/empty", -1))
	is("count=3,bytes=7")
	write(false, createOf("/q/a/e", znode.Mode_EPHEMERAL))
	is("count=4,bytes=8")
	write(false, setOf("/q/a", -1)) // one byte
	is("count=4,bytes=4")
	write(true, createOf("/q/b", 0), setOf("/q/b", -1), deleteOf("/q/first", -1), deleteOf("/none", -1)) // taken back
	is("count=4,bytes=4")
	write(true, createOf("/q/b", 0), deleteOf("/q/first", -1))
	is("count=4,bytes=4")
	s, did := apply(state(), events.Recorded{Seq: 1000, Subject: events.Join("b", "znode", "tree"), Event: &znode.Event{
		Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: 1, Reason: znode.Closed}}}})
	for _, c := range did.Changes {
		if c.Path == statsOfQ {
			t.Errorf("a watch fires for statistics: %+v", c)
		}
	}
	if data, _, _ := s.Get(statsOfQ); string(data) != "count=3,bytes=3" {
		t.Errorf("with its session an ephemeral goes: %q", data)
	}
}

// A quota begins with all that is below its path, however deep, and nothing beside it.
func TestQuotaBeginsWithWhatIsThere(t *testing.T) {
	write, state := quotaWorld(t)
	for _, path := range []string{"/z", "/z/a", "/z/a/a", "/z/a/a/a", "/z/a/b", "/z/b", "/z/c", "/z/c/a", "/zz", "/zookeeper/quota/z"} {
		if code := write(false, createOf(path, 0)); code != 0 {
			t.Fatalf("%s: %d", path, code)
		}
	}
	write(false, dataOf("/zookeeper/quota/z/zookeeper_limits", "count=3"))
	write(false, dataOf("/zookeeper/quota/z/zookeeper_stats", ""))
	if data, _, _ := state().Get("/zookeeper/quota/z/zookeeper_stats"); string(data) != "count=8,bytes=8" {
		t.Errorf("%q, want count=8,bytes=8", data)
	}
}

// Whatever happens below a quota, its statistics are a count of it.
func TestQuotaStatisticsAreTheCount(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	write, state := quotaWorld(t)
	for range 3000 {
		var ops []*znode.Op
		for range 1 + rng.IntN(4) {
			path := "/q"
			for range rng.IntN(4) {
				path += fmt.Sprintf("/%d", rng.IntN(3))
			}
			switch rng.IntN(4) {
			case 0, 1:
				ops = append(ops, dataOf(path, fmt.Sprint(rng.Uint32())))
			case 2:
				ops = append(ops, deleteOf(path, -1))
			default:
				ops = append(ops, setOf(path, -1))
			}
		}
		if ops[0].GetDelete().GetPath() == "/q" {
			continue
		}
		write(len(ops) > 1, ops...)
		count, size := 0, 0
		state().Walk(func(path string, st wire.Stat) bool {
			if path == "/q" || len(path) > 3 && path[:3] == "/q/" {
				count, size = count+1, size+int(st.DataLength)
			}
			return true
		})
		want := fmt.Sprintf("count=%d,bytes=%d", count, size)
		if data, _, _ := state().Get(statsOfQ); string(data) != want {
			t.Fatalf("%q behind %v, want %q", data, ops, want)
		}
	}
}

// Of two quotas the deeper one counts; statistics that somebody has overwritten are
// counted anew; without limits nothing is.
func TestQuotasWithinQuotas(t *testing.T) {
	write, state := quotaWorld(t)
	deep := "/zookeeper/quota/q/deep"
	for _, op := range []*znode.Op{
		createOf("/q/deep", 0), createOf(deep, 0), dataOf(deep+"/zookeeper_limits", "count=1"), dataOf(deep+"/zookeeper_stats", ""),
		createOf("/q/deep/a", 0), createOf("/q/b", 0),
	} {
		if code := write(false, op); code != 0 {
			t.Fatalf("%v: %d", op, code)
		}
	}
	is := func(path, want string) {
		t.Helper()
		if data, _, _ := state().Get(path); string(data) != want {
			t.Errorf("%s: %q, want %q", path, data, want)
		}
	}
	is(deep+"/zookeeper_stats", "count=2,bytes=2")
	is(statsOfQ, "count=4,bytes=4") // /q, first, deep, b
	write(false, setOf(deep+"/zookeeper_stats", -1))
	write(false, setOf("/q/deep/a", -1)) // as long as before: there is nothing to count
	is(deep+"/zookeeper_stats", "e")
	write(false, deleteOf("/q/deep/a", -1))
	is(deep+"/zookeeper_stats", "count=1,bytes=1")
	write(false, deleteOf(deep+"/zookeeper_limits", -1))
	write(false, createOf("/q/deep/b", 0))
	is(deep+"/zookeeper_stats", "count=1,bytes=1")
	is(statsOfQ, "count=5,bytes=5")
}

// Nodes below /zookeeper/quota that are no statistics of a path are clients' like any others.
func TestQuotaLeavesOtherNodesAlone(t *testing.T) {
	write, state := quotaWorld(t)
	want := map[string]string{
		"/zookeeper/quota/zookeeper_stats": "of no path", "/zookeeper/quota/q/other": "other", "/zookeeper/quota/none": "x",
		"/zookeeper/quota/none/zookeeper_limits": "count=1", "/zookeeper/zookeeper_stats": "beside", "/zookeeper_stats": "above",
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if code := write(false, dataOf(path, want[path])); code != 0 {
			t.Fatalf("%s: %d", path, code)
		}
	}
	write(false, dataOf("/zookeeper/quota/none/zookeeper_stats", "anything"))
	want["/zookeeper/quota/none/zookeeper_stats"] = "count=0,bytes=0" // there is no /none
	want["/zookeeper/quota/q/zookeeper_limits"] = "count=3,bytes=-1"
	want[statsOfQ] = "count=2,bytes=2"
	for path, data := range want {
		if got, _, _ := state().Get(path); string(got) != data {
			t.Errorf("%s: %q, want %q", path, got, data)
		}
	}
}
