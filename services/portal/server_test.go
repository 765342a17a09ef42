package portal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/portal"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func start(t *testing.T, b bus.Bus) (stop func()) {
	t.Helper()
	s, err := portal.New(portal.Config{}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	return controltest.Start(t, s)
}

func seqOf(t *testing.T, reply string) uint64 {
	t.Helper()
	var answer struct{ Seq uint64 }
	if err := json.Unmarshal([]byte(reply), &answer); err != nil || answer.Seq == 0 {
		t.Fatalf("answer %s: %v", reply, err)
	}
	return answer.Seq
}

func refused(t *testing.T, err error, code, says string) {
	t.Helper()
	var refusal *bus.CommandError
	if !errors.As(err, &refusal) || refusal.Code != code || !strings.Contains(refusal.Message, says) {
		t.Errorf("got %v, want %s and a sentence that says %q", err, code, says)
	}
}

func TestCommands(t *testing.T) {
	b := mem.New()
	start(t, b)
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("movies"), 2, 1, 5)
	spec, err := events.Marshal(controltest.Spec("movies"))
	if err != nil {
		t.Fatal(err)
	}

	declared := seqOf(t, controltest.MustCall(t, b, "portal.declare", `{"spec":`+string(spec)+`}`))
	if again := seqOf(t, controltest.MustCall(t, b, "portal.declare", `{"spec":`+string(spec)+`}`)); again != declared {
		t.Errorf("declared at %d, the same again at %d", declared, again)
	}
	loaded := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"job":"movies","replicas":2}`, dir)))
	if again := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"model_name":"movies","model_dir":%q,"job":"movies","replicas":2,"num_shard":2,"version":"5"}`, dir))); again != loaded {
		t.Errorf("loaded at %d, the same in other words at %d", loaded, again)
	}
	accepted := controltest.Next(t, b, loaded, controltest.Of("loadAccepted")).Event.(*model.Event).GetLoadAccepted().GetLoad()
	if accepted.GetVersion() != 5 || accepted.GetNumShard() != 2 || accepted.GetReplicas() != 2 {
		t.Errorf("accepted %v", accepted)
	}

	// To follow newer versions from now on is another load.
	follows := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"job":"movies","replicas":2,"follow":true}`, dir)))
	followed := controltest.Next(t, b, follows, controltest.Of("loadAccepted")).Event.(*model.Event).GetLoadAccepted().GetLoad()
	if follows == loaded || !followed.GetFollow() || followed.GetVersion() != 5 || accepted.GetFollow() {
		t.Errorf("accepted %v at %d, after %v at %d", followed, follows, accepted, loaded)
	}
	if again := seqOf(t, controltest.MustCall(t, b, "portal.load", fmt.Sprintf(`{"modelName":"movies","modelDir":%q,"job":"movies","replicas":2,"follow":true}`, dir))); again != follows {
		t.Errorf("followed at %d, the same again at %d", follows, again)
	}

	_, err = controltest.Call(t, b, "portal.load", `{"modelName":"movies","modelDir":"/nowhere/exported_models"}`)
	refused(t, err, "INVALID", "give an exported_models folder")
	_, err = controltest.Call(t, b, "portal.load", `{"modelName":"movies","modelDri":"/x"}`)
	refused(t, err, "INVALID", "modelDri")
	_, err = controltest.Call(t, b, "portal.load", `not json`)
	refused(t, err, "INVALID", "send a body like")
	_, err = controltest.Call(t, b, "portal.declare", ``)
	refused(t, err, "INVALID", "spec is missing")
	_, err = controltest.Call(t, b, "portal.unload", `{"modelName":"shows"}`)
	refused(t, err, "NOT_FOUND", "not loaded")
	_, err = controltest.Call(t, b, "portal.unload", `{"model":"movies"}`)
	refused(t, err, "INVALID", "send a body like")
	_, err = controltest.Call(t, b, "portal.state", `{"view":"fleet"}`)
	refused(t, err, "NOT_FOUND", "catalog")

	var models []struct {
		Name   string
		Loaded bool
		Load   struct {
			Version string
			Follow  bool
		}
	}
	list := controltest.MustCall(t, b, "portal.models", "")
	if err := json.Unmarshal([]byte(list), &models); err != nil || len(models) != 1 || models[0].Name != "movies" || !models[0].Loaded || models[0].Load.Version != "5" || !models[0].Load.Follow {
		t.Errorf("models %s: %v", list, err)
	}

	unloaded := seqOf(t, controltest.MustCall(t, b, "portal.unload", `{"model_name":"movies","reason":"enough"}`))
	state := controltest.MustCall(t, b, "portal.state", `{"view":"catalog"}`)
	_, hash, err := registry.Replay(t.Context(), b.Log(), "catalog", "", unloaded)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"seq":%d,"hash":%q}`, unloaded, hash); state != want {
		t.Errorf("state %s, replay says %s", state, want)
	}
	if _, err := b.Commands().Call(t.Context(), "other", "portal.models", nil); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("a command in another namespace: %v", err)
	}
	if n := len(controltest.All(t, b)); n != 4 {
		t.Errorf("%d events, want declared, loadAccepted twice, unloadAccepted\n%s", n, controltest.Story(t, b))
	}
}

// Everything on the log is answered once: by a fact that names it, or by a letter.
func TestRequests(t *testing.T) {
	b := mem.New()
	start(t, b)
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("movies"), 2, 3)
	movies := events.Join(controltest.BZID, "model", "movies")
	frozen := events.Join(controltest.BZID, "model", "movies-frozen")

	answered := func(seq uint64, want string) *model.Event {
		t.Helper()
		request, err := b.Log().Get(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		fact := controltest.Next(t, b, seq+1, func(r events.Recorded) bool {
			return r.Header.Causation == request.Header.ID && r.Header.Type == want
		})
		if fact.Header.Correlation != request.Header.ID || fact.Header.Source != "portal" {
			t.Errorf("header of the answer: %+v", fact.Header)
		}
		return fact.Event.(*model.Event)
	}

	load := controltest.Publish(t, b, frozen.Request(), fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"movies-frozen","modelDir":%q}}}`, dir))
	if spec := answered(load, "declared").GetDeclared().GetSpec(); spec.GetName() != "movies-frozen" || len(spec.GetTables()) == 0 {
		t.Errorf("declared %v", spec)
	}
	if got := answered(load, "loadAccepted").GetLoadAccepted().GetLoad(); got.GetVersion() != 3 || got.GetNumShard() != 2 {
		t.Errorf("accepted %v", got)
	}
	again := controltest.Publish(t, b, frozen.Request(), fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"movies-frozen","modelDir":%q}}}`, dir))
	answered(again, "loadAccepted")
	gone := controltest.Publish(t, b, movies.Request(), `{"loadRequested":{"load":{"modelName":"movies","modelDir":"/nowhere/exported_models"}}}`)
	if reason := answered(gone, "loadRefused").GetLoadRefused().GetReason(); !strings.Contains(reason, "cannot be read") {
		t.Errorf("reason %q", reason)
	}
	answered(controltest.Publish(t, b, frozen.Request(), `{"unloadRequested":{"reason":"r"}}`), "unloadAccepted")
	answered(controltest.Publish(t, b, frozen.Request(), `{"unloadRequested":{"reason":"r"}}`), "unloadRefused")
	answered(controltest.Publish(t, b, movies.Request(), `{"declareRequested":{"spec":{"name":"movies"}}}`), "declareRefused")

	for _, tc := range []struct {
		name, data string
		subject    events.Subject
	}{
		{"not json", `not json`, movies.Request()},
		{"cut short", `{"loadRequested":{"load":`, movies.Request()},
		{"unknown request", `{"painted":{}}`, movies.Request()},
		{"unknown field", `{"loadRequested":{"load":{"modelName":"movies","modelDir":"/x","colour":1}}}`, movies.Request()},
		{"another model's body", fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"shows","modelDir":%q}}}`, dir), movies.Request()},
		{"a fact as a request", `{"unloadAccepted":{}}`, movies.Request()},
		{"a request as a fact", `{"unloadRequested":{}}`, movies},
		{"garbage as a fact", `{}`, movies},
	} {
		seq := controltest.Publish(t, b, tc.subject, tc.data)
		if l := controltest.Letter(t, b, seq); l.By != "portal" || l.Reason == "" || l.Subject != string(tc.subject) || string(l.Data) != tc.data {
			t.Errorf("%s: letter %+v", tc.name, l)
		}
	}
	other := controltest.Publish(t, b, "monolith.other.model.movies.request", `not json`)
	answered(controltest.Publish(t, b, frozen.Request(), `{"unloadRequested":{"reason":"still there"}}`), "unloadRefused")
	letters, err := b.DeadLetters().List(t.Context())
	if err != nil || len(letters) != 8 {
		t.Errorf("%d letters, %v; want 8, none about another namespace's event %d", len(letters), err, other)
	}
}

// A portal that starts answers what arrived while nobody was there, and nothing twice.
func TestRestart(t *testing.T) {
	b := mem.New()
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	subject := events.Join(controltest.BZID, "model", "m")
	request := fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"m","modelDir":%q}}}`, dir)
	stop := start(t, b)
	first := controltest.Publish(t, b, subject.Request(), request)
	controltest.Next(t, b, first, controltest.Of("loadAccepted"))
	junk := controltest.Publish(t, b, subject.Request(), `junk`)
	controltest.Letter(t, b, junk)
	controltest.MustCall(t, b, "portal.unload", `{"modelName":"m"}`)
	stop()
	late := controltest.Publish(t, b, subject.Request(), `{"unloadRequested":{}}`)
	lateJunk := controltest.Publish(t, b, subject.Request(), `more junk`)
	before := len(controltest.All(t, b))

	start(t, b)
	controltest.Next(t, b, late, controltest.Of("unloadRefused"))
	controltest.Letter(t, b, lateJunk)
	if n := len(controltest.All(t, b)); n != before+1 {
		t.Errorf("%d new events, want the late answer alone\n%s", n-before, controltest.Story(t, b))
	}
	if letters, _ := b.DeadLetters().List(t.Context()); len(letters) != 2 {
		t.Errorf("%d letters, want 2", len(letters))
	}
}

// Two portals race: each request and each command still has one outcome.
func TestTwoPortals(t *testing.T) {
	b := mem.New()
	start(t, b)
	start(t, b)
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	subject := events.Join(controltest.BZID, "model", "m")
	var wg sync.WaitGroup
	replies := make([]string, 8)
	for i := range replies {
		wg.Go(func() {
			replies[i], _ = controltest.Call(t, b, "portal.load", fmt.Sprintf(`{"modelName":"m","modelDir":%q}`, dir))
		})
	}
	wg.Wait()
	for _, r := range replies {
		if r == "" || r != replies[0] {
			t.Fatalf("answers differ: %q\n%s", replies, controltest.Story(t, b))
		}
	}
	if n := controltest.Count(t, b, controltest.Of("loadAccepted", "declared")); n != 2 {
		t.Fatalf("%d facts for one load, want declared and loadAccepted\n%s", n, controltest.Story(t, b))
	}
	const requests = 20
	last := uint64(0)
	for range requests {
		last = controltest.Publish(t, b, subject.Request(), `{"unloadRequested":{"reason":"r"}}`)
	}
	id, err := b.Log().Get(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Next(t, b, last, func(r events.Recorded) bool { return r.Header.Causation == id.Header.ID })
	if n := controltest.Count(t, b, controltest.Of("unloadAccepted", "unloadRefused")); n != requests {
		t.Errorf("%d answers to %d requests\n%s", n, requests, controltest.Story(t, b))
	}
	if n := controltest.Count(t, b, controltest.Of("unloadAccepted")); n != 1 {
		t.Errorf("%d unloads accepted, want 1", n)
	}
}

// slow is a bus whose followers see the log late; commands are answered all the same.
type slow struct{ bus.Bus }

type slowLog struct{ bus.Log }

func (s slow) Log() bus.Log { return slowLog{s.Bus.Log()} }

func (l slowLog) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	return l.Log.Follow(ctx, from, until, func(r events.Recorded) error {
		time.Sleep(time.Second) // of synctest's clock
		return handle(r)
	})
}

// Who has seen a fact is never refused for it by a portal whose view is late.
func TestLateView(t *testing.T) {
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		stop := start(t, slow{b})
		subject := events.Join(controltest.BZID, "model", "m")
		load := &model.Load{ModelName: "m", ModelDir: dir, Version: 1, NumShard: 1, Replicas: 1}
		if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: subject, Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: load}}}}); err != nil {
			t.Fatal(err)
		}
		controltest.MustCall(t, b, "portal.unload", `{"modelName":"m"}`)
		stop()
	})
}

// A running job's declaration does not change under it, whoever asks and by whatever way;
// once the job is stopped it may.
func TestDeclareUnderARunningJob(t *testing.T) {
	b := mem.New()
	start(t, b)
	declare := func(threshold float64) string {
		spec := controltest.Spec("movies")
		spec.Label.Threshold = threshold
		text, err := events.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tell := func(body string) {
		t.Helper()
		controltest.Publish(t, b, events.Join(controltest.BZID, "training", "job"), body)
	}
	spec := controltest.Spec("movies")
	spec.Label.Threshold = 3.5
	controltest.MustCall(t, b, "portal.declare", `{"spec":`+declare(3.5)+`}`)
	tell(`{"jobStarted":{"job":"job","modelName":"movies","topic":"ratings","partitions":1,"shards":1,"specHash":"` + modelspec.Hash(spec) + `"}}`)
	_, err := controltest.Call(t, b, "portal.declare", `{"spec":`+declare(4.5)+`}`)
	refused(t, err, "INVALID", "training.job.request")
	asked := controltest.Publish(t, b, events.Join(controltest.BZID, "model", "movies").Request(), `{"declareRequested":{"spec":`+declare(4.5)+`}}`)
	controltest.Next(t, b, asked, controltest.Of("declareRefused"))
	controltest.MustCall(t, b, "portal.declare", `{"spec":`+declare(3.5)+`}`) // what it learns
	tell(`{"jobStopped":{"reason":"enough"}}`)
	controltest.MustCall(t, b, "portal.declare", `{"spec":`+declare(4.5)+`}`)
}
