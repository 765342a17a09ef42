package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/health"
)

// newRegistry has what every Go process reports about itself, its problems included.
func newRegistry(well *health.State) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(well, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// tracing makes tracers whose finished spans go to one place.
type tracing struct {
	service *resource.Resource
	spans   sdktrace.SpanProcessor // nil: nowhere
	file    *os.File
}

// newTracing writes finished spans to file, one JSON object each; without a file there
// are none.
func newTracing(file, service string) (*tracing, error) {
	t := &tracing{service: resource.NewSchemaless(attribute.String("service.name", service))}
	if file == "" {
		return t, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the trace file: %w", err)
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(f))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	t.file, t.spans = f, sdktrace.NewBatchSpanProcessor(exporter)
	return t, nil
}

// tracer records what a sampled parent started, and this share of what has none. Roles
// start no traces: whoever sends the rating or the request decides.
func (t *tracing) tracer(name string, share float64) trace.Tracer {
	if t.spans == nil {
		return noop.NewTracerProvider().Tracer(name)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(t.service), sdktrace.WithSpanProcessor(t.spans),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share)))).Tracer(name)
}

func (t *tracing) close(ctx context.Context) error {
	if t.spans == nil {
		return nil
	}
	return errors.Join(t.spans.Shutdown(ctx), t.file.Close())
}

// statusServer answers /livez, /readyz, /metrics and /debug/pprof/.
type statusServer struct {
	addr  string
	ready atomic.Bool
	// answers is set, before anything is ready, where clients are served whatever else does
	// not work: problems are told, but must not take a model server away from them.
	answers bool
	srv     *http.Server
	stop    context.CancelFunc // ends profiles that are being taken
	done    chan error
}

func serveStatus(listen string, insecure bool, reg *prometheus.Registry, well *health.State) (*statusServer, error) {
	port := mtls.Port{Role: "monolith", Name: "status (/livez, /readyz, /metrics and profiles)", Addr: listen, Insecure: insecure, Switch: "--insecure-status"}
	if err := port.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	s := &statusServer{done: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "not caught up yet", http.StatusServiceUnavailable)
			return
		}
		problems := well.Text(time.Now())
		if problems != "" && !s.answers {
			http.Error(w, problems, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "ok\n%s", problems)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	profiles(mux)
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen for /livez, /readyz and /metrics (--status names another address): %w", err)
	}
	s.addr = ln.Addr().String()
	requests, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return requests }}
	go func() { s.done <- s.srv.Serve(ln) }()
	return s, nil
}

func (s *statusServer) close(ctx context.Context) error {
	s.stop()
	err := s.srv.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
