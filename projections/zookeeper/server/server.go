// Package server speaks ZooKeeper's wire protocol on the znode view, so that stock
// clients find a ZooKeeper where none is installed. The zxid is the sequence of the log.
//
// Reads are answered from the view. Writes and the facts of sessions go to a [Proposer],
// which brings them to the log; the fold decides what becomes of them, and the reply is
// queued by that very fold. Without a Proposer the server only reads: a write is
// answered with NotReadOnly, and sessions last no longer than the server.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/projections/zookeeper/outbox"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/watch"
)

// MaxFrame is as much of a request as one event of the log takes, so that there is one
// limit: what fits into a frame is stored, what does not ends the connection.
const MaxFrame = catalog.MaxBytes - 8<<10

// Config is the server's; zero fields take the default named.
type Config struct {
	Listen    string      // host:port, default 127.0.0.1:2181
	TLS       *tls.Config // nil: none, which only loopback addresses may be without
	Plaintext bool        // lets an address beyond loopback be without TLS all the same
	Proposer  Proposer    // nil: the server only reads

	MaxConns        int // connections at a time, further ones are closed at once; default 1000
	MaxConnsPerIP   int // the same of one address; default MaxConns
	MaxSessions     int // sessions at a time, connected or not; default 4 x MaxConns
	MaxFrame        int // bytes of a request at most, longer ones end the connection, as jute.maxbuffer; default [MaxFrame]
	MaxOutstanding  int // requests of one connection that wait for a write of it, before it is not read any further; default 1000
	MaxWrites       int // writes of all connections that wait for the log, before none is read that has one more; default 10,000
	MaxWaitingBytes int // of requests of all connections that wait, or are being read, before none is read that has more; default 64 MiB
	MaxQueuedBytes  int // of replies and watch events that wait for a client to read, before its connection is closed; default 16 MiB
	MaxWatches      int // per connection, further ones are refused with ThrottledOp; default 100,000

	WriteTimeout      time.Duration // until a client that takes no byte is let go; default 10 s
	HandshakeTimeout  time.Duration // until a new connection has said who it is; default 10 s
	SyncTimeout       time.Duration // for sync, and for the replay behind a past tree; default 30 s
	MinSessionTimeout time.Duration // clients get what they ask for between these two; default 4 s
	MaxSessionTimeout time.Duration // default 40 s

	// Words are the four-letter words that are answered; "*" is all. Default: ruok, srvr,
	// stat, mntr, cons, conf, envi, isro, dirs and wchs, which change nothing and cost
	// little.
	Words []string

	// SuperDigest is the digest of one who may do everything, user:base64(sha1(user:password)),
	// as ZooKeeper's superDigest; "": there is none.
	SuperDigest string

	Metrics prometheus.Registerer // nil: none

	grace time.Duration // takeOverGrace, or a test's
}

// WithDefaults is c with its zero fields filled in.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:2181")
	c.MaxConns = cmp.Or(c.MaxConns, 1000)
	c.MaxConnsPerIP = cmp.Or(c.MaxConnsPerIP, c.MaxConns)
	c.MaxSessions = cmp.Or(c.MaxSessions, 4*c.MaxConns)
	c.MaxFrame = cmp.Or(c.MaxFrame, MaxFrame)
	c.MaxOutstanding = cmp.Or(c.MaxOutstanding, 1000)
	c.MaxWrites = cmp.Or(c.MaxWrites, 10_000)
	c.MaxWaitingBytes = cmp.Or(c.MaxWaitingBytes, 64<<20)
	c.MaxQueuedBytes = cmp.Or(c.MaxQueuedBytes, 16<<20)
	c.MaxWatches = cmp.Or(c.MaxWatches, 100_000)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 10*time.Second)
	c.SyncTimeout = cmp.Or(c.SyncTimeout, 30*time.Second)
	c.MinSessionTimeout = cmp.Or(c.MinSessionTimeout, 4*time.Second)
	c.MaxSessionTimeout = cmp.Or(c.MaxSessionTimeout, 40*time.Second)
	c.grace = cmp.Or(c.grace, takeOverGrace)
	if c.Words == nil {
		c.Words = []string{"ruok", "srvr", "stat", "mntr", "cons", "conf", "envi", "isro", "dirs", "wchs"}
	}
	return c
}

// secure refuses to show the tree beyond loopback in the clear.
func (c Config) secure(bound net.Addr) error {
	a, ok := bound.(*net.TCPAddr)
	if !ok || a.IP.IsLoopback() || c.TLS != nil || c.Plaintext {
		return nil
	}
	return fmt.Errorf("zookeeper port: %s is reachable from other machines: name certificates with --zk-tls-cert, -key and -ca, let it listen on 127.0.0.1, or allow plain text with --insecure-zk", bound)
}

// Server serves one tree. Locks are taken in this order: the tree's, a connection's
// pipeline, watches or sessions, outbox.
type Server struct {
	cfg      Config
	log      bus.Log
	tree     *follow.Follower[view.State]
	logger   *slog.Logger
	words    map[string]bool
	watches  *watch.Table
	sessions *sessions
	history  *history
	notify   outbox.Notifiers
	stats    stats
	slots    chan struct{}           // one token per write on its way
	waiting  *bytesBudget            // of requests that wait
	reading  *bytesBudget            // of large ones that are being read: slow senders hold up other large ones only
	folding  atomic.Pointer[folding] // what was folded last
	began    time.Time
	at       time.Time // of the part being folded, or of one a few before; the fold's own
	unsent   []*conn   // have answers queued of an event whose last part is not folded; the fold's own

	ready chan struct{}
	addr  atomic.Pointer[net.TCPAddr]

	mu    sync.Mutex
	conns map[*conn]struct{}
	perIP map[string]int
}

// folding is a fold whose hooks are running, or have run. Whoever is handed its outcome
// is inside that fold, under the tree's write lock.
type folding struct {
	tree    view.State
	outcome *tree.Outcome
	more    bool // parts of the same event follow
}

// New makes a server of tree, whose Run somebody else calls, and only after New: watches
// hang on the tree's OnEvent. A nil logger logs nothing.
func New(cfg Config, log bus.Log, tree *follow.Follower[view.State], logger *slog.Logger) *Server {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	cfg = cfg.WithDefaults()
	s := &Server{
		cfg: cfg, log: log, tree: tree, logger: logger, began: time.Now(),
		words:    map[string]bool{},
		watches:  watch.NewTable(cfg.MaxWatches),
		sessions: newSessions(),
		history:  newHistory(log, tree),
		notify:   outbox.NewNotifiers(),
		slots:    make(chan struct{}, cfg.MaxWrites),
		waiting:  newBytesBudget(int64(cfg.MaxWaitingBytes)),
		reading:  newBytesBudget(int64(cfg.MaxWaitingBytes) / 4),
		ready:    make(chan struct{}),
		conns:    map[*conn]struct{}{},
		perIP:    map[string]int{},
	}
	for _, w := range cfg.Words {
		s.words[w] = true
	}
	s.stats.reset()
	s.stats.register(cfg.Metrics, s)
	tree.OnEvent(s.folded)
	return s
}

// folded runs under the tree's write lock, before the proposer hears of the event.
func (s *Server) folded(t view.State, r events.Recorded) {
	if r.Part%64 == 0 {
		s.at = time.Now()
	}
	e := t.Effects()
	s.folding.Store(&folding{t, e.Outcome, r.More})
	if r.Part == 0 {
		s.sendOff() // nobody of this server may have proposed the last part of the event before
	}
	s.notify.Tell(s.watches.Fire(e.Changes))
	if e.Closed != 0 {
		s.ended(e.Closed)
	}
}

// sendOff has everything written that was queued for connections part by part. It runs
// in the fold.
func (s *Server) sendOff() {
	for i, c := range s.unsent {
		c.unsent = false
		c.out.Nudge()
		s.unsent[i] = nil
	}
	s.unsent = s.unsent[:0]
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
// Clients that were connected come back to another Run with their sessions, if there is
// a Proposer; without one they open new ones. Either way they set their watches again.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("zookeeper port: %w", err)
	}
	if err := s.cfg.secure(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	stopped := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // ends accept and every connection
		<-ctx.Done()
		err := ln.Close()
		for _, c := range s.connections() {
			c.out.Kill(nil)
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
	g.Go(func() error { s.watchdog(ctx); return nil })
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error { s.notify.Run(ctx); return nil })
	}
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
		if s.cfg.TLS != nil {
			nc = tls.Server(nc, s.cfg.TLS)
		}
		c, why := s.admit(ctx, nc)
		if c == nil {
			s.stats.refused.Add(1)
			s.logger.Warn("zookeeper port: too many connections", "reason", why, "peer", nc.RemoteAddr().String())
			_ = nc.Close() // nothing was said on it yet
			continue
		}
		g.Go(func() error {
			c.serve(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
			if s.perIP[c.host]--; s.perIP[c.host] == 0 {
				delete(s.perIP, c.host)
			}
			return nil
		})
	}
}

// admit returns no connection when there are as many as are allowed, and why.
func (s *Server) admit(ctx context.Context, nc net.Conn) (*conn, string) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.cfg.MaxConns {
		return nil, fmt.Sprintf("raise MaxConns above %d", s.cfg.MaxConns)
	}
	if s.perIP[c.host] >= s.cfg.MaxConnsPerIP {
		return nil, fmt.Sprintf("raise MaxConnsPerIP above %d", s.cfg.MaxConnsPerIP)
	}
	if ctx.Err() != nil {
		c.out.Kill(nil)
	}
	s.conns[c] = struct{}{}
	s.perIP[c.host]++
	return c, ""
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

// sessionCount is how many sessions are open, connected or not.
func (s *Server) sessionCount() (n int) {
	if s.cfg.Proposer == nil {
		return s.sessions.countLocal()
	}
	s.tree.Read(func(t view.State) { n = t.SessionCount() })
	return n
}

// watchdog lets go of clients that do not read, of all clients once another registry is
// the one that writes, and of local sessions that were silent for too long.
func (s *Server) watchdog(ctx context.Context) {
	t := time.NewTicker(max(min(s.cfg.MinSessionTimeout/8, s.cfg.WriteTimeout/4), time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			standby := s.cfg.Proposer != nil && !s.cfg.Proposer.Writable()
			for _, c := range s.connections() {
				c.out.Overdue(now, s.cfg.WriteTimeout)
				if standby && c.Session() != 0 {
					c.out.Kill(errNotWriter)
				}
			}
			for _, id := range s.sessions.expireLocal(now) {
				s.logger.Info("zookeeper session expired", "session", hex(id))
				s.ended(id)
			}
		}
	}
}
