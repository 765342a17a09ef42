package modelsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// offerProblem is the problem's name in the process's health.
const offerProblem = "offer of copies"

// port is the one of transfers.
func (c *Config) port(shared mtls.Files) mtls.Port {
	return mtls.Port{Role: source, Name: "the transfer of models", Addr: c.TransferListen, Own: c.TransferTLS, Shared: shared,
		Keys: "--transfer-tls", Mutual: true, Insecure: c.InsecureTransfer, Switch: "--insecure-transfer"}
}

// transfers makes what transfers need, and refuses a port that nothing protects.
func (s *Server) transfers() (err error) {
	if s.keys, err = s.cfg.port(s.env.TLS).Config(); err != nil {
		return err
	}
	keys, near, err := peer.Keys(s.cfg.TransferTLS, s.env.TLS, s.cfg.InsecureTransfer)
	if errors.Is(err, peer.ErrNoAuthorities) && s.cfg.TransferListen == "" {
		return nil // nothing is fetched
	}
	if err != nil {
		return fmt.Errorf("model-sync: %w", err)
	}
	reg := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prom.Register(s.env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monolith_modelsync_" + name, Help: help}, labels))
	}
	s.client = peer.NewClient(peer.Config{TLS: keys, Near: near, Log: s.env.Log,
		Fetched: reg("fetched_bytes_total", "Bytes of models that other hosts sent, those that were not used included.").WithLabelValues(),
		Faults:  reg("fetch_faults_total", "Answers of other hosts that were of no use, by reason: unreachable, or corrupt (not what was exported).", "reason")})
	return nil
}

// offer hands out what lies here until ctx ends, and says where; or that nothing is handed out.
func (s *Server) offer(ctx context.Context) error {
	if s.cfg.TransferListen == "" {
		return s.sayOffer(ctx, &transfer.SourceOffered{Host: s.cfg.Host})
	}
	ln, err := net.Listen("tcp", s.cfg.TransferListen)
	if err != nil {
		return fmt.Errorf("--transfer-listen: %w", err)
	}
	defer ln.Close()
	dir, err := openDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("folder of copies: %w", err)
	}
	defer dir.Close()
	handed := &peer.Server{Open: func(a peer.Ask) (*os.Root, error) { return s.handOut(dir, a) }, Log: s.env.Log, Sent: s.sent}
	srv := &http.Server{Handler: handed.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.env.Log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(mtls.Listen(ln, s.keys)) }()
	at := cmp.Or(s.cfg.TransferAdvertise, ln.Addr().String())
	s.env.Log.Info("copies are handed out", "address", at, "folders", s.cfg.Exports)
	err = s.sayOffer(ctx, &transfer.SourceOffered{Host: s.cfg.Host, Address: at, Folders: s.cfg.Exports})
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
			return err
		}
	}
	// Who fetches goes on elsewhere.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if srv.Shutdown(last) != nil {
		err = errors.Join(err, srv.Close())
	}
	return err
}

// sayOffer has the log say what this host hands out, unless it does, and waits for an answer as
// long as it takes.
func (s *Server) sayOffer(ctx context.Context, o *transfer.SourceOffered) error {
	subject := transfer.Subject(s.env.BZID, s.cfg.Host)
	pauses := retry.New(s.cfg.Retry, longestWait*s.cfg.Retry)
	said := s.env.Health.Attempts(offerProblem)
	for {
		_, _, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
			last, err := s.env.Bus.Log().LastOf(ctx, subject)
			if err != nil {
				return nil, err
			}
			if err := s.lineage.Wait(ctx, last); err != nil {
				return nil, err
			}
			var before *transfer.SourceOffered
			s.lineage.Read(func(l lineage.State) { before = l.Sources[s.cfg.Host].Offered.V })
			if proto.Equal(before, o) || before == nil && o.GetAddress() == "" {
				return nil, nil
			}
			return []bus.Draft{{Subject: subject, Expect: last, Event: &transfer.Event{Body: &transfer.Event_SourceOffered{SourceOffered: o}}}}, nil
		})
		if err == nil {
			said.Succeeded()
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		said.Failed(err)
		s.env.Log.Warn("what this host hands out is not said yet", "err", err)
		if pauses.Wait(ctx) != nil {
			return nil
		}
	}
}

// handOut opens what a host asks for: this host's copy, or the export itself, or a shard's part of a
// checkpoint, where it lies in a folder that is handed out.
func (s *Server) handOut(dir *os.Root, a peer.Ask) (*os.Root, error) {
	if a.Part != "" {
		return s.handOutPart(a)
	}
	t := target{model: a.Model, sub: a.Sub, version: a.Version, origin: a.Dir, source: filepath.Join(a.Dir, a.Sub, strconv.FormatInt(a.Version, 10))}
	if t.check(s.cfg.Dir) != nil || !filepath.IsAbs(a.Dir) {
		return nil, peer.ErrNotHere
	}
	if copied, err := dir.OpenRoot(t.place()); !errors.Is(err, fs.ErrNotExist) {
		return copied, err
	}
	return s.ofExports(t.source)
}

// handOutPart opens a shard's part of a checkpoint.
func (s *Server) handOutPart(a peer.Ask) (*os.Root, error) {
	if peer.CheckPart(a.Part) != nil || !filepath.IsAbs(a.Dir) {
		return nil, peer.ErrNotHere
	}
	return s.ofExports(filepath.Join(a.Dir, filepath.FromSlash(a.Part)))
}

// ofExports opens a folder below one that is handed out.
func (s *Server) ofExports(source string) (*os.Root, error) {
	for _, folder := range s.cfg.Exports {
		if !within(folder, source) {
			continue
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		rel, err := filepath.Rel(folder, source)
		if err != nil {
			return nil, err
		}
		return root.OpenRoot(rel)
	}
	return nil, peer.ErrNotHere
}
