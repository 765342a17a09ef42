package portal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/portal"
)

// savedModel is a graph whose one node calls the named model.
func savedModel(calls string) []byte {
	field := func(n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value)
	}
	attr := append(field(1, []byte("model_name")), field(2, field(2, []byte(calls)))...)
	node := append(field(2, []byte("TfServingRemotePredict")), field(5, attr)...)
	return field(2, field(2, field(1, node)))
}

// tfExport is an export as TensorFlow leaves it, with stray files.
func tfExport(t *testing.T, calls string, subs ...string) string {
	t.Helper()
	base := filepath.Join(t.TempDir(), "exported_models")
	files := map[string][]byte{"README": nil, ".hidden/1/saved_model.pb": nil}
	for _, sub := range subs {
		files[sub+"/1622716114/saved_model.pb"] = []byte{}
	}
	files["entry/1622716114/saved_model.pb"] = savedModel(calls)
	for path, data := range files {
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

type changed struct {
	Seq     uint64
	Model   string
	Subs    []string
	Entries []string
}

// asked is a portal that is asked for layouts.
type asked struct {
	t *testing.T
	b *mem.Bus
}

func (p asked) call(command, body string) (out changed) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(controltest.MustCall(p.t, p.b, "portal."+command, body)), &out); err != nil || out.Seq == 0 {
		p.t.Fatalf("%s %s: %+v, %v", command, body, out, err)
	}
	return out
}

func (p asked) no(command, body, code, says string) {
	p.t.Helper()
	_, err := controltest.Call(p.t, p.b, "portal."+command, body)
	refused(p.t, err, code, says)
}

type bzidInfo struct {
	Models  map[string]map[string]any `json:"model_info"`
	Layouts map[string][]string       `json:"layout_info"`
}

func (p asked) info() (out bzidInfo) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(controltest.MustCall(p.t, p.b, "portal.bzidInfo", `{}`)), &out); err != nil {
		p.t.Fatal(err)
	}
	return out
}

const l = `"layout":"test_layout1"`

// publishSteps are commands, what they change, and what the layout then holds.
var publishSteps = []struct {
	command, body string
	changed, now  []string
}{
	{"publish", `{` + l + `,"pattern":"test_ffm_model:entry"}`, []string{"entry"}, []string{"entry"}},
	{"publish", `{` + l + `,"pattern":"test_ffm_model:ps_?"}`, []string{"ps_0", "ps_1", "ps_2", "ps_3", "ps_4"}, []string{"entry", "ps_0", "ps_1", "ps_2", "ps_3", "ps_4"}},
	{"publish", `{` + l + `,"pattern":"test_ffm_model:ps_[0-1]*"}`, []string{"ps_10"}, []string{"entry", "ps_0", "ps_1", "ps_10", "ps_2", "ps_3", "ps_4"}},
	{"publish", `{` + l + `,"pattern":"test_ffm_model:*"}`, []string{}, []string{"entry", "ps_0", "ps_1", "ps_10", "ps_2", "ps_3", "ps_4"}},
	{"unpublish", `{` + l + `,"pattern":"test_ffm_model:ps_*"}`, []string{"ps_0", "ps_1", "ps_10", "ps_2", "ps_3", "ps_4"}, []string{"entry"}},
	{"addLayoutEntry", `{` + l + `,"entry":"test_ffm_model:undeclared"}`, []string{"undeclared"}, []string{"entry", "undeclared"}},
	{"unpublish", `{` + l + `,"pattern":"test_ffm_model:undecl*"}`, []string{"undeclared"}, []string{"entry"}},
	{"addLayoutEntry", `{` + l + `,"entry":"test_ffm_model:entry"}`, []string{}, []string{"entry"}},
	{"removeLayoutEntry", `{` + l + `,"entry":"test_ffm_model:entry"}`, []string{"entry"}, []string{}},
	{"addLayoutEntry", `{"layout":"nested/mixed","entry":"test_ffm_model:entry"}`, []string{"entry"}, []string{}},
}

// The original's controller test, and what it leaves out.
func TestDeclareAndPublish(t *testing.T) {
	b := mem.New()
	start(t, b)
	p := asked{t, b}
	declareAndAgain(t, p)
	full := func(subs []string) []string {
		out := []string{}
		for _, s := range subs {
			out = append(out, "test_ffm_model:"+s)
		}
		return out
	}
	for _, step := range publishSteps {
		got := p.call(step.command, step.body)
		if diff := cmp.Diff(full(step.changed), got.Entries); diff != "" {
			t.Errorf("%s %s changed: %s", step.command, step.body, diff)
		}
		if diff := cmp.Diff(full(step.now), p.info().Layouts["test_layout1"]); diff != "" {
			t.Errorf("%s %s: %s", step.command, step.body, diff)
		}
	}
	if got := p.info().Layouts["nested"]; fmt.Sprint(got) != "[mixed]" {
		t.Errorf("a layout of two steps: %v", got)
	}
	p.no("publish", `{`+l+`,"pattern":"test_ffm_model:dense_*"}`, "NOT_FOUND", "it has entry, ps_0")
	p.no("publish", `{`+l+`,"pattern":"nobody:*"}`, "NOT_FOUND", "it has none")
	p.no("publish", `{`+l+`,"pattern":"test_ffm_model"}`, "INVALID", "{model}:{glob}")
	p.no("publish", `{"layout":"../x","pattern":"test_ffm_model:*"}`, "INVALID", "cannot be a name")
	p.no("publish", `{"layuot":"x"}`, "INVALID", "layuot")
	p.no("addLayoutEntry", `{`+l+`,"entry":"no colon"}`, "INVALID", "{model}:{sub_graph}")
	p.no("removeLayoutEntry", `{`+l+`,"entry":"test_ffm_model:entry"}`, "NOT_FOUND", "does not hold")
}

// declareAndAgain declares an export, once more, under another name, and what none is.
func declareAndAgain(t *testing.T, p asked) {
	t.Helper()
	base := tfExport(t, "test_ffm_model:ps_0", "ps_0", "ps_1", "ps_2", "ps_3", "ps_4", "ps_10")
	export := func(more string) string { return fmt.Sprintf(`{"exportBase":%q%s}`, base, more) }
	declared := p.call("declareExport", export(`,"arch":"entry_ps"`))
	if want := []string{"entry", "ps_0", "ps_1", "ps_10", "ps_2", "ps_3", "ps_4"}; declared.Model != "test_ffm_model" || !cmp.Equal(declared.Subs, want) {
		t.Errorf("declared %+v", declared)
	}
	one := p.info().Models["test_ffm_model"]
	for sub, policy := range map[string]string{"entry": "latest", "ps_4": "latest_once"} {
		want := fmt.Sprintf(`{"model_base_path": %q, "version_policy": %q}`, filepath.Join(base, sub), policy)
		if got := one[sub].(map[string]any)["deploy_config"]; got != want {
			t.Errorf("%s: %v, want %s", sub, got, want)
		}
	}
	if one["sub_graphs_total"] != 7.0 || one["sub_graphs_available"] != 0.0 {
		t.Errorf("%v", one)
	}
	p.no("declareExport", export(``), "CONFLICT", "say overwrite")
	if again := p.call("declareExport", export(`,"overwrite":true`)); again.Seq <= declared.Seq {
		t.Errorf("overwritten at %d, declared at %d", again.Seq, declared.Seq)
	}
	if named := p.call("declareExport", export(`,"model":"other"`)); named.Model != "other" {
		t.Errorf("declared under another name: %+v", named)
	}
	p.no("declareExport", export(`,"arch":"full"`), "INVALID", "only entry_ps")
	p.no("declareExport", export(`,"model":"a:b"`), "INVALID", "cannot be used")
	p.no("declareExport", `{"exportBase":"exported_models"}`, "INVALID", "not absolute")
	p.no("declareExport", `{"exportBase":"/nowhere"}`, "INVALID", "cannot be read")
	p.no("declareExport", fmt.Sprintf(`{"exportBase":%q}`, t.TempDir()), "INVALID", "does not hold entry/")
	p.no("declareExport", fmt.Sprintf(`{"exportBase":%q}`, tfExport(t, "")), "INVALID", "name the model")
}

func TestSavedModels(t *testing.T) {
	b := mem.New()
	start(t, b)
	const config = `{"model_base_path":"/d/ps_0","version_policy":"latest_once"}`
	seq := seqOf(t, controltest.MustCall(t, b, "portal.declareSavedModel", `{"model":"m","sub":"ps_0","config":`+config+`}`))
	if again := seqOf(t, controltest.MustCall(t, b, "portal.declareSavedModel", `{"model":"m","sub":"ps_0","config":`+config+`}`)); again != seq {
		t.Errorf("declared at %d, the same again at %d", seq, again)
	}
	const other = `{"modelBasePath":"/e/ps_0","versionPolicy":null}`
	_, err := controltest.Call(t, b, "portal.declareSavedModel", `{"model":"m","sub":"ps_0","config":`+other+`}`)
	refused(t, err, "CONFLICT", "say overwrite")
	seqOf(t, controltest.MustCall(t, b, "portal.declareSavedModel", `{"model":"m","sub":"ps_0","config":`+other+`,"overwrite":true}`))
	seqOf(t, controltest.MustCall(t, b, "portal.declareSavedModel", `{"model":"m","sub":"entry","config":{}}`)) // a model grows without overwrite
	_, err = controltest.Call(t, b, "portal.declareSavedModel", `{"model":"m","sub":"entry"}`)
	refused(t, err, "INVALID", "config is missing")
	_, err = controltest.Call(t, b, "portal.declareSavedModel", `{"model":"m","sub":"a/b","config":{}}`)
	refused(t, err, "INVALID", "one step of a path")
	_, err = controltest.Call(t, b, "portal.declareSavedModel", `{"model":"m","sub":"entry","config":{"policy":"x"}}`)
	refused(t, err, "INVALID", "policy")
	seqOf(t, controltest.MustCall(t, b, "portal.removeSavedModel", `{"model":"m","sub":"ps_0"}`))
	_, err = controltest.Call(t, b, "portal.removeSavedModel", `{"model":"m","sub":"ps_0"}`)
	refused(t, err, "NOT_FOUND", "m:ps_0 is not declared")
}

// answered is the portal's fact of a type about a request.
func answered(t *testing.T, b *mem.Bus, seq uint64, want string) *layout.Event {
	t.Helper()
	request, err := b.Log().Get(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	fact := controltest.Next(t, b, seq+1, func(r events.Recorded) bool {
		return r.Header.Causation == request.Header.ID
	})
	if fact.Header.Type != want || fact.Header.Source != "portal" {
		t.Errorf("%s is answered by %s: %s", request.Data, fact.Header.Type, fact.Data)
	}
	return fact.Event.(*layout.Event)
}

// Anyone may publish the requests; each is answered by one fact or parked.
func TestLayoutRequests(t *testing.T) {
	b := mem.New()
	stop := start(t, b)
	base := tfExport(t, "m:ps_0", "ps_0")
	models := events.Join(controltest.BZID, "layout", "saved_models/m")
	mixed := events.Join(controltest.BZID, "layout", "layouts/mixed")
	for _, tc := range []struct {
		subject    events.Subject
		body, want string
		reason     string
	}{
		{models, `{"declareRequested":{"savedModel":{"subGraph":"dense_0","config":{"modelBasePath":"/d","versionPolicy":"latest"}}}}`, "savedModelsDeclared", ""},
		{models, `{"declareRequested":{"savedModel":{"subGraph":"dense_0","config":{"modelBasePath":"/d","versionPolicy":"latest"}}}}`, "savedModelsDeclared", ""},
		{models, `{"declareRequested":{"savedModel":{"subGraph":"dense_0","config":{"modelBasePath":"/e"}}}}`, "refused", "say overwrite"},
		{models, fmt.Sprintf(`{"declareExportRequested":{"exportBase":%q}}`, base), "refused", "1 saved models declared"},
		{models, fmt.Sprintf(`{"declareExportRequested":{"exportBase":%q,"overwrite":true}}`, base), "savedModelsDeclared", ""},
		{models, `{"declareExportRequested":{"exportBase":"/nowhere"}}`, "refused", "cannot be read"},
		{models, `{"removeRequested":{"subGraph":"dense_0"}}`, "savedModelsRemoved", ""},
		{models, `{"removeRequested":{"subGraph":"dense_0"}}`, "refused", "not declared"},
		{mixed, `{"publishRequested":{"pattern":"m:*"}}`, "entriesAdded", ""},
		{mixed, `{"publishRequested":{"pattern":"m:*"}}`, "refused", "nothing to do"},
		{mixed, `{"unpublishRequested":{"pattern":"m:ps_*"}}`, "entriesRemoved", ""},
		{mixed, `{"unpublishRequested":{"pattern":"x:ps_*"}}`, "refused", "it has none"},
		{mixed, `{"addEntryRequested":{"entry":"m:new"}}`, "entriesAdded", ""},
		{mixed, `{"removeEntryRequested":{"entry":"m:new"}}`, "entriesRemoved", ""},
	} {
		e := answered(t, b, controltest.Publish(t, b, tc.subject.Request(), tc.body), tc.want)
		if reason := e.GetRefused().GetReason(); !strings.Contains(reason, tc.reason) {
			t.Errorf("%s: %q", tc.body, reason)
		}
		if tc.want == "refused" && !strings.Contains(tc.body, e.GetRefused().GetRequest()) {
			t.Errorf("%s: refused as %s", tc.body, e.GetRefused().GetRequest())
		}
	}
	parked := 0
	for _, tc := range []struct {
		name, data string
		subject    events.Subject
	}{
		{"not json", `not json`, models.Request()},
		{"a layout's request to a model", `{"publishRequested":{"pattern":"m:*"}}`, models.Request()},
		{"a model's request to a layout", `{"removeRequested":{"subGraph":"x"}}`, mixed.Request()},
		{"no entry", `{"addEntryRequested":{}}`, mixed.Request()},
		{"an unknown field", `{"addEntryRequested":{"entyr":"m:x"}}`, mixed.Request()},
		{"a subject of neither", `{"removeRequested":{"subGraph":"x"}}`, events.Join(controltest.BZID, "layout", "x").Request()},
		{"a fact from outside", `{"entriesAdded":{"entries":["m:x"]}}`, mixed.Request()},
		{"a request as a fact", `{"publishRequested":{"pattern":"m:*"}}`, mixed},
	} {
		seq := controltest.Publish(t, b, tc.subject, tc.data)
		if l := controltest.Letter(t, b, seq); l.By != "portal" || l.Reason == "" {
			t.Errorf("%s: letter %+v", tc.name, l)
		}
		parked++
	}
	stop()
	late := controltest.Publish(t, b, mixed.Request(), `{"addEntryRequested":{"entry":"m:late"}}`)
	before := len(controltest.All(t, b))
	start(t, b)
	answered(t, b, late, "entriesAdded")
	if extra := len(controltest.All(t, b)) - before; extra != 1 {
		t.Errorf("a restart appended %d facts, want the one that was owed\n%s", extra, controltest.Story(t, b))
	}
	letters, err := b.DeadLetters().List(t.Context())
	if err != nil || len(letters) != parked {
		t.Errorf("%d letters, %v, want %d", len(letters), err, parked)
	}
}

// Who pushes parameters of a sub-graph asks by which name, and to whom.
func TestSyncTargets(t *testing.T) {
	b := mem.New()
	start(t, b)
	for id, stat := range map[string]replica.State{"a": replica.State_AVAILABLE, "b": replica.State_LOADING} {
		c := &container.Container{Id: id, Kind: "serving", GrpcAddress: "10.0.0.1:" + id}
		r := &replica.Replica{ModelName: "m", ServerType: "ps", Task: 3, Replica: int32(id[0]), Container: id, Stat: stat}
		_, err := b.Log().Append(t.Context(),
			bus.Draft{Subject: events.Join(controltest.BZID, "container", id), Event: &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}}},
			bus.Draft{Subject: events.Join(controltest.BZID, "replica", r.Key()), Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(controltest.Patience); ; {
		got := controltest.MustCall(t, b, "portal.syncTargets", `{"model":"m","sub":"ps_3"}`)
		if got == `{"name":"m:ps_3","targets":["10.0.0.1:a"]}` {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("targets %s", got)
		}
	}
	if got := controltest.MustCall(t, b, "portal.syncTargets", `{"model":"m","sub":"ps_4"}`); got != `{"name":"m:ps_4","targets":[]}` {
		t.Errorf("of what nobody serves: %s", got)
	}
	_, err := controltest.Call(t, b, "portal.syncTargets", `{"model":"m"}`)
	refused(t, err, "INVALID", "model and sub must be given")
}

// Two commands about one layout at once: both hold in the end.
func TestLayoutConflicts(t *testing.T) {
	b := mem.New()
	start(t, b)
	s, err := portal.New(portal.Config{}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	const n = 40
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := b.Commands().Call(t.Context(), controltest.BZID, "portal.addLayoutEntry", fmt.Appendf(nil, `{"layout":"l","entry":"m:ps_%d"}`, i))
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	added := 0
	for _, r := range controltest.All(t, b) {
		added += len(r.Event.(*layout.Event).GetEntriesAdded().GetEntries())
	}
	if added != n {
		t.Errorf("%d entries were added, want %d", added, n)
	}
}

func TestBZIDInfoShowsWhoServes(t *testing.T) {
	b := mem.New()
	start(t, b)
	controltest.MustCall(t, b, "portal.declareSavedModel", `{"model":"m","sub":"ps_0","config":{"model_base_path":"/d/ps_0"}}`)
	c := &container.Container{Id: "pod-1", Kind: "serving", Idc: "lq", GrpcAddress: "10.0.0.1:3"}
	x := &replica.Replica{ModelName: "m", ServerType: "ps", Container: "pod-1", Stat: replica.State_AVAILABLE, Version: 1}
	put := func(context, aggregate string, e proto.Message) uint64 {
		t.Helper()
		seqs, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, context, aggregate), Event: e, Expect: bus.Any})
		if err != nil {
			t.Fatal(err)
		}
		return seqs[0]
	}
	put("container", "pod-1", &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}})
	last := put("replica", x.Key(), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: x}}})
	// A command's answer is in the view, and so is all that was stored before it.
	if seq := seqOf(t, controltest.MustCall(t, b, "portal.addLayoutEntry", `{"layout":"l","entry":"m:ps_0"}`)); seq <= last {
		t.Fatalf("added at %d, after %d", seq, last)
	}
	got := controltest.MustCall(t, b, "portal.bzidInfo", ``)
	for _, want := range []string{`"unknown;lq;None:pod-1"`, `"m:ps_0"`, `"sub_graphs_available": 1`, `"saved_models": [`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
