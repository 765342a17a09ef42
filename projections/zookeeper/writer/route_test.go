package writer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

const loadMeta = `{"model_name": "m1", "model_dir": "/d", "ckpt": null, "num_shard": -1, "action": "NONE", "spec_replicas": [], "later": 1}`

func setNode(path, data string, version int32) *znode.Op {
	return &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: []byte(data), Version: version}}}
}

// routedWrites are writes in their order, their answers, and what the portal is asked.
var routedWrites = []struct {
	name  string
	ops   []*znode.Op
	code  wire.Code
	calls string
}{
	{"parents are generic", []*znode.Op{makeNode("/test", "", 0), makeNode("/test/portal", "", 0), makeNode("/test/publish", "", 0), makeNode("/test/layouts", "", 0), makeNode("/test/layouts/l", "", 0)}, 0, ""},
	{"load", []*znode.Op{makeNode("/test/portal/m1", loadMeta, 0)}, 0, `{"modelDir":"/d","modelName":"m1","numShard":-1}`},
	{"there already", []*znode.Op{makeNode("/test/portal/m1", loadMeta, 0)}, wire.NodeExists, ""},
	{"another version", []*znode.Op{setNode("/test/portal/m1", loadMeta, 7)}, wire.BadVersion, ""},
	{"another name", []*znode.Op{setNode("/test/portal/m1", `{"model_name":"m2"}`, -1)}, wire.BadArguments, ""},
	{"no JSON", []*znode.Op{setNode("/test/portal/m1", `x`, -1)}, wire.BadArguments, ""},
	{"refused", []*znode.Op{setNode("/test/portal/m1", `{"model_dir":"/refuse"}`, -1)}, wire.BadArguments, `{"modelDir":"/refuse","modelName":"m1"}`},
	{"a sequence", []*znode.Op{makeNode("/test/portal/m", loadMeta, znode.Mode_PERSISTENT_SEQUENTIAL)}, wire.BadArguments, ""},
	{"in a multi", []*znode.Op{makeNode("/free", "", 0), remove("/test/portal/m1"), makeNode("/free2", "", 0)}, wire.BadArguments, ""},
	{"unload", []*znode.Op{remove("/test/portal/m1")}, 0, `{"modelName":"m1","reason":"the node was deleted through ZooKeeper"}`},
	{"not there", []*znode.Op{remove("/test/portal/m1")}, wire.NoNode, ""},
	{"the publisher's", []*znode.Op{makeNode("/test/publish/0:0:m1", "", 0)}, wire.NoAuth, ""},
	{"no parent", []*znode.Op{makeNode("/test/saved_models/m/ps_0", "{}", 0)}, wire.NoNode, ""},
	{"a refused entry", []*znode.Op{makeNode("/test/layouts/l/refuse:entry", "", 0)}, wire.BadArguments, `{"entry":"refuse:entry","layout":"l"}`},
	{"of another namespace", []*znode.Op{makeNode("/other", "", 0)}, 0, ""},
	{"deeper than a model", []*znode.Op{makeNode("/test/portal/m1", loadMeta, 0)}, 0, `{"modelDir":"/d","modelName":"m1","numShard":-1}`},
	{"below a model", []*znode.Op{makeNode("/test/portal/m1/x", "", 0)}, 0, ""},
	{"not empty", []*znode.Op{remove("/test/portal/m1")}, wire.NotEmpty, ""},
}

// portalOn serves the portal's commands until the test ends, and says what it was asked.
func portalOn(t *testing.T, b bus.Bus) <-chan string {
	t.Helper()
	calls := make(chan string, 100)
	fact := func(e *model.Event) bus.Handler {
		return func(ctx context.Context, payload []byte) ([]byte, error) {
			calls <- string(payload)
			if strings.Contains(string(payload), "refuse") {
				return nil, &bus.CommandError{Code: bus.CodeInvalid, Message: "not that one"}
			}
			seqs, err := b.Log().Append(ctx, bus.Draft{Subject: events.Join(namespace, "model", "m1"), Event: e, Expect: bus.Any})
			if err != nil {
				return nil, err
			}
			return fmt.Appendf(nil, `{"seq":%d}`, seqs[0]), nil
		}
	}
	accepted := &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: "m1", ModelDir: "/d", NumShard: 1, Version: 1}}}}
	gone := &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "r"}}}
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: namespace, Name: "portal", Version: "1.0.0", Description: "d",
		Endpoints: map[string]bus.Handler{
			"load": fact(accepted), "unload": fact(gone),
			"declareSavedModel": fact(nil), "addLayoutEntry": fact(nil), "removeSavedModel": fact(nil), "removeLayoutEntry": fact(nil),
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return calls
}

// Writes to a service's paths become its commands; its refusals are answered and parked.
func TestRoutes(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	calls := portalOn(t, b)
	s := newTestWriter(t, b)
	s.leads(t)
	for _, tc := range routedWrites {
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
	if err != nil || len(letters) != 2 || letters[0].By != "replica-registry.zookeeper" || letters[0].Reason != "not that one" ||
		letters[0].Subject != "monolith.test.model.m1.request" || !strings.Contains(string(letters[0].Data), `"loadRequested"`) {
		t.Errorf("letters %+v, %v", letters, err)
	}
	// Pipelined behind its own parents, a routed write still finds them.
	done := make(chan answer, 3)
	for _, op := range []*znode.Op{makeNode("/test/saved_models", "", 0), makeNode("/test/saved_models/refuse", "", 0), makeNode("/test/saved_models/refuse/ps_0", "{}", 0)} {
		s.Propose(write(0, op), func(zxid uint64, o *tree.Outcome, err error) { done <- answer{zxid, o, err} })
	}
	for _, want := range []wire.Code{0, 0, wire.BadArguments} {
		if a := <-done; a.err != nil || a.o.Code != want {
			t.Errorf("%+v, want code %d", a, want)
		}
	}
}

// A multi with a part that a service would decide on is refused whole: its answer names that part,
// and what stands behind it was not looked at.
func TestARefusedMultiNamesItsPart(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	a := s.ask(write(0, makeNode("/free", "", 0), remove("/test/portal/m1"), setNode("/free", "", -1)))
	want := &tree.Outcome{Code: wire.BadArguments, Multi: true, Results: []tree.Result{
		{Op: tree.OpCreate}, {Op: tree.OpDelete, Code: wire.BadArguments}, {Op: tree.OpSetData, Code: wire.RuntimeInconsistency}}}
	if a.err != nil || !reflect.DeepEqual(a.o, want) {
		t.Errorf("%+v, %v; want %+v", a.o, a.err, want)
	}
}

// A command waits for the writes before it. Where those will never be in the log, it is told so:
// a service must not be asked to decide on what does not stand.
func TestWhatACommandWaitsForFails(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s := newTestWriter(t, b)
	s.leads(t)
	if a := s.ask(write(0, makeNode("/free", "", 0))); a.err != nil {
		t.Fatal(a.err)
	}
	if err := s.flush(t.Context()); err != nil {
		t.Errorf("while it writes: %v", err)
	}
	s.stop()
	if err := s.flush(t.Context()); !errors.Is(err, errNotWriter) {
		t.Errorf("of a writer that has stopped: %v", err)
	}
}
