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
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
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
	"github.com/monolith-go/monolith/projections/servers"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"
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

// servers is the view of what the log tells.
func (h *harness) servers() servers.State {
	h.t.Helper()
	s := servers.New()
	last, err := h.bus.Log().Last(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	if last == 0 {
		return s
	}
	if err := h.bus.Log().Follow(h.t.Context(), 1, last, func(r events.Recorded) error { s = servers.Fold(s, r); return nil }); err != nil {
		h.t.Fatal(err)
	}
	return s
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
