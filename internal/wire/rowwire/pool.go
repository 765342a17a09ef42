package rowwire

import (
	"context"
	"crypto/tls"
	"sync"
)

// Pool keeps one connection per address: they are pipelined, so one is enough.
type Pool struct {
	conf  *tls.Config
	local *Local

	mu     sync.Mutex
	peers  map[string]*peer
	closed bool
}

// peer serialises dialling one address, so that a dead one holds nobody else up.
type peer struct {
	turn chan struct{} // holds a token: whoever has it may dial
	mu   sync.Mutex
	c    Conn
}

// NewPool returns an empty pool. conf, unless nil, encrypts connections to host:port.
func NewPool(conf *tls.Config) *Pool { return &Pool{conf: conf, peers: map[string]*peer{}} }

// Get returns a working connection to addr, a new one where the last has failed: to the
// server itself where it is in this process, else over one of near, further addresses of
// the server that lead to it from its own machine only, else over addr.
func (p *Pool) Get(ctx context.Context, addr string, near ...string) (Conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, Errorf(Unavailable, "the connection pool is closed")
	}
	e := p.peers[addr]
	if e == nil {
		e = &peer{turn: make(chan struct{}, 1)}
		e.turn <- struct{}{}
		p.peers[addr] = e
	}
	p.mu.Unlock()
	if c := e.live(); c != nil {
		return c, nil
	}
	select {
	case <-e.turn:
		defer func() { e.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, Errorf(Unavailable, "no connection to %s: %w", addr, ctx.Err())
	}
	if c := e.live(); c != nil {
		return c, nil
	}
	c, err := p.open(ctx, addr, near)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.peers[addr] != e {
		_ = c.Close()
		return nil, Errorf(Unavailable, "the connection to %s was dropped while it was made", addr)
	}
	if old := e.swap(c); old != nil {
		_ = old.Close()
	}
	return c, nil
}

// open takes the shortest road.
func (p *Pool) open(ctx context.Context, addr string, near []string) (Conn, error) {
	if c := p.local.conn(addr); c != nil {
		return c, nil
	}
	for _, at := range near {
		if !isNear(at) {
			continue
		}
		if c, err := Dial(ctx, at, p.conf); err == nil {
			return c, nil
		}
	}
	c, err := Dial(ctx, addr, p.conf)
	if err != nil {
		return nil, err // and no Conn: a nil *Client would be one
	}
	return c, nil
}

func (e *peer) live() Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.c != nil && e.c.Err() == nil {
		return e.c
	}
	return nil
}

func (e *peer) swap(c Conn) (old Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, e.c = e.c, c
	return old
}

// Drop closes the connection to addr, because its owner has moved.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	e := p.peers[addr]
	delete(p.peers, addr)
	p.mu.Unlock()
	if e != nil {
		if c := e.swap(nil); c != nil {
			_ = c.Close()
		}
	}
}

// Close closes every connection, and the pool for good.
func (p *Pool) Close() {
	p.mu.Lock()
	peers := p.peers
	p.peers, p.closed = nil, true
	p.mu.Unlock()
	for _, e := range peers {
		if c := e.swap(nil); c != nil {
			_ = c.Close()
		}
	}
}
