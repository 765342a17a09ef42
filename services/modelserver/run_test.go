package modelserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
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

// Relative base paths begin in the base folder, where there is one.
func TestWhereBasePathsBegin(t *testing.T) {
	for _, tc := range [][3]string{{"", "m", "m"}, {"", "/m", "/m"}, {"/base", "m", "/base/m"}, {"/base", "/m", "/m"}} {
		if got := (&Server{cfg: Config{BaseDir: tc[0]}}).abs(tc[1]); got != tc[2] {
			t.Errorf("%q in %q: %q, want %q", tc[1], tc[0], got, tc[2])
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
	case <-time.After(wait.Patience):
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
			case <-time.After(wait.Patience):
				return false
			}
		},
		"the handler": func() bool {
			select {
			case <-left:
				return true
			case <-time.After(wait.Patience):
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

func TestWhoAsksForImpressions(t *testing.T) {
	for v, want := range map[string]bool{"": false, "0": false, "false": false, "False": false, "1": true, "true": true} {
		if asks(v) != want {
			t.Errorf("x-impression: %q asks: %v", v, !want)
		}
	}
}

// The rows of several servers of one process add up.
func TestMetricsMayBeShared(t *testing.T) {
	reg := prometheus.NewRegistry()
	a, b := newMetrics(reg), newMetrics(reg)
	a.rows.Inc()
	b.rows.Inc()
	if got := value(t, a.rows); got != 2 {
		t.Errorf("two servers counted %v rows", got)
	}
}
