package tfssupervisor_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"

	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SUPERVISOR_TEST_CHILD"); dir != "" {
		child(os.Args[len(os.Args)-1])
		return
	}
	leaks.Main(m)
}

const (
	bzid    = "test"
	timeout = wait.Patience
)

// fake is a model server under the test's control.
type fake struct {
	mu      sync.Mutex
	models  []tfserving.Model
	configs int
	states  map[string]map[int64]*apis.ModelVersionStatus // name -> version
	refuse  error
	picky   bool            // refuses configurations that name other sub-models than entry and ps_<n>
	mute    map[string]bool // asked about these, it does not answer; "*": about all
	asked   int

	srv  *grpc.Server
	ln   net.Listener
	end  chan error
	pid  int
	once sync.Once
}

func (f *fake) GetModelStatus(ctx context.Context, r *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.mute["*"] || f.mute[r.GetModelSpec().GetName()] {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, ctx.Err()
	}
	res := &apis.GetModelStatusResponse{}
	for _, v := range f.states[r.GetModelSpec().GetName()] {
		res.ModelVersionStatus = append(res.ModelVersionStatus, proto.CloneOf(v))
	}
	if len(res.ModelVersionStatus) == 0 {
		return nil, status.Error(codes.NotFound, "Could not find any versions of model")
	}
	return res, nil
}

func (f *fake) HandleReloadConfigRequest(_ context.Context, r *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	models, err := tfserving.Models(r.GetConfig())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	for _, m := range models {
		if _, sub, _ := strings.Cut(m.Name, ":"); f.picky && sub != "entry" && !strings.HasPrefix(sub, "ps_") {
			return nil, status.Errorf(codes.InvalidArgument, "sub-model %q is not served here", sub)
		}
	}
	f.models = models
	f.configs++
	return &apis.ReloadConfigResponse{}, nil
}

func (f *fake) set(name string, version int64, st apis.ModelVersionStatus_State, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.states == nil {
		f.states = map[string]map[int64]*apis.ModelVersionStatus{}
	}
	if f.states[name] == nil {
		f.states[name] = map[int64]*apis.ModelVersionStatus{}
	}
	s := &apis.StatusProto{}
	if message != "" {
		s.ErrorCode, s.ErrorMessage = for_core_protos_go_proto.Code_INTERNAL, message
	}
	f.states[name][version] = &apis.ModelVersionStatus{Version: version, State: st, Status: s}
}

func (f *fake) configured() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, m := range f.models {
		out = append(out, fmt.Sprintf("%s@%s/%v", m.Name, m.BasePath, m.Policy.Versions))
	}
	return out
}

func (f *fake) die(err error) {
	f.once.Do(func() {
		f.srv.Stop()
		f.end <- err
	})
}

// harness is a supervisor on a bus in memory, with a registry that writes down.
type harness struct {
	t      *testing.T
	bus    *mem.Bus
	births chan *fake

	mu       sync.Mutex
	startErr error
	beats    []*replica.Heartbeat
	lives    int
	stop     func() error
	change   func(*tfssupervisor.Config)
	listen   string // of servers; "": loopback
	health   *health.State
	deaf     bool        // the registry answers with errors
	shows    *tls.Config // of servers' gRPC ports; nil: plain text
}

func (h *harness) Start(context.Context) (tfssupervisor.Server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.startErr != nil {
		return tfssupervisor.Server{}, h.startErr
	}
	ln, err := net.Listen("tcp", cmp.Or(h.listen, "127.0.0.1:0"))
	if err != nil {
		return tfssupervisor.Server{}, err
	}
	h.lives++
	var opts []grpc.ServerOption
	if h.shows != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(h.shows)))
	}
	f := &fake{srv: grpc.NewServer(opts...), ln: ln, end: make(chan error, 1), pid: 1000 + h.lives}
	tfserving.RegisterModel(f.srv, f)
	go func() { _ = f.srv.Serve(ln) }()
	h.births <- f
	return tfssupervisor.Server{
		GRPCAddr: ln.Addr().String(), HTTPAddr: "127.0.0.1:8501", RowsAddr: "127.0.0.1:7000", PID: f.pid, Secure: h.shows != nil,
		Wait: func() error { return <-f.end },
		Kill: func() { f.die(errors.New("killed")) },
		Stop: func() { f.die(nil) },
	}, nil
}

func newHarness(t *testing.T, change ...func(*harness)) *harness {
	t.Helper()
	h := &harness{t: t, bus: mem.New(), births: make(chan *fake, 16), health: health.New(), change: func(*tfssupervisor.Config) {}}
	for _, f := range change {
		f(h)
	}
	t.Cleanup(func() { _ = h.bus.Close() })
	stop, err := h.bus.Commands().Serve(t.Context(), bus.Service{BZID: bzid, Name: "pulse.registry", Version: "1.0.0", Description: "a fake registry", Endpoints: map[string]bus.Handler{
		"heartbeat": func(_ context.Context, payload []byte) ([]byte, error) {
			hb := new(replica.Heartbeat)
			if err := protojson.Unmarshal(payload, hb); err != nil {
				return nil, err
			}
			if err := hb.Validate(); err != nil {
				t.Errorf("heartbeat %s: %v", payload, err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.deaf {
				return nil, errors.New("not now")
			}
			h.beats = append(h.beats, hb)
			return []byte(`{"lease_ms":3000}`), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	cfg := tfssupervisor.Config{Container: "c.0", Shard: 1, Replica: 2, Cluster: "cl", IDC: "dc", Host: "host", Memory: 1 << 30,
		Poll: 2 * time.Millisecond, Heartbeat: 20 * time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond}
	h.change(&cfg)
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	s, err := tfssupervisor.New(cfg, services.Env{BZID: bzid, Bus: h.bus, Log: log, Health: h.health}, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	h.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	if h.startErr == nil {
		select {
		case <-s.Ready():
		case <-time.After(timeout):
			t.Fatal("not ready")
		}
	}
	return h
}

func (h *harness) born() *fake {
	h.t.Helper()
	select {
	case f := <-h.births:
		return f
	case <-time.After(timeout):
		h.t.Fatal("no server was started")
		return nil
	}
}

func (h *harness) append(context, aggregate string, e proto.Message) {
	h.t.Helper()
	if _, err := h.bus.Log().Append(h.t.Context(), bus.Draft{Subject: events.Join(bzid, context, aggregate), Event: e, Expect: bus.Any}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) plan(version int64, subs map[string][]string) { // container -> sub-models
	p := &publish.Planned{ModelName: "m", ModelDir: "/exports", Version: version, NumPs: 2, Cause: 1}
	for _, c := range []string{"c.0", "other"} {
		if len(subs[c]) == 0 {
			continue
		}
		a := &publish.Assignment{Container: c, Shard: 1, Replica: 2, SubModels: map[string]string{}}
		for _, sub := range subs[c] {
			a.SubModels[sub] = fmt.Sprintf("/exports/%s/%d", sub, version)
		}
		p.Assignments = append(p.Assignments, a)
	}
	h.append("publish", "m", &publish.Event{Body: &publish.Event_Planned{Planned: p}})
}

func (h *harness) copied(sub string, version int64, host string) { h.copiedAs(sub, version, host, "") }

func (h *harness) copiedAs(sub string, version int64, host, export string) {
	h.t.Helper()
	h.append("sync", "m/"+sub+"/"+host, &transfer.Event{Body: &transfer.Event_ModelCopied{ModelCopied: &transfer.ModelCopied{
		ModelName: "m", SubModel: sub, Version: version, Host: host, Path: filepath.Join("/copies/m", sub, strconv.FormatInt(version, 10)),
		Source: fmt.Sprintf("/exports/%s/%d", sub, version), Export: export}}})
}

// facts are the container's so far, in short.
func (h *harness) facts() []string {
	h.t.Helper()
	last, err := h.bus.Log().Last(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	var out []string
	if last == 0 {
		return nil
	}
	subject := events.Join(bzid, "server", "c.0")
	err = h.bus.Log().Follow(h.t.Context(), 1, last, func(r events.Recorded) error {
		if r.Subject != subject {
			return nil
		}
		if r.Header.Source != "tfs-supervisor" {
			h.t.Errorf("fact %d has the source %q", r.Seq, r.Header.Source)
		}
		m := func(what string, m *server.Model) {
			out = append(out, fmt.Sprintf("%s %s:%s/%d", what, m.GetModelName(), m.GetSubModel(), m.GetVersion()))
		}
		switch b := r.Event.(*server.Event).GetBody().(type) {
		case *server.Event_ProcessStarted:
			out = append(out, fmt.Sprintf("started %d", b.ProcessStarted.GetPid()))
		case *server.Event_ProcessExited:
			out = append(out, fmt.Sprintf("exited %d %d %s", b.ProcessExited.GetPid(), b.ProcessExited.GetExitCode(), b.ProcessExited.GetReason()))
		case *server.Event_ModelLoading:
			m("loading", b.ModelLoading.GetModel())
		case *server.Event_ModelAvailable:
			m("available", b.ModelAvailable.GetModel())
		case *server.Event_ModelUnloading:
			m("unloading", b.ModelUnloading.GetModel())
		case *server.Event_ModelFailed:
			m("failed ("+b.ModelFailed.GetReason()+")", b.ModelFailed.GetModel())
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *harness) wantFacts(want ...string) {
	h.t.Helper()
	wait.Until(h.t, "facts", func() error {
		if got := h.facts(); !slices.Equal(got, want) {
			return fmt.Errorf("\n got %q\nwant %q", got, want)
		}
		return nil
	})
}

func (h *harness) wantConfig(f *fake, want ...string) {
	h.t.Helper()
	wait.Until(h.t, "configuration", func() error {
		if got := f.configured(); !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// wantReplicas waits for a heartbeat that says exactly this.
func (h *harness) wantReplicas(want ...string) {
	h.t.Helper()
	wait.Until(h.t, "heartbeat", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.beats) == 0 {
			return errors.New("none yet")
		}
		var got []string
		for _, r := range h.beats[len(h.beats)-1].GetReplicas() {
			got = append(got, fmt.Sprintf("%s %v v%d", r.Key(), r.GetStat(), r.GetVersion()))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

func TestLoadsWhatIsPlannedAndCopied(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry", "ps_1"}, "other": {"ps_0"}})
	h.copied("ps_1", 7, "elsewhere")
	h.copied("ps_0", 7, "host")
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	h.wantReplicas("m/ps:1/2 START v7")
	h.copied("entry", 7, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]", "m:ps_1@/copies/m/ps_1/[7]")

	f.set("m:ps_1", 7, apis.ModelVersionStatus_LOADING, "")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 LOADING v7")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v7")

	h.mu.Lock()
	hb := h.beats[len(h.beats)-1]
	h.mu.Unlock()
	c := hb.GetContainer()
	if c.GetId() != "c.0" || c.GetKind() != "serving" || c.GetShard() != 1 || c.GetReplica() != 2 || c.GetCluster() != "cl" || c.GetIdc() != "dc" ||
		c.GetGrpcAddress() != f.ln.Addr().String() || c.GetRowsAddress() != "127.0.0.1:7000" || hb.GetResource().GetMemory() != 1<<30 {
		t.Errorf("heartbeat %v", hb)
	}
	if r := hb.GetReplicas()[1]; r.GetRowsAddress() != "127.0.0.1:7000" || r.GetGrpcAddress() != f.ln.Addr().String() || r.GetContainer() != "c.0" {
		t.Errorf("replica %v", r)
	}

	// A new version: the old one answers until the new one does.
	h.plan(8, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 8, "host")
	h.copied("ps_1", 8, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[8]", "m:ps_1@/copies/m/ps_1/[8]")
	f.set("m:ps_1", 8, apis.ModelVersionStatus_LOADING, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v7")
	f.set("m:ps_1", 8, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_END, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v8")

	// Withdrawn: nothing is left.
	h.append("publish", "m", &publish.Event{Body: &publish.Event_Withdrawn{Withdrawn: &publish.Withdrawn{ModelName: "m", Reason: "enough", Cause: 2}}})
	h.wantConfig(f)
	for _, name := range []string{"m:entry", "m:ps_1"} {
		for _, v := range []int64{7, 8} {
			f.set(name, v, apis.ModelVersionStatus_END, "")
		}
	}
	h.wantReplicas()

	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	if last := h.beats[len(h.beats)-1]; !last.GetLeaving() {
		t.Errorf("last heartbeat %v, want it to leave", last)
	}
	h.mu.Unlock()
	got := h.facts()
	index := func(f string) int { return slices.Index(got, f) }
	for _, order := range [][]string{
		{"started 1001", "loading m:ps_1/7", "available m:ps_1/7", "unloading m:ps_1/7", "loading m:ps_1/8", "available m:ps_1/8", "unloading m:ps_1/8", "exited 1001 0 the supervisor is stopping"},
		{"loading m:entry/7", "available m:entry/7", "unloading m:entry/7", "loading m:entry/8"},
	} {
		for i, f := range order {
			if index(f) < 0 || i > 0 && index(f) < index(order[i-1]) {
				t.Errorf("%q is missing or out of order in\n%q", f, got)
			}
		}
	}
}

// A plan names the next version before model-sync has copied it: until then nothing
// that is served may go.
func TestOldVersionStaysWhileTheNewOneIsCopied(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(1, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 1, "host")
	h.copied("ps_1", 1, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[1]", "m:ps_1@/copies/m/ps_1/[1]")
	f.set("m:entry", 1, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:ps_1", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v1", "m/ps:1/2 AVAILABLE v1")

	h.plan(2, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("ps_1", 2, "host") // the entry's copy takes longer
	h.wantConfig(f, "m:entry@/copies/m/entry/[1]", "m:ps_1@/copies/m/ps_1/[2]")
	h.copied("entry", 2, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[2]", "m:ps_1@/copies/m/ps_1/[2]")
	h.wantReplicas("m/entry:0/2 AVAILABLE v1", "m/ps:1/2 AVAILABLE v1")

	h.mu.Lock()
	defer h.mu.Unlock()
	served := false
	for _, hb := range h.beats {
		n := 0
		for _, r := range hb.GetReplicas() {
			if r.GetStat() == replica.State_AVAILABLE {
				n++
			}
		}
		if served && n < 2 {
			t.Fatalf("a heartbeat after both were available says %v", hb.GetReplicas())
		}
		served = served || n == 2
	}
}

// The same number from another export is another model: a server that has the old one
// loaded would keep it, so it has to unload it first.
func TestSameVersionOfAnotherExportIsLoadedAnew(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(1, map[string][]string{"c.0": {"ps_1"}})
	h.copiedAs("ps_1", 1, "host", "first")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[1]")
	f.set("m:ps_1", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v1")

	h.copiedAs("ps_1", 1, "host", "second")
	h.wantConfig(f)
	f.set("m:ps_1", 1, apis.ModelVersionStatus_END, "")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[1]")
	f.set("m:ps_1", 1, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v1")
	h.wantFacts("started 1001", "loading m:ps_1/1", "available m:ps_1/1", "unloading m:ps_1/1", "loading m:ps_1/1", "available m:ps_1/1")

	// A copy of something else than what is planned is not loaded.
	h.append("publish", "m", &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{ModelName: "m", ModelDir: "/others", Version: 2, NumPs: 2, Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c.0", Shard: 1, Replica: 2, SubModels: map[string]string{"ps_1": "/others/ps_1/2"}}}}}})
	h.copied("ps_1", 2, "host") // of /exports
	h.plan(3, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 3, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[3]")
	if got := h.facts(); slices.Contains(got, "loading m:ps_1/2") {
		t.Errorf("the copy of another folder was loaded: %q", got)
	}
}

func TestServerDiesAndIsStartedAgain(t *testing.T) {
	h := newHarness(t)
	first := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(first, "m:ps_1@/copies/m/ps_1/[7]")
	first.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")

	first.die(errors.New("segmentation fault"))
	second := h.born()
	h.wantConfig(second, "m:ps_1@/copies/m/ps_1/[7]")
	h.wantReplicas("m/ps:1/2 START v7")
	second.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	h.wantFacts("started 1001", "loading m:ps_1/7", "available m:ps_1/7", "exited 1001 1 segmentation fault",
		"started 1002", "loading m:ps_1/7", "available m:ps_1/7")
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.ContainsFunc(h.beats, func(b *replica.Heartbeat) bool {
		return b.GetContainer().GetGrpcAddress() == second.ln.Addr().String()
	}) {
		t.Error("no heartbeat names the new address")
	}
}

func (f *fake) hush(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = map[string]bool{}
	for _, n := range names {
		f.mute[n] = true
	}
}

// wantProblem waits for a heartbeat whose container has a problem that says so; "": none.
func (h *harness) wantProblem(says string) {
	h.t.Helper()
	wait.Until(h.t, "problem", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.beats) == 0 {
			return errors.New("no heartbeat")
		}
		got := h.beats[len(h.beats)-1].GetContainer().GetProblem()
		if !strings.Contains(got, says) || says == "" && got != "" {
			return fmt.Errorf("%q, want %q", got, says)
		}
		return nil
	})
}

// A sub-model about which the server is silent is AVAILABLE to nobody, and keeps nobody
// from hearing about the others.
func TestSilenceAboutOneSubModel(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 7, "host")
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]", "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:entry", 7, apis.ModelVersionStatus_AVAILABLE, "")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_LOADING, "")
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 LOADING v7")
	f.hush("m:entry")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/entry:0/2 UNKNOWN v7", "m/ps:1/2 AVAILABLE v7")
	h.wantProblem("model server: it does not answer about m:entry (DeadlineExceeded)")
	f.hush()
	h.wantReplicas("m/entry:0/2 AVAILABLE v7", "m/ps:1/2 AVAILABLE v7")
	h.wantProblem("")
	want := []string{"loading m:entry/7", "available m:entry/7", "failed (DeadlineExceeded: the model server does not answer about it) m:entry/7", "available m:entry/7"}
	wait.Until(h.t, "facts", func() error { // heartbeats do not wait for them
		var entry []string
		for _, fact := range h.facts() {
			if strings.Contains(fact, "m:entry") {
				entry = append(entry, fact)
			}
		}
		if !slices.Equal(entry, want) {
			return fmt.Errorf("%q, want %q", entry, want)
		}
		return nil
	})
}

// A server that answers nothing at all is killed, and another one takes its place.
func TestHungServerIsReplaced(t *testing.T) {
	h := newHarness(t, func(h *harness) {
		h.change = func(c *tfssupervisor.Config) { c.HangTimeout = 100 * time.Millisecond }
	})
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	f.hush("*")
	second := h.born()
	second.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	h.wantProblem("")
	if got := h.facts(); !slices.ContainsFunc(got, func(fact string) bool {
		return strings.HasPrefix(fact, "exited 1001 1 it has answered nothing for") && strings.HasSuffix(fact, ", and was killed: killed")
	}) {
		t.Errorf("nothing says why it was killed: %q", got)
	}
}

// A server that does not know one sub-model serves the others.
func TestOneRefusedSubModelBlocksNobody(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	f.mu.Lock()
	f.picky = true
	f.mu.Unlock()
	h.plan(7, map[string][]string{"c.0": {"dense_0", "ps_1"}})
	h.copied("ps_1", 7, "host")
	h.copied("dense_0", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantReplicas("m/ps:1/2 AVAILABLE v7")
	got := h.facts()
	if !slices.Contains(got, `failed (the model server refuses the configuration: sub-model "dense_0" is not served here) m:dense_0/7`) ||
		slices.ContainsFunc(got, func(f string) bool {
			return strings.HasPrefix(f, "failed") && strings.HasSuffix(f, "m:ps_1/7")
		}) {
		t.Errorf("facts %q", got)
	}
}

// Where that was not the reason, the rest is told as well.
func TestRefusedForAnotherReason(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	f.mu.Lock()
	f.refuse = status.Error(codes.InvalidArgument, "not that")
	f.mu.Unlock()
	h.plan(7, map[string][]string{"c.0": {"dense_0", "ps_1"}})
	h.copied("ps_1", 7, "host")
	h.copied("dense_0", 7, "host")
	wait.Until(h.t, "both are told", func() error {
		got := h.facts()
		for _, name := range []string{"dense_0", "ps_1"} {
			if !slices.Contains(got, "failed (the model server refuses the configuration: not that) m:"+name+"/7") {
				return fmt.Errorf("%q", got)
			}
		}
		return nil
	})
}

// What happens in the log does not make the supervisor ask the server more often.
func TestUnrelatedEventsAskTheServerNothing(t *testing.T) {
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.Poll = time.Hour } })
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	for i := range 2000 {
		h.append("publish", "other", &publish.Event{Body: &publish.Event_PlanFailed{PlanFailed: &publish.PlanFailed{ModelName: "other", Reason: fmt.Sprint(i), Cause: 1}}})
	}
	h.plan(8, map[string][]string{"c.0": {"ps_1"}}) // once this is known, all of that was
	h.copied("ps_1", 8, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[8]")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked > 4 { // at the start, and as each configuration was answered
		t.Errorf("asked %d times", f.asked)
	}
}

func TestFailuresAreTold(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"ps_1"}})
	h.copied("ps_1", 7, "host")
	h.wantConfig(f, "m:ps_1@/copies/m/ps_1/[7]")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_END, "no such table")
	h.wantReplicas("m/ps:1/2 END v7")
	h.wantFacts("started 1001", "loading m:ps_1/7", "failed (INTERNAL: no such table) m:ps_1/7")
	f.set("m:ps_1", 7, apis.ModelVersionStatus_AVAILABLE, "")
	h.wantFacts("started 1001", "loading m:ps_1/7", "failed (INTERNAL: no such table) m:ps_1/7", "available m:ps_1/7")

	f.mu.Lock()
	f.refuse = status.Error(codes.InvalidArgument, "not that")
	f.mu.Unlock()
	h.plan(7, map[string][]string{"c.0": {"ps_1", "entry"}})
	h.copied("entry", 7, "host")
	wait.Until(h.t, "refusal", func() error {
		if got := h.facts(); !slices.Contains(got, "failed (the model server refuses the configuration: not that) m:entry/7") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

func TestServerThatDoesNotStart(t *testing.T) {
	h := newHarness(t, func(h *harness) { h.startErr = errors.New("no such file") })
	h.wantFacts("exited 0 0 it did not start: no such file")
	h.mu.Lock()
	if len(h.beats) > 0 {
		t.Errorf("heartbeats before there is a server: %v", h.beats)
	}
	h.mu.Unlock()
	wait.Until(h.t, "the role says so", func() error {
		if got := h.health.Summary(); !strings.Contains(got, "start of the model server: it has ended again and again") || !strings.Contains(got, "no such file") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	h.mu.Lock()
	h.startErr = nil
	h.mu.Unlock()
	h.born()
	h.wantFacts("exited 0 0 it did not start: no such file", "started 1001")
	h.wantProblem("")
}

// A registry that does not answer is a problem of this role, but none that a heartbeat
// could tell: once it arrives, there is none.
func TestRegistryThatDoesNotAnswer(t *testing.T) {
	h := newHarness(t)
	h.born()
	h.wantProblem("")
	h.mu.Lock()
	h.deaf = true
	h.mu.Unlock()
	wait.Until(h.t, "the role says so", func() error {
		if got := h.health.Summary(); !strings.Contains(got, "heartbeats: ") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	h.mu.Lock()
	h.deaf = false
	n := len(h.beats)
	h.mu.Unlock()
	wait.Until(h.t, "it is well again", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.beats) == n || h.health.Summary() != "" {
			return errors.New(h.health.Summary())
		}
		return nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hb := range h.beats {
		if p := hb.GetContainer().GetProblem(); p != "" {
			t.Fatalf("a heartbeat says %q", p)
		}
	}
}

func TestStopStopsTheServer(t *testing.T) {
	h := newHarness(t)
	f := h.born()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.wantFacts("started 1001", "exited 1001 0 the supervisor is stopping")
	f.once.Do(func() { t.Error("the server was not stopped") })
}

func TestConfigRefused(t *testing.T) {
	var cfg tfssupervisor.Config
	if err := cfg.Validate(); err == nil {
		t.Error("a configuration without a container passes")
	}
	cfg.Container, cfg.Shard = "c", -2
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--shard") {
		t.Errorf("shard -2: %v", err)
	}
	if _, err := tfssupervisor.New(tfssupervisor.Config{Container: "c"}, services.Env{Bus: mem.New()}, nil); err == nil {
		t.Error("no launcher passes")
	}
}

// A server that reads its configuration from a file again and again finds there what it was told.
func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models.cfg")
	h := newHarness(t, func(h *harness) { h.change = func(c *tfssupervisor.Config) { c.ConfigFile = path } })
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry", "ps_1"}})
	h.copied("entry", 7, "host")
	h.copied("ps_1", 7, "host")
	wait.For(t, "both are configured", func() bool { return len(f.configured()) == 2 })
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c config_go_proto.ModelServerConfig
	if err := prototext.Unmarshal(raw, &c); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	models, err := tfserving.Models(&c)
	if err != nil || len(models) != 2 || models[0].Name != "m:entry" || models[1].BasePath != "/copies/m/ps_1" {
		t.Errorf("%+v, %v", models, err)
	}
}
