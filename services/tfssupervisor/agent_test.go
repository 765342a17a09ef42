package tfssupervisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"
)

// serveFiles is a model server with TensorFlow Serving's flags, in a process of its own: what its
// file names is AVAILABLE in version 7.
type serveFiles struct {
	mu     sync.Mutex
	models []tfserving.Model
}

func (s *serveFiles) GetModelStatus(_ context.Context, in *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.models, func(m tfserving.Model) bool { return m.Name == in.GetModelSpec().GetName() }) {
		return nil, status.Error(codes.NotFound, "no such model")
	}
	return &apis.GetModelStatusResponse{ModelVersionStatus: []*apis.ModelVersionStatus{
		{Version: 6, State: apis.ModelVersionStatus_END}, {Version: 7, State: apis.ModelVersionStatus_AVAILABLE}}}, nil
}

func (s *serveFiles) HandleReloadConfigRequest(_ context.Context, in *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	models, err := tfserving.Models(in.GetConfig())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = models
	return &apis.ReloadConfigResponse{}, nil
}

// modelServer is the child's life. It ends at SIGTERM, as Go programs do.
func modelServer(args []string) error {
	said := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		said[name] = value
	}
	raw, err := os.ReadFile(said["model_config_file"])
	if err != nil {
		return err
	}
	if _, err := os.Stat(said["platform_config_file"]); err != nil {
		return err
	}
	var c config_go_proto.ModelServerConfig
	if err := prototext.Unmarshal(raw, &c); err != nil {
		return err
	}
	s := &serveFiles{}
	if s.models, err = tfserving.Models(&c); err != nil {
		return err
	}
	fmt.Printf("PORT2=%s\n", os.Getenv("PORT2"))
	ln, err := net.Listen("tcp", ":"+said["port"])
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	tfserving.RegisterModel(g, s)
	return g.Serve(ln)
}

// agentWorld is an agent with a registry that knows what its heartbeats said.
type agentWorld struct {
	t    *testing.T
	bus  *mem.Bus
	dir  string
	ends func() error

	mu     sync.Mutex
	beats  map[string]*replica.Heartbeat // by container
	asked  int
	before []string // containers that were there when the entry began to wait
}

func newAgentWorld(t *testing.T, conf string, env map[string]string) *agentWorld {
	t.Helper()
	t.Setenv("SUPERVISOR_TEST_CHILD", "model server")
	w := &agentWorld{t: t, bus: mem.New(), dir: t.TempDir(), beats: map[string]*replica.Heartbeat{}}
	t.Cleanup(func() { _ = w.bus.Close() })
	w.serve("pulse.registry", "heartbeat", func(_ context.Context, payload []byte) ([]byte, error) {
		hb := new(replica.Heartbeat)
		if err := protojson.Unmarshal(payload, hb); err != nil {
			return nil, err
		}
		if err := hb.Validate(); err != nil {
			t.Errorf("heartbeat %s: %v", payload, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.beats[hb.GetContainer().GetId()] = hb
		return []byte(`{"lease_ms":3000}`), nil
	})
	w.serve("registry", "started", func(_ context.Context, payload []byte) ([]byte, error) {
		var ask struct {
			Model string
			NumPS int
		}
		if err := json.Unmarshal(payload, &ask); err != nil || ask.Model != "m" || ask.NumPS != 2 {
			t.Errorf("asked %s, %v", payload, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.asked++; w.asked == 1 {
			for c := range w.beats {
				w.before = append(w.before, c)
			}
		}
		return fmt.Appendf(nil, `{"ps":%v,"dense":false}`, len(w.available("pod-ps")) == 2), nil
	})
	path := filepath.Join(w.dir, "agent.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	env["MY_POD_NAME"], env["MY_HOST_IP"] = "pod", "10.0.0.9"
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	a, err := tfssupervisor.NewAgent(tfssupervisor.AgentConfig{
		Conf: path, TFSLog: filepath.Join(w.dir, "tfs.log"), Binary: []string{self(t)}, Dir: w.dir, Drain: time.Minute, Poll: 5 * time.Millisecond, Proxy: env["PROXY"], Getenv: func(key string) string { return env[key] },
	}, services.Env{BZID: bzid, Bus: w.bus, Log: log, Health: health.New()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	w.ends = sync.OnceValue(func() error { return <-done })
	t.Cleanup(func() { cancel(); _ = w.ends() })
	wait.For(t, "the agent is ready", func() bool {
		select {
		case <-a.Ready():
			return true
		case err := <-done:
			done <- err
			t.Fatalf("it ended: %v", err)
		default:
		}
		return false
	})
	stop := w.ends
	w.ends = func() error { cancel(); return stop() }
	return w
}

func (w *agentWorld) serve(name, endpoint string, h bus.Handler) {
	w.t.Helper()
	stop, err := w.bus.Commands().Serve(w.t.Context(), bus.Service{BZID: bzid, Name: name, Version: "1.0.0", Description: "a fake registry", Endpoints: map[string]bus.Handler{endpoint: h}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(stop)
}

// available are the replicas that a container said take traffic; w.mu is held.
func (w *agentWorld) available(container string) (all []string) {
	for _, r := range w.beats[container].GetReplicas() {
		if r.GetStat() == replica.State_AVAILABLE {
			all = append(all, fmt.Sprintf("%s/%s:%d v%d at %s", r.GetModelName(), r.GetServerType(), r.GetTask(), r.GetVersion(), r.GetGrpcAddress()))
		}
	}
	return all
}

// pids are those of the servers that were started.
func (w *agentWorld) pids() (all []int) {
	w.t.Helper()
	last, err := w.bus.Log().Last(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.bus.Log().Follow(w.t.Context(), 1, last, func(r events.Recorded) error {
		if e, ok := r.Event.(*server.Event); ok && e.GetProcessStarted() != nil {
			all = append(all, int(e.GetProcessStarted().GetPid()))
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// gone holds that none of the processes is left.
func (w *agentWorld) gone(pids []int) {
	w.t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			w.t.Errorf("process %d lives on", pid)
		}
	}
}

// A mixed agent starts its shards, then the entry, which waits until they take traffic; all are told
// of, and all end with the agent.
func TestAgentMixed(t *testing.T) {
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	w := newAgentWorld(t, fmt.Sprintf("bzid %s\nstand_alone_serving true\nbase_name m\nbase_path /exports\nnum_ps 2\nagent_port %d\n", bzid, port), map[string]string{"SHARD_ID": "0"})
	wait.For(t, "shards and entry take traffic", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.available("pod-ps")) == 2 && len(w.available("pod-entry")) == 1
	})
	w.mu.Lock()
	shards, entry := w.beats["pod-ps"].GetContainer(), w.available("pod-entry")[0]
	if slices.Contains(w.before, "pod-entry") {
		t.Error("the entry was there before it had waited")
	}
	w.mu.Unlock()
	if !strings.HasPrefix(entry, "m/entry:0 v7 at 10.0.0.9:") || shards.GetServerType() != "ps" || shards.GetAgentAddress() != fmt.Sprint("10.0.0.9:", port) || shards.GetArchonAddress() != "" {
		t.Errorf("entry %s, shards %v", entry, shards)
	}
	for file, want := range map[string]string{
		"entry_tfs.log": fmt.Sprintf("PORT2=%d\n", port), "ps_tfs.log": "PORT2=" + os.Getenv("PORT2") + "\n",
		"pod-ps/model_config_file.cfg":       `base_path: "/exports/ps_1"`,
		"pod-entry/platform_config_file.cfg": "allow_soft_placement: true",
		"pod-entry/model_config_file.cfg":    `name: "entry"`,
	} {
		if raw, err := os.ReadFile(filepath.Join(w.dir, file)); err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%s: %v, want %q in\n%s", file, err, want, raw)
		}
	}
	w.tellsWhere(port)
	pids := w.pids()
	if err := w.ends(); err != nil || len(pids) != 2 {
		t.Errorf("Run = %v with %d servers", err, len(pids))
	}
	w.gone(pids)
}

// tellsWhere asks the agent's own port, as the original's entry does, where the shards of its model are.
func (w *agentWorld) tellsWhere(port int) {
	w.t.Helper()
	for _, r := range []*replica.Replica{
		{ModelName: "m", ServerType: "ps", Task: 1, Container: "x", GrpcAddress: "10.0.0.7:8500", Stat: replica.State_AVAILABLE},
		{ModelName: "other", ServerType: "ps", Task: 1, Container: "x", GrpcAddress: "10.0.0.8:8500", Stat: replica.State_AVAILABLE},
	} {
		if _, err := w.bus.Log().Append(w.t.Context(), bus.Draft{Subject: events.Join(bzid, "replica", r.Key()), Expect: bus.Any,
			Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}}); err != nil {
			w.t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	wait.Seen(w.t, "the agent tells where shard 1 is", func() (string, bool) {
		res, err := agentpb.NewAgentServiceClient(conn).HeartBeat(w.t.Context(), &agentpb.HeartBeatRequest{ServerType: agentpb.ServerType_PS})
		at := res.GetAddresses()["ps:1"].GetAddress()
		return fmt.Sprint(res, err), len(res.GetAddresses()) == 1 && slices.Equal(at, []string{"10.0.0.7:8500"})
	})
}

// An agent of version 3 serves what its filters take of a layout, by the file that its server polls as
// well as by calls.
func TestAgentUnified(t *testing.T) {
	w := newAgentWorld(t, "deploy_type unified\nagent_version 3\nlayout_pattern l1\nlayout_filters ps_{i}; i % 2 == 1\n", map[string]string{})
	base := t.TempDir()
	export(t, base, "ps_0", 7)
	export(t, base, "ps_1", 7)
	log := &harness{t: t, bus: w.bus}
	log.declared(base, "ps_0=latest", "ps_1=latest")
	log.offered("m:ps_0", "m:ps_1")
	wait.For(t, "its shard takes traffic", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.available("pod")) == 1
	})
	w.mu.Lock()
	got, at := w.available("pod")[0], w.beats["pod"].GetContainer()
	w.mu.Unlock()
	if !strings.HasPrefix(got, "m/ps:1 v7 at 10.0.0.9:") || at.GetLayoutPath() != "/"+bzid+"/layouts/l1" {
		t.Errorf("%s, %v", got, at)
	}
	raw, err := os.ReadFile(filepath.Join(w.dir, "pod", "model_config_file.cfg"))
	if err != nil || !strings.Contains(string(raw), `name: "m:ps_1"`) || strings.Contains(string(raw), "ps_0") {
		t.Errorf("the server's file: %v\n%s", err, raw)
	}
	pids := w.pids()
	if err := w.ends(); err != nil {
		t.Errorf("Run = %v", err)
	}
	w.gone(pids)
}

// An agent brings the model for rough sorting from where it is downloaded before it starts the server of it.
func TestAgentBringsTheModelForRoughSorting(t *testing.T) {
	p2p, local := t.TempDir(), t.TempDir()
	export(t, filepath.Join(p2p, "r@7", "r"), "ps_item_embedding_0", 7)
	if err := os.WriteFile(filepath.Join(p2p, "r@7.write.done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newAgentWorld(t, fmt.Sprintf("deploy_type ps\nbase_name m\nbase_path /exports\nrough_sort_model_name r\nrough_sort_model_loaded_server ps\nrough_sort_model_p2p_path %s\nrough_sort_model_local_path %s\n", p2p, local), map[string]string{"SHARD_ID": "0"})
	base := filepath.Join(local, "r", "ps_item_embedding_0")
	if raw, err := os.ReadFile(filepath.Join(w.dir, "pod", "model_config_file.cfg")); err != nil || !strings.Contains(string(raw), fmt.Sprintf("base_path: %q", base)) {
		t.Errorf("the server's file: %v\n%s", err, raw)
	}
	if here, err := os.Stat(filepath.Join(base, "7")); err != nil || !here.IsDir() {
		t.Errorf("the model is not at %s: %v", base, err)
	}
	if err := w.ends(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// One server gone ends them all, and the agent says which it was.
func TestAgentEndsWithAServer(t *testing.T) {
	w := newAgentWorld(t, "stand_alone_serving true\nbase_name m\nbase_path /exports\nnum_ps 2\n", map[string]string{"SHARD_ID": "0"})
	pids := []int{}
	wait.For(t, "both have started", func() bool { pids = w.pids(); return len(pids) == 2 })
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "all are gone", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	})
	if err := w.ends(); err == nil || !strings.Contains(err.Error(), "agent: the ps server: ") || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Run = %v", err)
	}
}

func TestAgentRefuses(t *testing.T) {
	for conf, want := range map[string]string{
		"": "there is no deploy_type",
		"deploy_type ps\nbase_name m\nbase_path /m": "there is nothing to serve",
		"deploy_type entry":                         "give base_name and base_path",
		"deploy_type unified\nagent_version 3":      "needs a layout_pattern",
		"deploy_type entry\nbase_name m\nbase_path /m\nrough_sort_model_name r\nrough_sort_model_p2p_path /p": "rough_sort_model_local_path: model r comes from \"/p\" to \"\": give whole paths",
	} {
		path := filepath.Join(t.TempDir(), "agent.conf")
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		b := mem.New()
		_, err := tfssupervisor.NewAgent(tfssupervisor.AgentConfig{Conf: path, Binary: []string{"x"}, Getenv: func(string) string { return "" }}, services.Env{BZID: bzid, Bus: b})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", conf, err, want)
		}
		_ = b.Close()
	}
	if err := (&tfssupervisor.AgentConfig{}).Validate(); err == nil {
		t.Error("no --conf passes")
	}
}

// The proxy gets the original's command line once the entry answers, and its end is the agent's.
func TestAgentProxy(t *testing.T) {
	dir := t.TempDir()
	proxy, said := filepath.Join(dir, "proxy"), filepath.Join(dir, "said")
	if err := os.WriteFile(proxy, fmt.Appendf(nil, "#!/bin/sh\necho \"$@\" > %s.part && mv %s.part %s\nwhile [ ! -e %s/end ]; do sleep 0.05; done\n", said, said, said, dir), 0o700); err != nil {
		t.Fatal(err)
	}
	w := newAgentWorld(t, "stand_alone_serving true\nbase_name m\nbase_path /exports\nnum_ps 2\nproxy_port 4100\n", map[string]string{"SHARD_ID": "0", "PROXY": proxy})
	var line string
	wait.For(t, "the proxy has started", func() bool {
		raw, err := os.ReadFile(said)
		line = strings.TrimSpace(string(raw))
		return err == nil
	})
	w.mu.Lock()
	_, port, err := net.SplitHostPort(w.beats["pod-entry"].GetContainer().GetGrpcAddress())
	w.mu.Unlock()
	if want := "--port=4100 --grpc_target=localhost:" + port; err != nil || line != want {
		t.Errorf("its arguments are %q, want %q, %v", line, want, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pids := w.pids()
	wait.For(t, "all are gone", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	})
	if err := w.ends(); err == nil || !strings.Contains(err.Error(), "agent: the proxy: it has ended") {
		t.Errorf("Run = %v", err)
	}
}
