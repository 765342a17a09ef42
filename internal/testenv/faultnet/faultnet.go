// Package faultnet lets tests put a network that fails between two processes: a relay for
// TCP whose either way can be made to hold, lose or delay what is sent, and which can be
// cut. What is held arrives when the relay is healed, as packets do that are sent again
// until the way is free; what is lost has broken its connection.
package faultnet

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"
)

// Fault is what happens to the bytes of one way; the zero value: nothing.
type Fault struct {
	Mode  Mode
	Delay time.Duration // of every byte, whatever the mode
}

// Mode is what a way does.
type Mode uint8

const (
	Pass Mode = iota // bytes arrive
	Hold             // bytes arrive when the way passes again, nobody is told anything before
	Drop             // bytes are gone; the connections that lost any are cut when the way passes again
)

const (
	chunk = 32 << 10 // bytes read at a time
	depth = 64       // chunks of one way of a connection that are held; then its sender is not read
)

// Relay listens on an address of its own and carries connections to a target.
type Relay struct {
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	to      Fault // from who connects to the target
	from    Fault
	cut     bool
	closed  bool
	changed chan struct{} // closed at the next change
	pairs   map[*pair]struct{}
}

// pair is one connection on both of its sides.
type pair struct {
	near, far net.Conn
	lossy     bool // bytes are gone; under the relay's lock
	gone      chan struct{}
	once      sync.Once
}

func (p *pair) close() {
	p.once.Do(func() {
		close(p.gone)
		_ = p.near.Close() // both ends of the relay's own: nobody waits for a word of theirs
		_ = p.far.Close()
	})
}

// New starts a relay to target, host:port, on a free port of 127.0.0.1.
func New(target string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{target: target, l: l, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	r.wg.Go(r.accept)
	return r, nil
}

// Addr is where to connect instead of to the target.
func (r *Relay) Addr() string { return r.l.Addr().String() }

// Set says what happens from now on on the way to the target, and on the way back.
func (r *Relay) Set(to, from Fault) {
	r.change(func() { r.to, r.from, r.cut = to, from, false })
}

// Heal lets everything pass.
func (r *Relay) Heal() { r.Set(Fault{}, Fault{}) }

// Cut ends all connections at once, and new ones until Set or Heal.
func (r *Relay) Cut() {
	r.change(func() {
		r.to, r.from, r.cut = Fault{}, Fault{}, true
		for p := range r.pairs {
			p.close()
		}
	})
}

// Close ends the relay, and returns when it is gone.
func (r *Relay) Close() error {
	err := r.l.Close()
	r.change(func() {
		r.closed = true
		for p := range r.pairs {
			p.close()
		}
	})
	r.wg.Wait()
	return err
}

func (r *Relay) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	for p := range r.pairs {
		if p.lossy && r.to.Mode != Drop && r.from.Mode != Drop {
			p.close()
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Relay) accept() {
	for {
		c, err := r.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.wg.Go(func() { r.carry(c) })
		}
	}
}

// carry relays one connection until either end is gone.
func (r *Relay) carry(near net.Conn) {
	far, err := net.DialTimeout("tcp", r.target, 5*time.Second)
	if err != nil {
		_ = near.Close() // who connected sees that
		return
	}
	p := &pair{near: near, far: far, gone: make(chan struct{})}
	defer p.close()
	r.mu.Lock()
	r.pairs[p] = struct{}{}
	refused := r.cut || r.closed
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.pairs, p)
		r.mu.Unlock()
	}()
	if refused {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { r.way(p, near, far, &r.to) })
	ways.Go(func() { r.way(p, far, near, &r.from) })
	ways.Wait()
}

// sent is a chunk on its way.
type sent struct {
	b  []byte
	at time.Time
}

// way carries bytes one way. An end is carried like bytes: behind them, and held with them.
func (r *Relay) way(p *pair, src, dst net.Conn, fault *Fault) {
	queue := make(chan sent, depth)
	r.wg.Go(func() {
		defer close(queue)
		b := make([]byte, chunk)
		for {
			n, err := src.Read(b)
			if n > 0 {
				select {
				case queue <- sent{bytes.Clone(b[:n]), time.Now()}:
				case <-p.gone:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for s := range queue {
		if r.pass(p, fault, s.at) {
			if _, err := dst.Write(s.b); err != nil {
				p.close() // the reader ends with it
			}
		}
	}
	if r.pass(p, fault, time.Now()) {
		p.close()
	}
}

// pass waits until bytes sent at a time may arrive; false: they never do.
func (r *Relay) pass(p *pair, fault *Fault, at time.Time) bool {
	for {
		r.mu.Lock()
		f, changed := *fault, r.changed
		if f.Mode == Drop {
			p.lossy = true
		}
		r.mu.Unlock()
		wait := time.NewTimer(max(0, time.Until(at.Add(f.Delay))))
		due := wait.C
		switch f.Mode {
		case Drop:
			wait.Stop()
			return false
		case Hold:
			due = nil
		}
		select {
		case <-due:
			return true
		case <-changed:
		case <-p.gone:
			wait.Stop()
			return false
		}
		wait.Stop()
	}
}
