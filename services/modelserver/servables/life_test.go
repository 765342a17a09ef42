package servables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// viewing is a keeper of which only the views run, on a bus of its own.
func viewing(t *testing.T, frozen bool) (*keeper, *mem.Bus) {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	pool := rowwire.NewPool(nil)
	o := Options{BZID: "b", Container: "c", Frozen: frozen, Linger: 5 * time.Second, Poll: time.Second, LoadBytes: 256 << 20, Bus: b,
		Plan:    follow.New(b.Log(), registry.Plan.Only("b"), follow.Options{}),
		Fleet:   follow.New(b.Log(), registry.Fleet.Only("b"), follow.Options{}),
		Lineage: follow.New(b.Log(), registry.Lineage.Only("b"), follow.Options{}),
		Metrics: rows.NewMetrics(nil, "c"), Health: health.New(), Log: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer("")}
	o.Rows = rows.NewClient(o.Fleet, pool, o.Metrics, time.Second, 0)
	o.Fresh = rows.NewFreshness(o.BZID, o.Container, b.Signals(), o.Metrics, o.Log)
	s := newKeeper(o)
	s.manager = newManager(s.serve, o.Linger, o.Health)
	ctx, stop := context.WithCancel(context.Background())
	var views sync.WaitGroup
	for _, run := range []func(context.Context) error{s.Plan.Run, s.Fleet.Run, s.Lineage.Run} {
		views.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() { stop(); views.Wait(); pool.Close() })
	for _, ready := range []<-chan struct{}{s.Plan.Ready(), s.Fleet.Ready(), s.Lineage.Ready()} {
		<-ready
	}
	return s, b
}

func appended(t *testing.T, b bus.Bus, context, aggregate string, e proto.Message) {
	t.Helper()
	if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join("b", context, aggregate), Event: e, Expect: bus.Any}); err != nil {
		t.Fatal(err)
	}
}

func planned(version int64, numPS uint32, job string) *publish.Event {
	subs := map[string]string{"entry": fmt.Sprint("/m/entry/", version)}
	for k := range numPS {
		subs[fmt.Sprint("ps_", k)] = fmt.Sprintf("/m/ps_%d/%d", k, version)
	}
	return &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{ModelName: "m", ModelDir: "/m", Version: version, NumPs: numPS, Job: job, Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c", SubModels: subs}}}}}
}

func exportedFact(version int64) *training.Event {
	return &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: version, ModelDir: "/m", SubModels: []string{"entry", "ps_0"}}}}
}

func startedFact(job string) *training.Event {
	return &training.Event{Body: &training.Event_JobStarted{JobStarted: &training.JobStarted{Job: job, ModelName: "m", Topic: "t", Partitions: 1, Shards: 1}}}
}

// step is a fact, and what it does to the version that is served.
type step struct {
	context, aggregate string
	event              proto.Message
	ends               error // nil: it is kept
}

// keptThrough serves version 3 of m:ps_0, and appends the steps until one should end it.
func keptThrough(t *testing.T, before, steps []step, frozen, stale bool) {
	s, b := viewing(t, frozen)
	for _, x := range before {
		appended(t, b, x.context, x.aggregate, x.event)
	}
	synctest.Wait()
	v := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: filepath.Join(t.TempDir(), "ps_0")}
	g := &servable{ps: &rows.Shard{Model: "m", Shards: 1}, job: "j", shards: 1, contained: map[uint32]uint64{}, epochs: map[uint32]uint64{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- s.keep(ctx, v, g, exportLocation{v.basePath, 3}, s.targetOf(v), stale)
	}()
	synctest.Wait()
	if v.state != stateAvailable {
		t.Errorf("it is %v", v.state)
	}
	if got := s.Health.Summary(); (got != "") != stale || stale && !strings.Contains(got, "it is served as it was exported") {
		t.Errorf("health %q", got)
	}
	for i, x := range steps {
		appended(t, b, x.context, x.aggregate, x.event)
		synctest.Wait()
		select {
		case err := <-ended:
			if x.ends == nil || !errors.Is(err, x.ends) {
				t.Errorf("step %d ends it with %v, want %v", i, err, x.ends)
			}
			return
		default:
			if x.ends != nil {
				t.Errorf("step %d: it is kept, want %v", i, x.ends)
			}
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("at the end of ctx: %v", err)
	}
}

// What ends the serving of a version: another plan for it, its job where there is no plan, a
// newer export of one whose deltas are gone; nothing else does.
func TestWhatAVersionIsKeptThrough(t *testing.T) {
	for name, tc := range map[string]struct {
		before []step
		stale  bool
		frozen bool
		steps  []step
	}{
		"plans": {[]step{{"publish", "m", planned(3, 1, "j"), nil}}, false, false, []step{
			{"publish", "m", planned(3, 1, "j"), nil},
			{"publish", "m", planned(4, 2, "j"), nil}, // of another version: whoever configures says so
			{"publish", "m", planned(4, 1, "k"), nil},
			{"training", "j", exportedFact(9), nil},
			{"publish", "m", planned(3, 2, "j"), errPlanChanged},
		}},
		"another job": {[]step{{"publish", "m", planned(3, 1, "j"), nil}}, false, false, []step{{"publish", "m", planned(3, 1, "k"), errPlanChanged}}},
		"no plan, and its job": {nil, false, false, []step{
			{"training", "k", startedFact("k"), nil},
			{"training", "j", startedFact("j"), errNewJob},
		}},
		"no plan, and then one": {nil, false, false, []step{{"publish", "m", planned(3, 1, ""), errPlanChanged}}},
		"frozen":                {nil, false, true, []step{{"training", "j", startedFact("j"), nil}, {"training", "j", exportedFact(9), nil}}},
		"its deltas are gone": {[]step{{"training", "j", startedFact("j"), nil}}, true, false, []step{
			{"training", "k", startedFact("k"), nil},
			{"training", "j", exportedFact(3), nil},
			{"training", "j", exportedFact(2), nil},
			{"training", "j", exportedFact(4), errNewExport},
		}},
		"its deltas are gone, and its job comes": {nil, true, false, []step{
			{"training", "j", startedFact("j"), nil},
			{"training", "j", exportedFact(4), errNewExport},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keptThrough(t, tc.before, tc.steps, tc.frozen, tc.stale)
			})
		})
	}
}

// A version is loaded anew from where it lies, or from a newer export of its job where the
// deltas behind that are gone; a new plan makes either worth a try.
func TestWhereAVersionIsLoadedAnewFrom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ps_0")
	for version, job := range map[int64]string{3: "j", 4: "j", 5: "other", 2: "j"} {
		if _, err := checkpoint.WriteShard(filepath.Join(dir, fmt.Sprint(version)), &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: job, Shards: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		gone, replanned bool
		want            int64
	}{"it fails": {false, false, 3}, "its deltas are gone": {true, false, 4}, "another plan": {false, true, 3}, "both": {true, true, 3}} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := viewing(t, false)
			v := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: dir}
			asked := s.targetOf(v)
			asked.planned = tc.replanned
			begin := time.Now()
			g, at, now, err := s.reload(t.Context(), v, "j", exportLocation{dir, 3}, asked, tc.gone)
			if err != nil || at != (exportLocation{dir, tc.want}) || g.job != "j" || now != s.targetOf(v) || time.Since(begin) != 0 {
				t.Errorf("%s: from %+v after %v, %v; want export %d", name, at, time.Since(begin), err, tc.want)
			}
		})
	}
}
