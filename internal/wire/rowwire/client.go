package rowwire

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/mtls"
)

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 30 * time.Second // of a request whose ctx names none
	writeTimeout   = 10 * time.Second
	clientInFlight = 128

	// A connection on which so many requests ran out of time, and nothing at all arrived
	// for so long, leads nowhere: a server that lives answers those too, only late.
	condemnAfter = 3
	condemnQuiet = time.Second
)

// Client is one connection with many requests in flight. It is safe for concurrent use;
// requests may be answered out of order. Once Err is set it is of no more use.
type Client struct {
	addr    string
	nc      net.Conn
	version uint16 // of the protocol, as agreed
	out     chan *[]byte
	slots   chan struct{}
	done    chan struct{} // closed once the connection is of no more use
	wg      sync.WaitGroup

	mu       sync.Mutex
	nextID   uint64
	pending  map[uint64]chan response
	timeouts int       // since anything arrived
	quiet    time.Time // since when nothing has, if timeouts > 0
	err      error
}

type response struct {
	op      uint8
	buf     *[]byte
	payload []byte
}

var _ Conn = (*Client)(nil)

// Dial connects to "host:port" or "unix:///path" and agrees on a protocol version, within
// ctx and five seconds. conf, unless nil, encrypts host:port.
func Dial(ctx context.Context, addr string, conf *tls.Config) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for version := uint16(Version); ; version-- {
		c, err := dialVersion(ctx, addr, conf, version)
		if CodeOf(err) != Invalid || version == Oldest {
			return c, err
		}
	}
}

func dialVersion(ctx context.Context, addr string, conf *tls.Config, version uint16) (*Client, error) {
	network, address, err := SplitAddr(addr)
	if err != nil {
		return nil, Errorf(Invalid, "%w", err)
	}
	nc, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, Errorf(Unavailable, "no connection to %s: %w", addr, err)
	}
	if conf != nil && network != "unix" {
		conf, err := mtls.To(conf, address)
		if err != nil {
			return nil, Errorf(Unavailable, "no connection to %s: %w", addr, errors.Join(err, nc.Close()))
		}
		nc = tls.Client(nc, conf)
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	r := bufio.NewReaderSize(nc, 64<<10)
	h, err := greet(nc, r, version)
	if err != nil {
		_ = nc.Close()
		if e := (*Error)(nil); errors.As(err, &e) {
			return nil, e
		}
		return nil, Errorf(Unavailable, "%s did not answer the hello: %w", addr, err)
	}
	if ctx.Err() != nil {
		_ = nc.Close()
		return nil, Errorf(Unavailable, "no connection to %s: %w", addr, ctx.Err())
	}
	// No more than the server works on, so that it keeps reading and sees cancellations.
	n := min(clientInFlight, max(1, int(h.InFlight)))
	c := &Client{
		addr: addr, nc: nc, version: version,
		out: make(chan *[]byte, n), slots: make(chan struct{}, n),
		done: make(chan struct{}), pending: map[uint64]chan response{},
	}
	c.wg.Go(func() { c.write() })
	c.wg.Go(func() { c.fail(c.read(r)) })
	return c, nil
}

// dialer notices a host that has vanished: idle by keepalive, with something on its way
// by the user timeout.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	Control:         userTimeout,
}

func greet(nc net.Conn, r *bufio.Reader, version uint16) (hello, error) {
	b, err := frame(opHello, 0, -1, &hello{Magic: magic, Version: version})
	if err != nil {
		return hello{}, err
	}
	_, err = nc.Write(*b)
	giveBack(b)
	if err != nil {
		return hello{}, err
	}
	op, _, buf, payload, err := readFrame(r)
	if err != nil {
		return hello{}, err
	}
	defer giveBack(buf)
	if op == opError {
		return hello{}, refusal(payload)
	}
	var h hello
	if op != opHello|opResponse || h.decode(&decoder{b: payload}) != nil || h.Magic != magic || h.Version != version {
		return hello{}, Errorf(Invalid, "%s is no server of row protocol version %d", nc.RemoteAddr(), version)
	}
	return h, nil
}

func refusal(payload []byte) *Error {
	e := new(Error)
	if err := e.decode(&decoder{b: payload}); err != nil {
		return asError(err)
	}
	return e
}

// write owns the sending half.
func (c *Client) write() {
	w := bufio.NewWriterSize(c.nc, 64<<10)
	for {
		select {
		case b := <-c.out:
			if err := writeFrames(c.nc, w, b, c.out, writeTimeout); err != nil {
				c.fail(err)
				return
			}
		case <-c.done:
			return
		}
	}
}

// read owns the receiving half: it hands each answer to whoever waits for it.
func (c *Client) read(r *bufio.Reader) error {
	for {
		op, id, buf, payload, err := readFrame(r)
		if err != nil {
			return err
		}
		if op == opError && id == 0 {
			e := refusal(payload)
			giveBack(buf)
			return e
		}
		c.mu.Lock()
		ch := c.pending[id]
		delete(c.pending, id)
		c.timeouts = 0
		c.mu.Unlock()
		if ch == nil {
			giveBack(buf) // given up meanwhile
			continue
		}
		ch <- response{op, buf, payload}
	}
}

// fail ends the connection, once.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.done)
	_ = c.nc.Close()
}

// Err is nil while the connection is of use.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return Errorf(Unavailable, "connection to %s: %w", c.addr, c.err)
}

// Road is "unix" or "tcp".
func (c *Client) Road() string { return c.nc.RemoteAddr().Network() }

// Close ends the connection and every request in flight.
func (c *Client) Close() error {
	c.fail(net.ErrClosed)
	c.wg.Wait()
	return nil
}

// call sends a request and decodes its answer into res.
func (c *Client) call(ctx context.Context, op uint8, req message, res interface{ decode(*decoder) error }) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return gaveUp(ctx, c.addr, "waited for its turn")
	}
	deadline, _ := ctx.Deadline()
	sent := time.Now()
	left := deadline.Sub(sent)
	if left <= 0 {
		return gaveUp(ctx, c.addr, "not sent")
	}
	ch := make(chan response, 1)
	c.mu.Lock()
	c.nextID++
	id := c.nextID
	c.pending[id] = ch
	c.mu.Unlock()
	b, err := frame(op, id, max(1, left.Milliseconds()), req)
	if err != nil {
		c.forget(id)
		return err
	}
	select {
	case c.out <- b:
	case <-c.done:
		c.forget(id)
		giveBack(b)
		return c.Err()
	case <-ctx.Done():
		c.forget(id)
		giveBack(b)
		return gaveUp(ctx, c.addr, "not sent")
	}
	select {
	case r := <-ch:
		return c.finish(op, r, res)
	case <-ctx.Done():
		c.cancel(id)
		c.unheard(ctx, sent)
		return gaveUp(ctx, c.addr, "no answer")
	case <-c.done:
	}
	select { // the answer may have come just before the end
	case r := <-ch:
		return c.finish(op, r, res)
	default:
		return c.Err()
	}
}

func (c *Client) finish(op uint8, r response, res interface{ decode(*decoder) error }) error {
	defer giveBack(r.buf)
	switch r.op {
	case opError:
		return refusal(r.payload)
	case op | opResponse:
		if err := res.decode(&decoder{b: r.payload}); err != nil {
			err = fmt.Errorf("%s answered what is no response: %w", c.addr, err)
			c.fail(err)
			return Errorf(Unavailable, "%w", err)
		}
		return nil
	}
	err := fmt.Errorf("%s answered op %d with op %d", c.addr, op, r.op)
	c.fail(err)
	return Errorf(Unavailable, "%w", err)
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// cancel tells the server that nobody waits, if that can be said at once.
func (c *Client) cancel(id uint64) {
	c.forget(id)
	b, err := frame(opCancel, id, -1, nil)
	if err != nil {
		return
	}
	select {
	case c.out <- b:
	default:
		giveBack(b)
	}
}

// unheard counts a request, sent then, that ran out of time, and ends the connection once
// it must be taken for dead.
func (c *Client) unheard(ctx context.Context, sent time.Time) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // the caller left
	}
	c.mu.Lock()
	if c.timeouts++; c.timeouts == 1 {
		c.quiet = sent
	}
	quiet := time.Since(c.quiet)
	condemned := c.timeouts >= condemnAfter && quiet >= condemnQuiet
	n := c.timeouts
	c.mu.Unlock()
	if condemned {
		c.fail(fmt.Errorf("nothing arrived for %v, in which %d requests ran out of time", quiet.Round(time.Millisecond), n))
	}
}

// gaveUp is the error of a request that ctx ended, or is about to: its deadline may have
// passed a moment before it says so.
func gaveUp(ctx context.Context, addr, what string) error {
	return Errorf(Unavailable, "request to %s given up, %s: %w", addr, what, cmp.Or(ctx.Err(), context.DeadlineExceeded))
}

// Lookup implements [Handler] over the connection.
func (c *Client) Lookup(ctx context.Context, r *LookupRequest) (*LookupResponse, error) {
	res := new(LookupResponse)
	if err := c.LookupInto(ctx, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// LookupInto is Lookup into the memory of an earlier response, which nobody else may
// use any more.
func (c *Client) LookupInto(ctx context.Context, r *LookupRequest, res *LookupResponse) error {
	if c.version < 3 && r.versioned() {
		return Errorf(NotFound, "%s speaks row protocol version %d, which cannot say rows of which version it serves: upgrade it", c.addr, c.version)
	}
	return c.call(ctx, opLookup, r, res)
}

// knowsNoBands is no answer about a request's content: the same does once the peer is newer.
func (c *Client) knowsNoBands() error {
	return Errorf(Unavailable, "%s speaks row protocol version %d, which knows no variables in bands and no applies in parts: upgrade it", c.addr, c.version)
}

// Apply implements [Handler] over the connection.
func (c *Client) Apply(ctx context.Context, r *ApplyRequest) (*ApplyResponse, error) {
	if c.version < bandsSince && r.banded() {
		return nil, c.knowsNoBands()
	}
	res := new(ApplyResponse)
	if err := c.call(ctx, opApply, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// Dense implements [Handler] over the connection.
func (c *Client) Dense(ctx context.Context, r *DenseRequest) (*DenseResponse, error) {
	res := new(DenseResponse)
	if err := c.DenseInto(ctx, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// DenseInto implements [Conn].
func (c *Client) DenseInto(ctx context.Context, r *DenseRequest, res *DenseResponse) error {
	if c.version < bandsSince && r.banded() {
		return c.knowsNoBands()
	}
	return c.call(ctx, opDense, r, res)
}

// Offsets implements [Handler] over the connection.
func (c *Client) Offsets(ctx context.Context, r *OffsetsRequest) (*OffsetsResponse, error) {
	res := new(OffsetsResponse)
	if err := c.call(ctx, opOffsets, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// Scan implements [Handler] over the connection.
func (c *Client) Scan(ctx context.Context, r *ScanRequest) (*ScanResponse, error) {
	res := new(ScanResponse)
	if err := c.call(ctx, opScan, r, res); err != nil {
		return nil, err
	}
	return res, nil
}
