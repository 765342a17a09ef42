package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/monolith-go/monolith/internal/host/otlp"
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

// telemetry is where a process's spans, metrics and logs go beside its status port and
// standard error.
type telemetry struct {
	service *resource.Resource
	export  *otlp.Export
	file    *os.File               // of finished spans, one JSON object each; nil: none
	written sdktrace.SpanProcessor // to file
}

// newTelemetry writes finished spans to file, if one is named, and exports them, the metrics
// of reg and what is logged as cfg says. log is for standard error; [telemetry.logger] has both.
func newTelemetry(ctx context.Context, file, service string, cfg otlp.Config, reg *prometheus.Registry, log *slog.Logger) (t *telemetry, err error) {
	t = &telemetry{service: otlp.Resource(service)}
	if t.export, err = otlp.Start(ctx, cfg, t.service, reg, log); err != nil {
		return nil, err
	}
	if file == "" {
		return t, nil
	}
	if t.file, err = os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("open the trace file: %w", err), t.export.Close(ctx))
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(t.file))
	if err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	t.written = sdktrace.NewBatchSpanProcessor(exporter)
	return t, nil
}

// logger writes where log does, and to the collector.
func (t *telemetry) logger(log *slog.Logger) *slog.Logger { return t.export.Logger(log) }

// tracer records what a sampled parent started, and this share of what has none. Roles
// start no traces: whoever sends the rating or the request decides.
func (t *telemetry) tracer(name string, share float64) trace.Tracer {
	exported := t.export.Spans()
	if exported == nil && t.written == nil {
		return noop.NewTracerProvider().Tracer(name)
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(t.service), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share)))}
	for _, p := range []sdktrace.SpanProcessor{exported, t.written} {
		if p != nil {
			opts = append(opts, sdktrace.WithSpanProcessor(p))
		}
	}
	return sdktrace.NewTracerProvider(opts...).Tracer(name)
}

// close hands out what waits. It is called last, so that the end of everything else is heard.
func (t *telemetry) close(ctx context.Context) error {
	errs := []error{t.export.Close(ctx)}
	if t.written != nil {
		errs = append(errs, t.written.Shutdown(ctx))
	}
	if t.file != nil {
		errs = append(errs, t.file.Close())
	}
	return errors.Join(errs...)
}

// statusServer answers /livez, /readyz, /metrics and /debug/pprof/.
type statusServer struct {
	addr   string
	scheme string // http or https
	ready  atomic.Bool
	// answers is set, before anything is ready, where clients are served whatever else does
	// not work: problems are told, but must not take a model server away from them.
	answers bool
	srv     *http.Server
	stop    context.CancelFunc // ends profiles that are being taken
	done    chan error
}

// statusPort is where and how that is answered.
type statusPort struct {
	listen   string
	own      mtls.Files // its certificates, or else
	shared   mtls.Files // those of every port
	insecure bool       // plain text, beyond this machine, too
}

func (p *statusPort) register(fs *pflag.FlagSet, fallback, usage string) {
	fs.StringVar(&p.listen, "status", fallback, "listen `address` of /livez, /readyz, /metrics and /debug/pprof"+usage)
	p.own.RegisterPort(fs, "status-tls", "the status address")
	fs.BoolVar(&p.insecure, "insecure-status", false, "answer the status address in plain text, beyond this machine, too")
}

func (p *statusPort) serve(reg *prometheus.Registry, well *health.State) (*statusServer, error) {
	port := mtls.Port{Role: "monolith", Name: "status (/livez, /readyz, /metrics and profiles)", Addr: p.listen, Own: p.own, Shared: p.shared, Keys: "--status-tls",
		Insecure: p.insecure, Switch: "--insecure-status"}
	keys, err := port.Config()
	if err != nil {
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
	ln, err := net.Listen("tcp", p.listen)
	if err != nil {
		return nil, fmt.Errorf("listen for /livez, /readyz and /metrics (--status names another address): %w", err)
	}
	s.addr, s.scheme = ln.Addr().String(), scheme(keys)
	requests, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return requests }}
	go func() { s.done <- s.srv.Serve(mtls.Listen(ln, keys)) }()
	return s, nil
}

// scheme is HTTP's, under these keys.
func scheme(keys *tls.Config) string {
	if keys == nil {
		return "http"
	}
	return "https"
}

func (s *statusServer) close(ctx context.Context) error {
	s.stop()
	err := s.srv.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
