// Package natsserver is the NATS server inside a process: JetStream on disk, fsync before ack.
package natsserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/durable"
)

// startTimeout bounds the recovery of the streams on disk: 10 M events take 4 s.
const startTimeout = 60 * time.Second

// shakeTimeout bounds a TLS handshake, which takes long where the processor is busy.
const shakeTimeout = 10 * time.Second

// Config of a Server. The zero value of all but Dir is usable.
type Config struct {
	Dir        string       // everything on disk; created when absent, held by one server at a time
	Host       string       // default 127.0.0.1
	Port       int          // 0: one that is free
	TLS        *tls.Config  // of the port, whose clients it may ask for certificates; nil: plain text
	Cluster    Cluster      // the servers with which it replicates streams; zero: it is alone
	Users      string       // file with the users and what each may do ([ReadUsers]); "": everybody may do everything
	Name       string       // default monolith
	MaxStore   int64        // bytes on disk that all streams together may reserve; default 32 GiB
	MaxMemory  int64        // bytes of memory for consumers; default 256 MiB
	MaxPayload int32        // bytes of one message; default 1 MiB, which is also the least
	Log        *slog.Logger // default: none
}

// Server is one, of which a folder has one at a time.
type Server struct {
	cfg    Config
	port   int                           // as configured, then as it is
	ns     atomic.Pointer[server.Server] // replaced by heal
	lock   *flock.Flock
	users  *Users
	ready  catchUp // of the streams here, guarded by its own mutex
	closed sync.Once
	stop   context.CancelFunc // ends what runs beside it:
	beside sync.WaitGroup     // healing, and syncing of names
}

// Start starts a server and waits until it has recovered its streams and takes
// connections. A folder left behind by kill -9 is simply recovered.
func Start(cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, fmt.Errorf("nats server: %w: Dir is empty; name the folder that keeps the streams", events.ErrInvalid)
	}
	users, err := ReadUsers(cfg.Users)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	if err := durable.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	lock := flock.New(filepath.Join(cfg.Dir, "lock"))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("nats server: lock %s: %w", cfg.Dir, err)
	}
	if !got {
		return nil, fmt.Errorf("nats server: %s is in use by another server; stop it or choose another folder", cfg.Dir)
	}
	s := &Server{cfg: cfg, port: cfg.Port, lock: lock, users: users}
	if s.port == 0 {
		s.port = server.RANDOM_PORT
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.port = s.ns.Load().Addr().(*net.TCPAddr).Port // a later life has the same
	sweepProbes(cfg.Dir)
	beside, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.beside.Go(func() { s.heal(beside) })
	s.beside.Go(func() {
		durable.KeepNames(beside, cfg.Dir, func(err error) {
			cfg.tell(err, "names of new files are not put on disk: a power cut may take them; trying on")
		})
	})
	return s, nil
}

// open starts a nats-server on the folder and the port. Errors leave nothing running.
func (s *Server) open() error {
	cfg := s.cfg
	opts := &server.Options{
		ServerName:         cmp.Or(cfg.Name, "monolith"),
		Host:               cmp.Or(cfg.Host, "127.0.0.1"),
		Port:               s.port,
		StoreDir:           cfg.Dir,
		TLSConfig:          cfg.TLS,
		TLSTimeout:         shakeTimeout.Seconds(),
		JetStream:          true,
		JetStreamMaxStore:  cmp.Or(cfg.MaxStore, 32<<30),
		JetStreamMaxMemory: cmp.Or(cfg.MaxMemory, 256<<20),
		SyncAlways:         true, // an ack means that the bytes are on disk
		MaxPayload:         max(cfg.MaxPayload, wire.MaxMessage),
		NoSigs:             true,
		NoLog:              cfg.Log == nil,
	}
	cfg.Cluster.apply(opts)
	s.users.apply(opts)
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	if cfg.Log != nil {
		ns.SetLoggerV2(serverLog{cfg.Log.With("component", "nats-server")}, false, false, false)
	}
	ns.Start()
	if !ns.ReadyForConnections(startTimeout) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return fmt.Errorf("nats server: not ready on %s:%d with %s; see its log for the cause", opts.Host, cfg.Port, cfg.Dir)
	}
	s.ns.Store(ns)
	return nil
}

// InProcessConn is a connection without a socket to the server's present life.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.Load().InProcessConn() }

// tell logs what healing says.
func (c Config) tell(err error, text string) {
	switch {
	case c.Log == nil:
	case err != nil:
		c.Log.Error(text, "component", "nats-server", "err", err)
	default:
		c.Log.Info(text, "component", "nats-server")
	}
}

// URL is what clients connect to.
func (s *Server) URL() string { return s.ns.Load().ClientURL() }

// Close stops the server and waits until it is gone. What it leads in a cluster is elected anew
// elsewhere; [Server.Leave] hands it over instead.
func (s *Server) Close() error { return s.end((*server.Server).Shutdown) }

// end stops what runs beside the server, then the server itself, once.
func (s *Server) end(how func(*server.Server)) error {
	var err error
	s.closed.Do(func() {
		s.stop()
		s.beside.Wait()
		ns := s.ns.Load()
		how(ns)
		ns.WaitForShutdown()
		err = s.lock.Close()
	})
	return err
}

// serverLog hands the server's lines on; its notices are our details.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug("nats", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Warnf(f string, v ...any)   { l.log.Warn("nats", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Errorf(f string, v ...any)  { l.log.Error("nats", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Fatalf(f string, v ...any)  { l.log.Error("nats", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Debugf(f string, v ...any)  { l.log.Debug("nats", "text", fmt.Sprintf(f, v...)) }
func (l serverLog) Tracef(f string, v ...any)  { l.log.Debug("nats", "text", fmt.Sprintf(f, v...)) }
