package rowwire

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/monolith-go/monolith/internal/retry"
)

// Options bound what a server takes on. The zero value has the defaults named.
type Options struct {
	MaxConns     int           // connections at once; more wait in the backlog; default 1024
	InFlight     int           // requests of one connection worked on at once; more stay unread; default 64
	InFlightSize int64         // their bytes; default 64 MiB, at least one frame
	HelloTimeout time.Duration // for the first frame; default 5 s
	ReadTimeout  time.Duration // for the rest of a frame that has begun; default 10 s
	WriteTimeout time.Duration // for one response; default 10 s
	Timeout      time.Duration // longest a handler may take, whatever the caller allows; default 60 s
	Drain        time.Duration // for the requests at hand once ctx ends; default 5 s
	TLS          *tls.Config   // nil: not encrypted; unix sockets never are
	Log          *slog.Logger  // default: none
	Local        *Local        // where pools of this process find the server; nil: by its socket
	Addr         string        // as callers know the server, for Local; default: what it listens on
}

func (o Options) withDefaults() Options {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if o.MaxConns <= 0 {
		o.MaxConns = 1024
	}
	if o.InFlight <= 0 {
		o.InFlight = 64
	}
	if o.InFlightSize <= 0 {
		o.InFlightSize = 64 << 20
	}
	o.InFlightSize = max(o.InFlightSize, MaxFrame)
	def(&o.HelloTimeout, 5*time.Second)
	def(&o.ReadTimeout, 10*time.Second)
	def(&o.WriteTimeout, 10*time.Second)
	def(&o.Timeout, 60*time.Second)
	def(&o.Drain, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Serve answers requests that arrive on ln until ctx ends, then reads no more, finishes
// what is at hand within Options.Drain, and returns nil. It closes ln.
func Serve(ctx context.Context, ln net.Listener, h Handler, o Options) error {
	o = o.withDefaults()
	if o.TLS != nil && ln.Addr().Network() != "unix" {
		ln = tls.NewListener(ln, o.TLS) // shakes hands at the first read, under the hello's deadline
	}
	// Requests outlive ctx by the drain time.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	unhook := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer unhook()
	defer func() { _ = ln.Close() }()
	here, leave := o.Local.serve(work, cmp.Or(o.Addr, Addr(ln.Addr())), h, o)
	defer context.AfterFunc(ctx, leave)()
	defer func() {
		leave()
		here.calls.Wait()
	}()

	slots := semaphore.NewWeighted(int64(o.MaxConns))
	pause := retry.New(50*time.Millisecond, time.Second)
	for {
		if slots.Acquire(ctx, 1) != nil {
			break
		}
		nc, err := ln.Accept()
		if err != nil {
			slots.Release(1)
			if ctx.Err() != nil {
				break
			}
			if errors.Is(err, net.ErrClosed) {
				stop() // what is called from this process ends, too
				return fmt.Errorf("rowwire: listener closed by somebody else: %w", err)
			}
			o.Log.Warn("row protocol: accept failed, trying on", "err", err)
			_ = pause.Wait(ctx) // out of file descriptors: give some back first
			continue
		}
		pause.Reset()
		conns.Go(func() {
			defer slots.Release(1)
			serveConn(ctx, work, nc, h, o)
		})
	}
	t := time.AfterFunc(o.Drain, stop)
	defer t.Stop()
	leave()
	conns.Wait()
	here.calls.Wait()
	return nil
}

// conn is one connection: a reader, a writer, and a goroutine per request at hand.
type conn struct {
	nc  net.Conn
	h   Handler
	o   Options
	ctx context.Context
	out chan *[]byte

	version uint16 // of the protocol, as agreed; the reader's until the first request

	readMu   sync.Mutex
	draining bool

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc
}

func serveConn(ctx, work context.Context, nc net.Conn, h Handler, o Options) {
	cctx, cancel := context.WithCancel(work)
	defer cancel()
	c := &conn{nc: nc, h: h, o: o, ctx: cctx, out: make(chan *[]byte, o.InFlight), cancels: map[uint64]context.CancelFunc{}}
	defer func() { _ = nc.Close() }()
	defer context.AfterFunc(ctx, c.drain)()
	defer context.AfterFunc(work, func() { _ = nc.Close() })()

	var writer sync.WaitGroup
	writer.Go(func() { writeLoop(nc, c.out, o.WriteTimeout) })
	var requests sync.WaitGroup
	err := c.read(&requests)
	c.readMu.Lock()
	drained := c.draining
	c.readMu.Unlock()
	if !drained {
		cancel() // nobody waits for the answers
	}
	requests.Wait()
	if e := (*Error)(nil); errors.As(err, &e) {
		if b, ferr := frame(opError, 0, -1, e); ferr == nil {
			c.out <- b
		}
		o.Log.Warn("row protocol: connection refused", "peer", nc.RemoteAddr().String(), "err", err)
	}
	close(c.out)
	writer.Wait()
}

// drain stops reading; it runs once the server's ctx has ended.
func (c *conn) drain() {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.draining = true
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

func (c *conn) readDeadline(t time.Time) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if !c.draining {
		_ = c.nc.SetReadDeadline(t)
	}
}

// read takes frames until the peer goes, breaks the protocol, or the server drains.
func (c *conn) read(requests *sync.WaitGroup) error {
	r := bufio.NewReaderSize(c.nc, 64<<10)
	c.readDeadline(time.Now().Add(c.o.HelloTimeout))
	if err := c.hello(r); err != nil {
		return err
	}
	slots := semaphore.NewWeighted(int64(c.o.InFlight))
	bytes := semaphore.NewWeighted(c.o.InFlightSize)
	for {
		c.readDeadline(time.Time{})
		if _, err := r.Peek(1); err != nil {
			return err
		}
		c.readDeadline(time.Now().Add(c.o.ReadTimeout))
		op, id, buf, payload, err := readFrame(r)
		if err != nil {
			return err
		}
		if op == opCancel {
			giveBack(buf)
			c.mu.Lock()
			cancel := c.cancels[id]
			c.mu.Unlock()
			if cancel != nil {
				cancel()
			}
			continue
		}
		if op < opLookup || op > opScan || len(payload) < 4 {
			giveBack(buf)
			return Errorf(Invalid, "op %d with %d bytes is no request of protocol version %d", op, len(payload), Version)
		}
		limit := c.o.Timeout
		if ms := le.Uint32(payload); ms > 0 {
			limit = min(limit, time.Duration(ms)*time.Millisecond)
		}
		// Above these bounds the peer waits in its own send buffer.
		size := int64(len(payload))
		if slots.Acquire(c.ctx, 1) != nil || bytes.Acquire(c.ctx, size) != nil {
			giveBack(buf)
			return c.ctx.Err()
		}
		rctx, cancel := context.WithTimeout(c.ctx, limit)
		c.mu.Lock()
		_, twice := c.cancels[id]
		c.cancels[id] = cancel
		c.mu.Unlock()
		if twice {
			cancel()
			giveBack(buf)
			return Errorf(Invalid, "request id %d is in use already on this connection", id)
		}
		requests.Go(func() {
			defer slots.Release(1)
			defer bytes.Release(size)
			answer := c.handle(rctx, op, id, payload[4:])
			c.mu.Lock()
			delete(c.cancels, id)
			c.mu.Unlock()
			cancel()
			giveBack(buf)
			select {
			case c.out <- answer:
			case <-c.ctx.Done():
				giveBack(answer)
			}
		})
	}
}

func (c *conn) hello(r *bufio.Reader) error {
	op, id, buf, payload, err := readFrame(r)
	if err != nil {
		return err
	}
	defer giveBack(buf)
	var h hello
	if op != opHello || h.decode(&decoder{b: payload}) != nil || h.Magic != magic {
		return Errorf(Invalid, "the connection did not open with the hello of the row protocol")
	}
	if h.Version < Oldest || h.Version > Version {
		return Errorf(Invalid, "the client speaks row protocol version %d, this server %d to %d: upgrade the older one", h.Version, Oldest, Version)
	}
	b, err := frame(opHello|opResponse, id, -1, &hello{Magic: magic, Version: h.Version, InFlight: uint32(c.o.InFlight)})
	if err != nil {
		return err
	}
	c.version = h.Version
	c.out <- b
	return nil
}

// scratch keeps decoded requests for the next ones of the same kind.
var (
	lookups = sync.Pool{New: func() any { return new(LookupRequest) }}
	applies = sync.Pool{New: func() any { return new(ApplyRequest) }}
	denses  = sync.Pool{New: func() any { return new(DenseResponse) }} // answers
)

func (c *conn) handle(ctx context.Context, op uint8, id uint64, payload []byte) *[]byte {
	var res message
	var err error
	d := &decoder{b: payload}
	switch op {
	case opLookup:
		r := lookups.Get().(*LookupRequest)
		defer lookups.Put(r)
		if err = r.decode(d); err == nil {
			var found *LookupResponse
			if found, err = c.h.Lookup(ctx, r); err == nil {
				if found.Done != nil {
					defer found.Done()
				}
				res = found.answering(r)
			}
		}
	case opApply:
		r := applies.Get().(*ApplyRequest)
		defer applies.Put(r)
		res, err = answer(ctx, r, r.decode(d), c.h.Apply)
	case opDense:
		r, found := new(DenseRequest), denses.Get().(*DenseResponse)
		if err = r.decode(d); err == nil {
			err = denseInto(ctx, c.h, r, found)
		}
		if _, ok := c.h.(DenseFiller); ok {
			defer denses.Put(found) // else the memory is not its own
		}
		if res = found; err == nil && c.version < bandsSince && found.banded() {
			err = Errorf(NotFound, "the model has variables in bands, and the client speaks row protocol version %d, which knows none: upgrade it", c.version)
		}
	case opOffsets:
		r := new(OffsetsRequest)
		res, err = answer(ctx, r, r.decode(d), c.h.Offsets)
	case opScan:
		r := new(ScanRequest)
		res, err = answer(ctx, r, r.decode(d), c.h.Scan)
	}
	if err == nil {
		var b *[]byte
		if b, err = frame(op|opResponse, id, -1, res); err == nil {
			return b
		}
	}
	b, err := frame(opError, id, -1, asError(err))
	if err != nil {
		panic("rowwire: an error frame is always small enough: " + err.Error())
	}
	return b
}

// answering is the response as r wants it encoded.
func (r *LookupResponse) answering(q *LookupRequest) *LookupResponse {
	out := *r
	out.encoding = q.Encoding
	if q.Encoding == Int8 {
		out.counts = make([]int, len(q.Tables))
		for i := range q.Tables {
			out.counts[i] = len(q.Tables[i].IDs)
		}
	}
	return &out
}

// answer calls method unless the request could not be decoded.
func answer[Q any, P interface {
	*R
	message
}, R any](ctx context.Context, r *Q, bad error, method func(context.Context, *Q) (P, error)) (message, error) {
	if bad != nil {
		return nil, bad
	}
	res, err := method(ctx, r)
	if err != nil {
		return nil, err
	}
	return res, nil
}

// writeLoop sends what arrives on out until it is closed, and flushes whenever nothing
// more waits. A failure closes nc, by which the reader ends; out is emptied all the same,
// so that nobody blocks on it.
func writeLoop(nc net.Conn, out <-chan *[]byte, timeout time.Duration) {
	w := bufio.NewWriterSize(nc, 64<<10)
	for b := range out {
		if err := writeFrames(nc, w, b, out, timeout); err != nil {
			_ = nc.Close()
			break
		}
	}
	for b := range out {
		giveBack(b)
	}
}

// writeFrames sends b and whatever else is ready.
func writeFrames(nc net.Conn, w *bufio.Writer, b *[]byte, out <-chan *[]byte, timeout time.Duration) error {
	for {
		if err := nc.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			giveBack(b)
			return err
		}
		_, err := w.Write(*b)
		giveBack(b)
		if err != nil {
			return err
		}
		select {
		case next, ok := <-out:
			if ok {
				b = next
				continue
			}
		default:
		}
		return w.Flush()
	}
}
