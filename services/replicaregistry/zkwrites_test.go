package replicaregistry

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/memdir"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/internal/role"
)

// testWriter is a registry's writing half with a tree of its own.
type testWriter struct {
	*writes
	tree *follow.Follower[view.State]
	stop func()
}

func newTestWriter(t testing.TB, b bus.Bus) *testWriter {
	t.Helper()
	env := controltest.Env(b)
	tree := follow.New(b.Log(), registry.Znode, follow.Options{})
	s := &testWriter{writes: newWrites(env, tree, time.Now), tree: tree}
	s.every = 20 * time.Millisecond
	tree.OnEvent(s.folded)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{tree.Run, s.writes.run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(s.stop)
	return s
}

func (s *testWriter) await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(controltest.Patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func (s *testWriter) leads(t testing.TB) {
	t.Helper()
	s.await(t, "the writer's lease", s.Writable)
}

type answer struct {
	zxid uint64
	o    *view.Outcome
	err  error
}

func (s *testWriter) ask(e *znode.Event) answer {
	got := make(chan answer, 2)
	s.Propose(e, func(zxid uint64, o *view.Outcome, err error) { got <- answer{zxid, o, err} })
	return <-got
}

func write(session int64, ops ...*znode.Op) *znode.Event {
	return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: session, Ops: ops, Multi: len(ops) > 1}}}
}

func makeNode(path, data string, mode znode.Mode) *znode.Op {
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{
		Path: path, Data: []byte(data), Mode: mode, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
}

func remove(path string) *znode.Op {
	return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: -1}}}
}

func session(id int64, timeout time.Duration) *znode.Event {
	return &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{
		Session: id, TimeoutMs: int32(timeout.Milliseconds()), PasswordHash: make([]byte, 32)}}}
}

// counted counts appends and can hold the first of them.
type counted struct {
	bus.Bus
	mu      sync.Mutex
	sizes   []int
	fail    func(n int) error // after the append of n was done, if it was
	appends int
}

type countedLog struct {
	bus.Log
	c *counted
}

func (c *counted) Log() bus.Log { return countedLog{c.Bus.Log(), c} }

func (l countedLog) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	seqs, err := l.Log.Append(ctx, drafts...)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.appends++
	if err == nil {
		l.c.sizes = append(l.c.sizes, len(drafts))
	}
	if l.c.fail != nil {
		if e := l.c.fail(l.c.appends); e != nil {
			return nil, e
		}
	}
	return seqs, err
}

func buses(t *testing.T, run func(t *testing.T, open func() bus.Bus)) {
	t.Run("mem", func(t *testing.T) {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		run(t, func() bus.Bus { return b })
	})
	t.Run("jetstream", func(t *testing.T) {
		srv, err := jetstream.StartServer(jetstream.ServerConfig{Dir: memdir.New(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Close() })
		run(t, func() bus.Bus {
			b, err := jetstream.Connect(t.Context(), jetstream.Config{Server: srv, BZID: controltest.BZID})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		})
	})
}

// Proposals are answered in the order in which they came, with rising zxids, and those
// that wait share an append.
func TestGroupCommit(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		c := &counted{Bus: open()}
		s := newTestWriter(t, c)
		s.leads(t)
		const n = 5000
		got := make(chan string, n)
		for i := range n {
			s.Propose(write(0, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL)), func(zxid uint64, o *view.Outcome, err error) {
				if err != nil || o.Code != 0 {
					got <- fmt.Sprint(i, " ", o, " ", err)
					return
				}
				got <- o.Results[0].Path
			})
		}
		for i := range n {
			if want, path := fmt.Sprintf("/n-%010d", i), <-got; path != want {
				t.Fatalf("answer %d is %s, want %s", i, path, want)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.sizes) > n/20 {
			t.Errorf("%d appends for %d proposals", len(c.sizes), n)
		}
		t.Logf("%d appends", len(c.sizes))
	})
}

// An append whose answer is lost is made again under the same ids: nothing happens twice.
func TestLostAck(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		c := &counted{Bus: open()}
		s := newTestWriter(t, c)
		s.leads(t)
		c.mu.Lock()
		c.fail = func(n int) error {
			if n%2 == 0 {
				return fmt.Errorf("%w: the ack was lost", bus.ErrUnavailable)
			}
			return nil
		}
		c.mu.Unlock()
		for i := range 20 {
			a := s.ask(write(0, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL)))
			if want := fmt.Sprintf("/n-%010d", i); a.err != nil || a.o.Results[0].Path != want {
				t.Fatalf("%+v %v, want %s", a.o, a.err, want)
			}
		}
	})
}

// Two registries: one writes, and after it the other. A deposed writer's append meets the
// guard. Whatever was acked is in the tree, once.
func TestTwoRegistries(t *testing.T) {
	buses(t, func(t *testing.T, open func() bus.Bus) {
		first := newTestWriter(t, open())
		first.leads(t)
		second := newTestWriter(t, open())
		if a := second.ask(write(0, makeNode("/x", "", 0))); !errors.Is(a.err, errNotWriter) {
			t.Fatalf("the second registry writes too: %+v", a)
		}
		acked := map[string]int{}
		var mu sync.Mutex
		propose := func(s *testWriter, name string, n int) (wait func()) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Add(1)
				path := fmt.Sprintf("/%s-%d", name, i)
				s.Propose(write(0, makeNode(path, "", 0)), func(_ uint64, o *view.Outcome, err error) {
					if err == nil && o.Code == 0 {
						mu.Lock()
						acked[path]++
						mu.Unlock()
					}
					wg.Done()
				})
			}
			return wg.Wait
		}
		wait := propose(first, "first", 2000)
		first.stop() // with proposals on their way
		wait()
		second.leads(t)
		propose(second, "second", 500)()
		if n := len(acked); n < 500 {
			t.Errorf("%d writes were acked, the second registry alone was sent 500", n)
		}
		second.tree.Read(func(s view.State) {
			for path, times := range acked {
				if st, ok := s.Stat(path); !ok || times != 1 || st.Version != 0 {
					t.Errorf("%s was acked %d times and is there: %v", path, times, ok)
				}
			}
		})
	})
}

// A paused writer whose lease has gone appends under a guard that no longer holds.
func TestFence(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	old := newTestWriter(t, b)
	old.leads(t)
	deposed := &writes{
		subject: old.subject, log: b.Log(), tree: old.tree, logger: old.logger, bzid: old.bzid, last: 0,
		waiting: map[string][]*proposal{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its lease
	err := deposed.store(ctx, [][]*proposal{{{event: write(0, makeNode("/late", "", 0))}}})
	if !errors.Is(err, errNotWriter) {
		t.Fatalf("a deposed writer's append: %v", err)
	}
	if a := old.ask(write(0, makeNode("/ok", "", 0))); a.err != nil || a.o.Code != 0 {
		t.Fatalf("%+v", a)
	}
	old.tree.Read(func(s view.State) {
		if _, ok := s.Stat("/late"); ok {
			t.Error("the deposed writer's node is there")
		}
	})
}

// What others append on the tree's subject is caught up with, while the lease holds.
func TestConflictCatchesUp(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: s.subject, Expect: bus.Any, Event: write(0, makeNode("/theirs", "", 0))}); err != nil {
		t.Fatal(err)
	}
	if a := s.ask(write(0, makeNode("/theirs", "", 0))); a.err != nil || a.o.Code != view.CodeNodeExists {
		t.Fatalf("%+v", a)
	}
}

// A writer behind whose back another one has begun to write stores nothing more, until it
// has begun anew itself.
func TestForeignFenceEndsAReign(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: s.subject, Expect: bus.Any, Event: newFence()}); err != nil {
		t.Fatal(err)
	}
	if a := s.ask(write(0, makeNode("/mine", "", 0))); !errors.Is(a.err, errNotWriter) {
		t.Fatalf("%+v", a)
	}
	s.await(t, "a term of its own again", func() bool {
		a := s.ask(write(0, makeNode("/mine", "", 0)))
		return a.err == nil && a.o.Code == view.CodeOK
	})
}

// Sessions that nobody touches end, with their ephemerals, in one event, and not before
// their time; a new writer grants a full time-out.
func TestSessionExpiry(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	for id, timeout := range map[int64]time.Duration{1: 300 * time.Millisecond, 2: time.Hour} {
		if a := s.ask(session(id, timeout)); a.err != nil || a.o.Code != 0 {
			t.Fatalf("%+v", a)
		}
		for i := range 3 {
			if a := s.ask(write(id, makeNode(fmt.Sprintf("/e%d-%d", id, i), "", znode.Mode_EPHEMERAL))); a.err != nil || a.o.Code != 0 {
				t.Fatalf("%+v", a)
			}
		}
	}
	if a := s.ask(session(1, time.Second)); a.o.Code != view.CodeNodeExists {
		t.Errorf("a session's id used twice: %+v", a)
	}
	began, last := time.Now(), time.Now()
	for time.Since(began) < time.Second { // touched, it lives three times its time-out
		last = time.Now()
		s.Touch(1)
		s.tree.Read(func(st view.State) {
			if _, ok := st.Session(1); !ok {
				t.Fatal("a touched session has expired")
			}
		})
		<-time.After(20 * time.Millisecond)
	}
	s.await(t, "the session's end", func() (gone bool) {
		s.tree.Read(func(st view.State) { _, ok := st.Session(1); gone = !ok })
		return gone
	})
	if early := time.Since(last); early < 250*time.Millisecond {
		t.Errorf("it expired after %v, its time-out is 300 ms", early)
	}
	s.tree.Read(func(st view.State) {
		if got := st.Children("/"); strings.Join(got, " ") != "e2-0 e2-1 e2-2 zookeeper" {
			t.Errorf("left: %v", got)
		}
	})
	closed := controltest.Count(t, b, controltest.Of("sessionClosed"))
	if closed != 1 {
		t.Errorf("%d sessions closed", closed)
	}
	if a := s.ask(write(1, makeNode("/late", "", 0))); a.err != nil || a.o.Code != view.CodeSessionExpired {
		t.Errorf("a write of an expired session: %+v", a)
	}

	// One hour away from the clock's end, another registry takes over: the session stays.
	s.stop()
	next := newTestWriter(t, b)
	next.leads(t)
	<-time.After(3 * sessionTick)
	next.tree.Read(func(st view.State) {
		if _, ok := st.Session(2); !ok {
			t.Error("the session did not outlive its registry")
		}
	})
}

// A process that stood still gives everybody one full time-out instead of losing them.
func TestSilentAfterPause(t *testing.T) {
	now := time.Now()
	z := newZKSessions("b", func() time.Time { return now })
	z.byID[1] = &zkSession{timeout: time.Second}
	now = now.Add(sessionTick)
	if got := z.silent(); got != nil {
		t.Fatal(got)
	}
	now = now.Add(time.Minute)
	if got := z.silent(); got != nil {
		t.Errorf("after a pause of a minute: %v", got)
	}
	for range 9 {
		now = now.Add(sessionTick)
		if got := z.silent(); got != nil {
			t.Errorf("before its time: %v", got)
		}
	}
	now = now.Add(2 * sessionTick)
	if got := z.silent(); len(got) != 1 || got[0] != 1 {
		t.Errorf("when its time is over: %v", got)
	}
	if got := z.silent(); got != nil {
		t.Errorf("twice: %v", got)
	}
	z.spare(1)
	if got := z.silent(); len(got) != 1 {
		t.Errorf("after its end could not be proposed: %v", got)
	}
}

// Containers go once their children have gone, nodes with a time to live when it is over.
func TestSweep(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	ttl := makeNode("/ttl", "", znode.Mode_PERSISTENT_WITH_TTL)
	ttl.GetCreate().TtlMs = 60
	for _, op := range []*znode.Op{
		makeNode("/never", "", znode.Mode_CONTAINER), makeNode("/c", "", znode.Mode_CONTAINER), makeNode("/c/x", "", 0), ttl, remove("/c/x"),
	} {
		if a := s.ask(write(0, op)); a.err != nil || a.o.Code != 0 {
			t.Fatalf("%v: %+v", op, a)
		}
	}
	s.await(t, "the sweep", func() (done bool) {
		s.tree.Read(func(st view.State) { done = strings.Join(st.Children("/"), " ") == "never zookeeper" })
		return done
	})
}

func TestTooLarge(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if a := s.ask(write(0, makeNode("/big", strings.Repeat("x", 600<<10), 0))); !errors.Is(a.err, bus.ErrTooLarge) {
		t.Errorf("a write of 600 KiB: %+v", a)
	}
	if a := s.ask(&znode.Event{}); !errors.Is(a.err, events.ErrInvalid) {
		t.Errorf("an empty event: %+v", a)
	}
	if a := s.ask(write(0, makeNode("/fine", strings.Repeat("x", 400<<10), 0))); a.err != nil || a.o.Code != 0 {
		t.Errorf("the next one: %+v", a)
	}
}

// Writes to a service's paths become its commands; its refusals are answered and parked.
func TestRoutes(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	calls := make(chan string, 100)
	fact := func(e *model.Event) bus.Handler {
		return role.Handler(func(ctx context.Context, payload []byte) ([]byte, error) {
			calls <- string(payload)
			if strings.Contains(string(payload), "refuse") {
				return nil, bus.Refuse(bus.Invalid, "not that one")
			}
			seqs, err := b.Log().Append(ctx, bus.Draft{Subject: events.Join(controltest.BZID, "model", "m1"), Event: e, Expect: bus.Any})
			if err != nil {
				return nil, err
			}
			return role.Seq(seqs[0]), nil
		})
	}
	accepted := &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: "m1", ModelDir: "/d", NumShard: 1, Version: 1}}}}
	gone := &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "r"}}}
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: controltest.BZID, Name: "portal", Version: "1.0.0", Description: "d",
		Endpoints: map[string]bus.Handler{
			"load": fact(accepted), "unload": fact(gone),
			"declareSavedModel": fact(nil), "addLayoutEntry": fact(nil), "removeSavedModel": fact(nil), "removeLayoutEntry": fact(nil),
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s := newTestWriter(t, b)
	s.leads(t)
	meta := `{"model_name": "m1", "model_dir": "/d", "ckpt": null, "num_shard": -1, "action": "NONE", "spec_replicas": [], "later": 1}`
	set := func(path, data string, version int32) *znode.Op {
		return &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: []byte(data), Version: version}}}
	}
	for _, tc := range []struct {
		name  string
		ops   []*znode.Op
		code  int32
		calls string
	}{
		{"parents are generic", []*znode.Op{makeNode("/test", "", 0), makeNode("/test/portal", "", 0), makeNode("/test/publish", "", 0), makeNode("/test/layouts", "", 0), makeNode("/test/layouts/l", "", 0)}, 0, ""},
		{"load", []*znode.Op{makeNode("/test/portal/m1", meta, 0)}, 0, `{"modelDir":"/d","modelName":"m1","numShard":-1}`},
		{"there already", []*znode.Op{makeNode("/test/portal/m1", meta, 0)}, view.CodeNodeExists, ""},
		{"another version", []*znode.Op{set("/test/portal/m1", meta, 7)}, view.CodeBadVersion, ""},
		{"another name", []*znode.Op{set("/test/portal/m1", `{"model_name":"m2"}`, -1)}, view.CodeBadArguments, ""},
		{"no JSON", []*znode.Op{set("/test/portal/m1", `x`, -1)}, view.CodeBadArguments, ""},
		{"refused", []*znode.Op{set("/test/portal/m1", `{"model_dir":"/refuse"}`, -1)}, view.CodeBadArguments, `{"modelDir":"/refuse","modelName":"m1"}`},
		{"a sequence", []*znode.Op{makeNode("/test/portal/m", meta, znode.Mode_PERSISTENT_SEQUENTIAL)}, view.CodeBadArguments, ""},
		{"in a multi", []*znode.Op{makeNode("/free", "", 0), remove("/test/portal/m1"), makeNode("/free2", "", 0)}, view.CodeBadArguments, ""},
		{"unload", []*znode.Op{remove("/test/portal/m1")}, 0, `{"modelName":"m1","reason":"the node was deleted through ZooKeeper"}`},
		{"not there", []*znode.Op{remove("/test/portal/m1")}, view.CodeNoNode, ""},
		{"the publisher's", []*znode.Op{makeNode("/test/publish/0:0:m1", "", 0)}, view.CodeNoAuth, ""},
		{"no parent", []*znode.Op{makeNode("/test/saved_models/m/ps_0", "{}", 0)}, view.CodeNoNode, ""},
		{"a refused entry", []*znode.Op{makeNode("/test/layouts/l/refuse:entry", "", 0)}, view.CodeBadArguments, `{"entry":"refuse:entry","layout":"l"}`},
		{"of another namespace", []*znode.Op{makeNode("/other", "", 0)}, 0, ""},
		{"deeper than a model", []*znode.Op{makeNode("/test/portal/m1", meta, 0)}, 0, `{"modelDir":"/d","modelName":"m1","numShard":-1}`},
		{"below a model", []*znode.Op{makeNode("/test/portal/m1/x", "", 0)}, 0, ""},
		{"not empty", []*znode.Op{remove("/test/portal/m1")}, view.CodeNotEmpty, ""},
	} {
		a := s.ask(write(0, tc.ops...))
		if a.err != nil || a.o.Code != tc.code || a.zxid == 0 || len(a.o.Results) != len(tc.ops) {
			t.Fatalf("%s: zxid %d %+v %v, want code %d", tc.name, a.zxid, a.o, a.err, tc.code)
		}
		got := ""
		if len(calls) > 0 { // what the tree stood at is another test's matter
			got = regexp.MustCompile(`"expectSeq":\d+,|,"expectSeq":\d+`).ReplaceAllString(<-calls, "")
		}
		if got != tc.calls {
			t.Errorf("%s: the portal was asked %s, want %s", tc.name, got, tc.calls)
		}
	}
	letters, err := b.DeadLetters().List(t.Context())
	if err != nil || len(letters) != 2 || letters[0].By != zkRefusals || letters[0].Reason != "not that one" ||
		letters[0].Subject != "monolith.test.model.m1.request" || !strings.Contains(string(letters[0].Data), `"loadRequested"`) {
		t.Errorf("letters %+v, %v", letters, err)
	}
	// Pipelined behind its own parents, a routed write still finds them.
	done := make(chan answer, 3)
	for _, op := range []*znode.Op{makeNode("/test/saved_models", "", 0), makeNode("/test/saved_models/refuse", "", 0), makeNode("/test/saved_models/refuse/ps_0", "{}", 0)} {
		s.Propose(write(0, op), func(zxid uint64, o *view.Outcome, err error) { done <- answer{zxid, o, err} })
	}
	for _, want := range []int32{0, 0, view.CodeBadArguments} {
		if a := <-done; a.err != nil || a.o.Code != want {
			t.Errorf("%+v, want code %d", a, want)
		}
	}
}
