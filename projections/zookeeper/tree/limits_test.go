package tree_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func proposed(seq uint64, p *znode.Proposed) events.Recorded {
	return events.Recorded{
		Seq: seq, Subject: events.Join("b", "znode", "tree"), Time: time.UnixMilli(1_700_000_000_000 + int64(seq)),
		Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: p}},
	}
}

func create(path string, data []byte) *znode.Op {
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{
		Path: path, Data: data, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// large is a tree of n nodes with 100 bytes each, below a hundred parents.
func large(tb testing.TB, n int) view.State {
	tb.Helper()
	s := view.New()
	data := bytes.Repeat([]byte{'x'}, 100)
	var seq uint64
	apply := func(path string, data []byte) {
		seq++
		var did view.Effects
		if s, did = apply(s, proposed(seq, &znode.Proposed{Ops: []*znode.Op{create(path, data)}})); did.Outcome.Code != 0 {
			tb.Fatalf("%s: code %d", path, did.Outcome.Code)
		}
	}
	for i := range 100 {
		apply(fmt.Sprintf("/p%02d", i), nil)
	}
	for i := range n {
		apply(fmt.Sprintf("/p%02d/node-%08d", i%100, i), data)
	}
	return s
}

// A node with 100 bytes costs less than three times these bytes, and so it does after
// everything was written again and after a snapshot.
func TestMemoryPerNode(t *testing.T) {
	const n, most = 100_000, 230
	before := heap()
	s := large(t, n)
	per := func(what string) {
		t.Helper()
		if b := (heap() - before) / n; b > most {
			t.Errorf("%s: %d bytes per node of 100 bytes, at most %d are allowed", what, b, most)
		} else {
			t.Logf("%s: %d bytes per node", what, b)
		}
	}
	per("created")
	data := bytes.Repeat([]byte{'y'}, 100)
	for i := range n {
		op := &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: fmt.Sprintf("/p%02d/node-%08d", i%100, i), Data: data, Version: -1}}}
		s, _ = apply(s, proposed(s.Seq+1, &znode.Proposed{Ops: []*znode.Op{op}}))
	}
	per("written again")
	for size := range 4 { // other sizes: what lies idle is put together
		data := bytes.Repeat([]byte{'z'}, []int{10, 400, 20, 100}[size])
		for i := range n {
			op := &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: fmt.Sprintf("/p%02d/node-%08d", i%100, i), Data: data, Version: -1}}}
			s, _ = apply(s, proposed(s.Seq+1, &znode.Proposed{Ops: []*znode.Op{op}}))
		}
	}
	if b := (heap() - before) / n; b > 2*most {
		t.Errorf("after other sizes: %d bytes per node", b)
	}
	var file bytes.Buffer
	if err := view.Encode(s)(&file); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(s)
	s = view.State{}
	held := heap() - before
	back, err := view.Decode(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if b := (heap() - before - held) / n; b > most {
		t.Errorf("restored: %d bytes per node", b)
	}
	if back.Count() != n+104 {
		t.Errorf("%d nodes restored", back.Count())
	}
}

// Whatever a snapshot's bytes are: an error, or a tree that can be used.
func FuzzSnapshot(f *testing.F) {
	s := view.New()
	for i, op := range []*znode.Op{
		create("/a", []byte("x")), create("/a/b", nil),
		{Op: &znode.Op_Create{Create: &znode.Create{Path: "/a/t", Mode: 5, TtlMs: 7, Acl: []*znode.ACL{{Perms: 3, Scheme: "digest", Id: "u:h"}}}}},
	} {
		s, _ = apply(s, proposed(uint64(i+1), &znode.Proposed{Ops: []*znode.Op{op}}))
	}
	var b bytes.Buffer
	if err := view.Encode(s)(&b); err != nil {
		f.Fatal(err)
	}
	whole := b.Bytes()
	f.Add(whole)
	for i := 8; i < len(whole); i += 7 {
		f.Add(whole[:i])
		bad := bytes.Clone(whole)
		bad[i] ^= 0x21
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := view.Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		s.Walk(func(path string, st wire.Stat) bool {
			if got, ok := s.Stat(path); !ok || got != st {
				t.Fatalf("%q: %v %+v, walked %+v", path, ok, got, st)
			}
			return true
		})
		s, _ = apply(s, proposed(s.Seq+1, &znode.Proposed{Ops: []*znode.Op{create("/fresh", nil)}}))
		var again bytes.Buffer
		if err := view.Encode(s)(&again); err != nil {
			t.Fatal(err)
		}
		if _, err := view.Decode(&again); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}

func TestSnapshotCutShort(t *testing.T) {
	var b bytes.Buffer
	if err := view.Encode(large(t, 50))(&b); err != nil {
		t.Fatal(err)
	}
	for i := range b.Len() {
		if _, err := view.Decode(bytes.NewReader(b.Bytes()[:i])); err == nil {
			t.Fatalf("%d of %d bytes are a whole snapshot", i, b.Len())
		}
	}
	if _, err := view.Decode(io.MultiReader(bytes.NewReader(b.Bytes()), bytes.NewReader([]byte{0}))); err == nil {
		t.Error("a byte behind the snapshot is passed over")
	}
	broken := errors.New("disk full")
	if err := view.Encode(view.New())(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("a writer's error: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Any bytes that decode as an event fold without a panic, and a failed proposal leaves
// the tree as it was.
func FuzzEvent(f *testing.F) {
	for _, p := range []*znode.Proposed{
		{Ops: []*znode.Op{create("/a", nil)}},
		{Multi: true, Ops: []*znode.Op{create("/a//b", nil), {Op: &znode.Op_Delete{Delete: &znode.Delete{Path: "/"}}}}},
		{Session: 1, Ops: []*znode.Op{{Op: &znode.Op_SetAcl{SetAcl: &znode.SetACL{Path: "/", Acl: []*znode.ACL{{Perms: 1, Scheme: "ip", Id: "1.2.3.4/33"}}}}}}},
	} {
		b, err := proto.Marshal(&znode.Event{Body: &znode.Event_Proposed{Proposed: p}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
	}
	f.Add([]byte(`{"proposed":{"ops":[{"create":{"path":"/é\u0000"}}]}}`), false)
	f.Fuzz(func(t *testing.T, data []byte, binary bool) {
		subject := events.Join("b", "znode", "tree")
		m, err := catalog.Decode(subject, binary, data)
		if err != nil {
			return
		}
		s, _ := apply(view.New(), events.Recorded{Seq: 1, Subject: subject, Event: &znode.Event{
			Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: 1, TimeoutMs: 1, PasswordHash: make([]byte, 32)}}}})
		before := canonical(t, s)
		s, did := apply(s, events.Recorded{Seq: 2, Subject: subject, Event: m})
		if did.Outcome != nil && did.Outcome.Code != 0 {
			after := bytes.Replace(canonical(t, s), []byte(`{"seq":2`), []byte(`{"seq":1`), 1)
			if !bytes.Equal(before, after) {
				t.Fatalf("code %d, and the tree changed:\n%s\n%s", did.Outcome.Code, before, after)
			}
		}
		for _, path := range s.Children("/") {
			if _, _, ok := s.Get("/" + path); !ok {
				t.Fatalf("child %q cannot be found", path)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	var file bytes.Buffer
	if err := view.Encode(large(b, 1_000_000))(&file); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := view.Decode(bytes.NewReader(file.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	s := view.New()
	data := bytes.Repeat([]byte{'x'}, 100)
	i := 0
	for b.Loop() {
		i++
		s, _ = apply(s, proposed(uint64(i), &znode.Proposed{Ops: []*znode.Op{create(fmt.Sprintf("/n%d", i), data)}}))
	}
}

// Names come and go by the ten thousand, and every one that is there is found.
func TestChurn(t *testing.T) {
	const n = 20_000
	s := large(t, n)
	path := func(i int) string { return fmt.Sprintf("/p%02d/node-%08d", i%100, i) }
	gone := func(i, round int) bool { return (i*7+round)%3 == 0 }
	for round := range 3 {
		for i := range n {
			if gone(i, round) {
				s, _ = apply(s, proposed(s.Seq+1, &znode.Proposed{Ops: []*znode.Op{deleteOf(path(i), -1)}}))
			}
		}
		for i := range n {
			data, st, ok := s.Get(path(i))
			if ok == gone(i, round) || (ok && (len(data) != 100 || st.Version != 0)) {
				t.Fatalf("round %d: %s: %v %+v", round, path(i), ok, st)
			}
		}
		for i := range n {
			if gone(i, round) {
				s, _ = apply(s, proposed(s.Seq+1, &znode.Proposed{Ops: []*znode.Op{create(path(i), bytes.Repeat([]byte{'x'}, 100))}}))
			}
		}
		if s.Count() != n+104 {
			t.Fatalf("round %d: %d nodes", round, s.Count())
		}
	}
}
