// Package zkserver speaks ZooKeeper's wire protocol on the znode view, so that stock
// clients read the tree and get watch events with no ZooKeeper installed. The zxid is the
// sequence of the log. It serves reads; a write is answered with NotReadOnly.
package zkserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/follow"
	"github.com/monolith-go/monolith/projections/znode"
)

// Config is the server's; zero fields take the default named.
type Config struct {
	Listen            string                // host:port, default 127.0.0.1:2181
	MaxConns          int                   // connections at a time, further ones are closed at once; default 1000
	MaxSessions       int                   // sessions at a time, connected or not; default 4 x MaxConns
	MaxFrame          int                   // a request must be shorter, bytes; default 1 MiB - 1, as jute.maxbuffer
	MaxOutstanding    int                   // replies waiting to be written before a connection is not read any further; default 1000
	MaxQueuedBytes    int                   // the same in bytes; a connection with more waiting watch events is closed; default 16 MiB
	MaxWatches        int                   // per connection, further ones are refused with ThrottledOp; default 100,000
	WriteTimeout      time.Duration         // for one write to a client that does not read; default 10 s
	HandshakeTimeout  time.Duration         // until a new connection has said who it is; default 10 s
	SyncTimeout       time.Duration         // for sync, and for the replay behind a past tree; default 30 s
	MinSessionTimeout time.Duration         // clients get what they ask for between these two; default 4 s
	MaxSessionTimeout time.Duration         // default 40 s
	Metrics           prometheus.Registerer // nil: none
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	for v, d := range map[*time.Duration]time.Duration{
		&c.WriteTimeout: 10 * time.Second, &c.HandshakeTimeout: 10 * time.Second, &c.SyncTimeout: 30 * time.Second,
		&c.MinSessionTimeout: 4 * time.Second, &c.MaxSessionTimeout: 40 * time.Second,
	} {
		if *v == 0 {
			*v = d
		}
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:2181"
	}
	def(&c.MaxConns, 1000)
	def(&c.MaxSessions, 4*c.MaxConns)
	def(&c.MaxFrame, jute.MaxFrame)
	def(&c.MaxOutstanding, 1000)
	def(&c.MaxQueuedBytes, 16<<20)
	def(&c.MaxWatches, 100_000)
	return c
}

// Server serves one tree. Locks are taken in this order: the tree's, watches, outbox.
type Server struct {
	cfg      Config
	log      bus.Log
	tree     *follow.Follower[znode.State]
	logger   *slog.Logger
	ops      map[jute.Op]handler
	watches  *watches
	sessions *sessions
	history  *history
	stats    stats

	ready chan struct{}
	addr  atomic.Pointer[net.TCPAddr]

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// New makes a server of tree, whose Run somebody else calls, and only after New: watches
// hang on the tree's OnEvent. A nil logger logs nothing.
func New(cfg Config, log bus.Log, tree *follow.Follower[znode.State], logger *slog.Logger) *Server {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, log: log, tree: tree, logger: logger,
		watches:  newWatches(cfg.MaxWatches),
		sessions: newSessions(cfg),
		history:  newHistory(log, tree),
		ready:    make(chan struct{}),
		conns:    map[*conn]struct{}{},
	}
	s.ops = s.dispatch()
	s.stats.register(cfg.Metrics, s)
	tree.OnEvent(func(t znode.State, _ events.Recorded) { s.watches.fire(t.Changes()) })
	return s
}

// Ready is closed once the tree has caught up and clients are answered.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is host:port as bound, "" before Ready.
func (s *Server) Addr() string {
	if a := s.addr.Load(); a != nil {
		return a.String()
	}
	return ""
}

// Run listens, waits for the tree, and serves until ctx ends; a clean stop returns nil.
// Clients that were connected find their session gone when they come back to another
// Run: they open a new one and set their watches again.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("zookeeper port: %w", err)
	}
	stopped := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // ends accept and every connection
		<-ctx.Done()
		err := ln.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.out.kill()
		}
		return err
	})
	g.Go(func() error {
		select {
		case <-s.tree.Ready():
		case <-ctx.Done():
			return nil
		}
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			s.addr.Store(a)
		}
		close(s.ready)
		return s.accept(ctx, ln, g)
	})
	g.Go(func() error { s.expire(ctx); return nil })
	err = g.Wait()
	if stopped.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) accept(ctx context.Context, ln net.Listener, g *errgroup.Group) error {
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				return nc.Close()
			}
			return nil
		}
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && !errors.Is(err, net.ErrClosed) { // out of files, say: others may leave
				s.logger.Warn("zookeeper port: accept failed", "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			return fmt.Errorf("zookeeper port: %w", err)
		}
		c := s.admit(ctx, nc)
		if c == nil {
			s.stats.refused.Add(1)
			s.logger.Warn("zookeeper port: too many connections; raise MaxConns", "max", s.cfg.MaxConns, "peer", nc.RemoteAddr().String())
			_ = nc.Close() // nothing was said on it yet
			continue
		}
		g.Go(func() error {
			c.serve(ctx)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			return nil
		})
	}
}

// admit is nil when the house is full.
func (s *Server) admit(ctx context.Context, nc net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.cfg.MaxConns {
		return nil
	}
	c := newConn(s, nc)
	if ctx.Err() != nil {
		c.out.kill()
	}
	s.conns[c] = struct{}{}
	return c
}

// connections are the ones open now, in no order.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// expire ends the sessions that were silent for longer than agreed.
func (s *Server) expire(ctx context.Context) {
	t := time.NewTicker(max(s.cfg.MinSessionTimeout/8, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			for _, dead := range s.sessions.expire(now) {
				s.logger.Info("zookeeper session expired", "session", fmt.Sprintf("0x%x", dead.id))
				if c := dead.conn.Load(); c != nil {
					c.out.kill()
				}
			}
		}
	}
}
