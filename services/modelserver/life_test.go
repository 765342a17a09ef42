package modelserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// viewing is a server of which only the views run, on a bus of its own.
func viewing(t *testing.T, cfg Config) (*Server, *mem.Bus) {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	cfg.Container = "c"
	s, err := New(cfg, services.Env{BZID: "b", Bus: b, Health: health.New()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var views sync.WaitGroup
	for _, run := range []func(context.Context) error{s.plan.Run, s.fleet.Run, s.lineage.Run} {
		views.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() { stop(); views.Wait(); s.pool.Close() })
	for _, ready := range []<-chan struct{}{s.plan.Ready(), s.fleet.Ready(), s.lineage.Ready()} {
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

// What ends the serving of a version: another plan for it, its job where there is no plan, a
// newer export of one whose deltas are gone; nothing else does.
func TestWhatAVersionIsKeptThrough(t *testing.T) {
	type step struct {
		context, aggregate string
		event              proto.Message
		ends               error // nil: it is kept
	}
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
				s, b := viewing(t, Config{Frozen: tc.frozen})
				for _, x := range tc.before {
					appended(t, b, x.context, x.aggregate, x.event)
				}
				synctest.Wait()
				v := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: filepath.Join(t.TempDir(), "ps_0")}
				g := &servable{ps: newPS(t), job: "j", shards: 1, contained: map[uint32]uint64{}, epochs: map[uint32]uint64{}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					ended <- s.keep(ctx, v, g, exportLocation{v.basePath, 3}, s.targetOf(v), tc.stale)
				}()
				synctest.Wait()
				if v.state != stateAvailable {
					t.Errorf("it is %v", v.state)
				}
				if got := s.env.Health.Summary(); (got != "") != tc.stale || tc.stale && !strings.Contains(got, "it is served as it was exported") {
					t.Errorf("health %q", got)
				}
				for i, x := range tc.steps {
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
			s, _ := viewing(t, Config{})
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

// stumbling is a log whose end cannot be had for some attempts.
type stumbling struct {
	bus.Bus
	left *int
}

type stumblingLog struct {
	bus.Log
	left *int
}

func (b stumbling) Log() bus.Log { return stumblingLog{b.Bus.Log(), b.left} }

func (l stumblingLog) Last(ctx context.Context) (uint64, error) {
	if *l.left--; *l.left >= 0 {
		return 0, errors.New("no leader")
	}
	return l.Log.Last(ctx)
}

// What the log says is known only once its end is, however often that must be asked for.
func TestTheLogsEndIsInsistedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := viewing(t, Config{})
		s.env.Log = slog.New(slog.DiscardHandler)
		left := 0
		s.env.Bus = stumbling{b, &left}
		for what, ask := range map[string]func(context.Context) error{
			"catching up": s.catchUp,
			"an epoch":    func(ctx context.Context) error { _, _, err := s.epochOf(ctx, "j", 1); return err },
		} {
			left = health.Reported
			done := make(chan error, 1)
			go func() { done <- ask(t.Context()) }()
			if err := <-done; err != nil || left != -1 {
				t.Errorf("%s: %v, %d attempts too few", what, err, left+1)
			}
			if got := s.env.Health.Summary(); got != "" {
				t.Errorf("%s: afterwards the health says %q", what, got)
			}
		}
		appended(t, b, "shard", shard.Aggregate("j", 1), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: "j", Shard: 1, Shards: 2, Epoch: 7, RowsAddress: "h:1"}}})
		for k, want := range map[uint32]uint64{0: 0, 1: 7} {
			if epoch, ok, err := s.epochOf(t.Context(), "j", k); err != nil || epoch != want || ok != (want > 0) {
				t.Errorf("shard %d: epoch %d, %v, %v; want %d", k, epoch, ok, err, want)
			}
		}
		left = 1 << 30
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.catchUp(ctx) }()
		time.Sleep(30 * time.Second)
		if got := s.env.Health.Summary(); got != "control plane: no leader" {
			t.Errorf("after many attempts the health says %q", got)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || s.env.Health.Summary() != "" {
			t.Errorf("at the end of ctx: %v, health %q", err, s.env.Health.Summary())
		}
	})
}

// What is insisted on is a problem from the third failure on, until it works.
func TestWhenInsistingIsAProblem(t *testing.T) {
	for failures, want := range map[int]string{health.Reported - 1: "", health.Reported: "name: no leader"} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{env: services.Env{Health: health.New(), Log: slog.New(slog.DiscardHandler)}}
			calls, seen := 0, ""
			err := s.retryBus(t.Context(), "name", func(context.Context) error {
				if calls++; calls <= failures {
					return errors.New("no leader")
				}
				seen = s.env.Health.Summary()
				return nil
			})
			if err != nil || seen != want || s.env.Health.Summary() != "" {
				t.Errorf("after %d failures: %v, the health said %q, want %q", failures, err, seen, want)
			}
		})
	}
}

// Relative base paths begin in the base folder, where there is one.
func TestWhereBasePathsBegin(t *testing.T) {
	for _, tc := range [][3]string{{"", "m", "m"}, {"", "/m", "/m"}, {"/base", "m", "/base/m"}, {"/base", "/m", "/m"}} {
		if got := (&Server{cfg: Config{BaseDir: tc[0]}}).abs(tc[1]); got != tc[2] {
			t.Errorf("%q in %q: %q, want %q", tc[1], tc[0], got, tc[2])
		}
	}
}

// A version has caught up at the sequence that was the last one of its shards, and at once
// where the export holds that.
func TestHowFarAVersionMustCatchUp(t *testing.T) {
	b := mem.New()
	defer b.Close()
	last := uint64(0)
	for range 3 {
		seq, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject("b", "j", "0"), Expect: bus.Any, Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		last = seq
	}
	for next, behind := range map[uint64]bool{1: true, last: true, last + 1: false} {
		f := testFeed(nil, nil)
		f.bus, f.next, f.shards = b.Deltas(), next, 2
		if err := f.findEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string]uint64{}
		if behind {
			want[f.subject("0")] = last
		}
		caught := false
		select {
		case <-f.caught:
			caught = true
		default:
		}
		if fmt.Sprint(f.need) != fmt.Sprint(want) || caught == behind {
			t.Errorf("from %d on: needed are %v, want %v; caught up %v", next, f.need, want, caught)
		}
	}
}

// Impressions need brokers.
func TestImpressionsNeedBrokers(t *testing.T) {
	for _, brokers := range [][]string{nil, {"127.0.0.1:1"}} {
		s, _ := viewing(t, Config{Brokers: brokers})
		if (s.impressions != nil) != (len(brokers) > 0) {
			t.Errorf("with brokers %q: %v", brokers, s.impressions)
		}
	}
}

// A server whose log ends says that, and not only that a part of it has ended.
func TestWhatEndsAServerIsTold(t *testing.T) {
	b := mem.New()
	s, err := New(Config{Container: "c"}, services.Env{BZID: "b", Bus: b})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	<-s.Ready()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || strings.Contains(err.Error(), "a part has ended") {
			t.Errorf("Run = %v, want what has ended", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
}

// A request that outlasts the drain is cut off.
func TestRequestsThatOutlastTheDrainAreCutOff(t *testing.T) {
	s := &Server{cfg: Config{Drain: 10 * time.Millisecond}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began, left := make(chan struct{}), make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(left)
	})}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.serveHTTP(ctx, srv, func() error { return srv.Serve(ln) }) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answered := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String(), nil)
		if err != nil {
			answered <- err
			return
		}
		res, err := client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		answered <- err
	}()
	<-began
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	for what, done := range map[string]func() bool{
		"the caller": func() bool {
			select {
			case err := <-answered:
				return err != nil
			case <-time.After(10 * time.Second):
				return false
			}
		},
		"the handler": func() bool {
			select {
			case <-left:
				return true
			case <-time.After(10 * time.Second):
				return false
			}
		},
	} {
		if !done() {
			t.Fatalf("%s of a request that was cut off goes on", what)
		}
	}
}

// An id of a request has up to so many bytes.
func TestIDsOfRequestsAreBounded(t *testing.T) {
	s, _ := viewing(t, Config{})
	for n, want := range map[int]codes.Code{maxRequestID: codes.Unavailable, maxRequestID + 1: codes.InvalidArgument} {
		_, id, err := s.predict(t.Context(), caller{requestID: strings.Repeat("x", n)}, &apis.PredictRequest{ModelSpec: tfserving.Spec("m", 0)})
		if status.Code(err) != want || (id != "") != (n <= maxRequestID) {
			t.Errorf("an id of %d bytes: %v, answered as %d bytes; want %v", n, err, len(id), want)
		}
	}
}

// A model is expected here where a plan assigns it to this container, or where this container
// has served that very sub-model.
func TestWhatAServerIsExpectedToServe(t *testing.T) {
	s, b := viewing(t, Config{})
	if !s.expects("anything") {
		t.Error("before the views have caught up nobody knows")
	}
	close(s.ready)
	registered := func(model, serverType string, task int32, container string) {
		appended(t, b, "replica", fmt.Sprintf("%s/%s:%d/0", model, serverType, task), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
			ModelName: model, ServerType: serverType, Task: task, Container: container, GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", Stat: replica.State_AVAILABLE, Version: 1}}}})
	}
	registered("rows", "ps", 0, "c")
	registered("scores", "entry", 0, "c")
	registered("others", "ps", 0, "d")
	registered("gone", "ps", 0, "c")
	appended(t, b, "replica", "gone/ps:0/0", &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "it is gone"}}})
	appended(t, b, "publish", "m", planned(3, 1, "j"))
	last, err := b.Log().Last(t.Context())
	if err == nil {
		err = errors.Join(s.plan.Wait(t.Context(), last), s.fleet.Wait(t.Context(), last))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"rows:ps_0": true, "rows:ps_1": false, "rows": false, "rows:entry": false, "scores": true, "scores:entry": true, "scores:ps_0": false,
		"others:ps_0": false, "gone:ps_0": false, "m": true, "m:ps_0": true, "m:ps_1": false, "n": false, "rows:dense_0": false,
	} {
		if s.expects(name) != want {
			t.Errorf("%s is expected: %v", name, !want)
		}
	}
}
