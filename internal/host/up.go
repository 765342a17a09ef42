package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/mtls"
)

// Up runs the stack until ctx ends and tells w where it is reached. declare is called while
// the roles start: training begins with a model.
func Up(ctx context.Context, cfg Config, w io.Writer, declare func(context.Context, connect.Config) error) (err error) {
	s, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running := make(chan error, 1)
	ready := make(chan struct{})
	go func() { running <- s.Run(ctx, func() { close(ready) }) }()
	began := time.Now()
	if err := declare(ctx, s.Config.Logs); err != nil && ctx.Err() == nil {
		cancel()
		return errors.Join(err, <-running)
	}
	select {
	case <-ready:
		s.banner(w, time.Since(began))
	case <-ctx.Done():
	case err := <-running:
		return err
	}
	return <-running
}

// banner says where everything is, and how a model is loaded.
func (s *Stack) banner(w io.Writer, took time.Duration) {
	for _, n := range s.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	fmt.Fprintf(w, "monolith is up after %.1fs\n", took.Seconds())
	at := s.Config.Ports.at
	for _, l := range [][2]string{
		{"data", s.Config.Dir}, {"NATS", connect.Redacted(s.Config.Logs.NATS)}, {"Kafka", s.Config.Kafka},
		{"ZooKeeper", at(s.Config.ZKPort)},
		{"gRPC", at(s.Config.GRPCPort) + " (TensorFlow Serving)"},
		{"REST", fmt.Sprintf("%s://%s/v1/models/%s", s.restScheme(), at(s.Config.RESTPort), s.Config.model())},
		{"status", fmt.Sprintf("%s://%s/readyz and /metrics", s.status.scheme, s.StatusAddr())},
		{"exports", s.Exports()},
	} {
		fmt.Fprintf(w, "  %-10s %s\n", l[0], l[1])
	}
	fmt.Fprintf(w, "Load the model: nats -s %s%s req monolith.%s.cmd.portal.load '{\"modelName\":%q,\"modelDir\":%q,\"job\":%q,\"replicas\":%d}'\n",
		connect.Redacted(s.Config.Logs.NATS), natsFlags(s.Config.Logs.Keys), s.Config.Logs.BZID, s.Config.model(), s.Exports(), s.Config.job(), s.Config.Replicas)
}

// natsFlags are those of the nats CLI by which it shows the same certificate.
func natsFlags(f mtls.Files) (flags string) {
	for _, flag := range [][2]string{{"--tlsca", f.CA}, {"--tlscert", f.Cert}, {"--tlskey", f.Key}} {
		if flag[1] != "" {
			flags += " " + flag[0] + " " + flag[1]
		}
	}
	return flags
}

// restScheme is that of the entry's REST port.
func (s *Stack) restScheme() string {
	if s.Config.Ports.TLS == (mtls.Files{}) || s.Config.Ports.insecure("rest") {
		return "http"
	}
	return "https"
}
