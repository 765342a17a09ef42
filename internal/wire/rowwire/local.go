package rowwire

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Filler is a Handler that looks rows up into memory of the caller's: that of res, as
// [LookupResponse.Into] has prepared it or an earlier answer has left it.
type Filler interface {
	LookupInto(ctx context.Context, r *LookupRequest, res *LookupResponse) error
}

// DenseFiller is a Handler that copies dense variables into memory of the caller's: that of res, as
// [DenseResponse.Into] has prepared it or an earlier answer has left it.
type DenseFiller interface {
	DenseInto(ctx context.Context, r *DenseRequest, res *DenseResponse) error
}

// Local has the servers of one process by their addresses, so that its pools call them
// without a socket. A nil Local has none.
type Local struct {
	mu      sync.Mutex
	servers map[string]*localServer
}

// NewLocal returns one without servers.
func NewLocal() *Local { return &Local{servers: map[string]*localServer{}} }

// NewPool returns an empty pool that prefers the servers of l. conf, unless nil, encrypts
// connections to host:port.
func (l *Local) NewPool(conf *tls.Config) *Pool {
	p := NewPool(conf)
	p.local = l
	return p
}

// localServer is a server as pools of its own process see it.
type localServer struct {
	h    Handler
	o    Options
	work context.Context // of requests; ends when the server gives up draining

	mu    sync.Mutex
	gone  bool
	calls sync.WaitGroup
}

// serve makes h reachable at addr until leave is called. Whoever calls leave waits for
// calls then.
func (l *Local) serve(work context.Context, addr string, h Handler, o Options) (s *localServer, leave func()) {
	s = &localServer{h: h, o: o, work: work}
	if l == nil {
		return s, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers[addr] = s
	return s, func() {
		l.mu.Lock()
		if l.servers[addr] == s { // nobody has followed it there
			delete(l.servers, addr)
		}
		l.mu.Unlock()
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
	}
}

// enter is false once the server takes no more requests. Who has entered calls
// calls.Done.
func (s *localServer) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	s.calls.Add(1)
	return true
}

// conn returns a connection to the server at addr, nil if none of this process has it.
func (l *Local) conn(addr string) *localConn {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	s := l.servers[addr]
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	c := &localConn{addr: addr, s: s, slots: make(chan struct{}, min(clientInFlight, s.o.InFlight))}
	c.ctx, c.close = context.WithCancel(s.work)
	return c
}

// localConn calls a server of the same process on the caller's goroutine, under the bounds
// and with the errors that a socket would give. Requests that want another encoding than
// FP32 go through the codec, as that rounds their numbers.
//
// A handler that does not return when its ctx ends keeps its caller: the memory of the
// request and of the answer is the caller's again only when it has returned.
type localConn struct {
	addr  string
	s     *localServer
	slots chan struct{}
	ctx   context.Context // ends with the connection
	close context.CancelFunc
}

var _ Conn = (*localConn)(nil)

// Err is nil while the server takes requests.
func (c *localConn) Err() error {
	c.s.mu.Lock()
	gone := c.s.gone
	c.s.mu.Unlock()
	if gone || c.ctx.Err() != nil {
		return Errorf(Unavailable, "connection to %s: %w", c.addr, net.ErrClosed)
	}
	return nil
}

// Road is "process".
func (c *localConn) Road() string { return "process" }

// Close ends the connection and every request in flight.
func (c *localConn) Close() error {
	c.close()
	return nil
}

// call has work answer req under what is left of ctx.
func (c *localConn) call(ctx context.Context, req message, work func(context.Context) error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		deadline, _ = ctx.Deadline()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.ctx.Done():
		return c.Err()
	case <-ctx.Done():
		return gaveUp(ctx, c.addr, "waited for its turn")
	}
	if time.Until(deadline) <= 0 || ctx.Err() != nil {
		return gaveUp(ctx, c.addr, "not sent")
	}
	if err := withinBounds(req, headLen+4); err != nil {
		return err
	}
	if c.ctx.Err() != nil || !c.s.enter() {
		return c.Err()
	}
	defer c.s.calls.Done()
	if last := time.Now().Add(c.s.o.Timeout); deadline.After(last) {
		deadline = last
	}
	// The server's ctx, as behind a socket: what the caller's carries is not the handler's.
	hctx, cancel := context.WithDeadline(c.ctx, deadline)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err := work(hctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return gaveUp(ctx, c.addr, "no answer")
	case c.ctx.Err() != nil:
		return c.Err()
	}
	e := asError(err)
	return &Error{Code: e.Code, Message: e.Message[:min(len(e.Message), MaxString)], Next: e.Next} // causes do not travel
}

// Lookup implements [Handler]. The answer is the caller's for good.
func (c *localConn) Lookup(ctx context.Context, r *LookupRequest) (*LookupResponse, error) {
	res := new(LookupResponse)
	if err := c.LookupInto(ctx, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// LookupInto is Lookup into the memory of an earlier response, which nobody else may
// use any more.
func (c *localConn) LookupInto(ctx context.Context, r *LookupRequest, res *LookupResponse) error {
	return c.call(ctx, r, func(ctx context.Context) error {
		if f, ok := c.s.h.(Filler); ok && r.Encoding == FP32 {
			res.encoding, res.counts = FP32, res.counts[:0]
			if err := f.LookupInto(ctx, r, res); err != nil {
				return err
			}
			return withinBounds(res, headLen)
		}
		found, err := c.s.h.Lookup(ctx, r)
		if err != nil {
			return err
		}
		if found.Done != nil {
			defer found.Done()
		}
		return recode(found.answering(r), res)
	})
}

// Apply implements [Handler].
func (c *localConn) Apply(ctx context.Context, r *ApplyRequest) (res *ApplyResponse, err error) {
	err = c.call(ctx, r, func(ctx context.Context) (err error) {
		q := r
		if r.Encoding != FP32 {
			q = applies.Get().(*ApplyRequest)
			defer applies.Put(q)
			if err := recode(r, q); err != nil {
				return err
			}
		}
		res, err = c.s.h.Apply(ctx, q)
		return err
	})
	return answered(res, err)
}

// Dense implements [Handler].
func (c *localConn) Dense(ctx context.Context, r *DenseRequest) (*DenseResponse, error) {
	res := new(DenseResponse)
	return answered(res, c.DenseInto(ctx, r, res))
}

// DenseInto implements [Conn].
func (c *localConn) DenseInto(ctx context.Context, r *DenseRequest, res *DenseResponse) error {
	return c.call(ctx, r, func(ctx context.Context) error {
		if err := denseInto(ctx, c.s.h, r, res); err != nil {
			return err
		}
		return withinBounds(res, headLen)
	})
}

// denseInto asks h, into the memory of res if it can.
func denseInto(ctx context.Context, h Handler, r *DenseRequest, res *DenseResponse) error {
	if f, ok := h.(DenseFiller); ok {
		return f.DenseInto(ctx, r, res)
	}
	found, err := h.Dense(ctx, r)
	if err == nil {
		*res = *found
	}
	return err
}

// Offsets implements [Handler].
func (c *localConn) Offsets(ctx context.Context, r *OffsetsRequest) (*OffsetsResponse, error) {
	return ask(ctx, c, r, c.s.h.Offsets)
}

// Scan implements [Handler].
func (c *localConn) Scan(ctx context.Context, r *ScanRequest) (*ScanResponse, error) {
	return ask(ctx, c, r, c.s.h.Scan)
}

// ask calls method with r.
func ask[Q message, P interface {
	*R
	message
}, R any](ctx context.Context, c *localConn, r Q, method func(context.Context, Q) (P, error)) (P, error) {
	var res P
	err := c.call(ctx, r, func(ctx context.Context) (err error) {
		if res, err = method(ctx, r); err != nil {
			return err
		}
		return withinBounds(res, headLen)
	})
	return answered(res, err)
}

// answered keeps a late answer from those who get an error.
func answered[R any](res *R, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	return res, nil
}

// withinBounds refuses what could not be sent in a frame of so many bytes before the
// message.
func withinBounds(m message, head int) error {
	buf := buffers.Get().(*[]byte)
	e := encoder{b: append((*buf)[:0], make([]byte, head)...), weigh: true}
	m.encode(&e)
	*buf = e.b
	giveBack(buf)
	e.bound()
	if e.err != nil {
		return e.err
	}
	return nil
}

// recode makes of out what a receiver of m has.
func recode(m message, out interface{ decode(*decoder) error }) error {
	b, err := frame(0, 0, -1, m)
	if err != nil {
		return err
	}
	defer giveBack(b)
	return out.decode(&decoder{b: (*b)[headLen:]})
}
