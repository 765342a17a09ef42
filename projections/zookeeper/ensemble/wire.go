package ensemble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

const (
	inFlight  = 256                       // requests on the wire at a time
	silence   = 2                         // a server that says nothing for this part of the session's time-out is given up
	recursive = 1                         // addWatch's mode
	maxImport = catalog.MaxBytes - 16<<10 // bytes of data; the rest of an event is the path and the ACL
)

var errNoWatch = errors.New("the ensemble knows no addWatch, it is older than 3.6")

// readConn is the connection for reads and watches. One goroutine asks, its own one
// receives. It never outlives its TCP connection.
type readConn struct {
	c       *client.Conn
	timeout time.Duration
	chroot  string
	fired   func(path string) // called by the receiver for every watch event

	sending sync.Mutex // the asker's and the pinger's turns
	pending chan pending
	done    chan struct{} // closed when the receiver has ended
	err     error         // why; set before done is closed
	closing sync.Once
	pinger  chan struct{}
}

type pending struct {
	xid int32
	on  func(wire.ReplyHeader, *wire.Reader) error
}

// request is one question; on reads the answer, whose bytes are valid until it returns.
type request struct {
	op   wire.Op
	body func(*wire.Writer)
	on   func(wire.ReplyHeader, *wire.Reader) error
}

// dialReads opens a session at the first server that grants one.
func dialReads(ctx context.Context, cfg *Config, fired func(path string)) (*readConn, error) {
	var errs []error
	for _, i := range rand.Perm(len(cfg.Servers)) {
		w, err := dialServer(ctx, cfg, cfg.Servers[i], fired)
		if err == nil {
			return w, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func dialServer(ctx context.Context, cfg *Config, addr string, fired func(path string)) (*readConn, error) {
	nc, err := cfg.Dial("tcp", addr, dialWithin)
	if err == nil {
		nc, err = cfg.secure(nc, addr)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() }) // ends the handshake
	c, err := client.Open(nc, wire.ConnectRequest{TimeoutMS: int32(cfg.Session.Milliseconds()), Password: make([]byte, 16)}, dialWithin)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), c.Close())
	}
	if err != nil {
		return nil, err
	}
	w := &readConn{
		c: c, timeout: time.Duration(c.Session.TimeoutMS) * time.Millisecond, chroot: cfg.Chroot, fired: fired,
		pending: make(chan pending, 2*inFlight), done: make(chan struct{}), pinger: make(chan struct{}),
	}
	if c.Session.SessionID == 0 || w.timeout <= 0 {
		_ = c.Close()
		return nil, fmt.Errorf("%s grants no session", addr)
	}
	go w.receive()
	go w.ping()
	for _, a := range cfg.Auth {
		if err := w.auth(ctx, a); err != nil {
			w.close()
			return nil, fmt.Errorf("show the %s identity at %s: %w", a.Scheme, addr, err)
		}
	}
	return w, nil
}

func (w *readConn) receive() {
	defer close(w.done)
	for {
		// Only an answer gives a server more time, never a question.
		err := w.c.Deadline(w.timeout / silence)
		if err != nil {
			w.err = err
			return
		}
		h, r, err := w.c.Next()
		if err != nil {
			w.err = err
			return
		}
		switch h.Xid {
		case wire.XidPing:
			continue
		case wire.XidNotification:
			var e wire.WatcherEvent
			if e.Decode(r); r.Err() != nil {
				w.err = r.Err()
				return
			}
			w.fired(e.Path)
			continue
		}
		select {
		case p := <-w.pending:
			if p.xid != h.Xid {
				w.err = fmt.Errorf("an answer to request %d where %d was next", h.Xid, p.xid)
				return
			}
			if w.err = p.on(h, r); w.err != nil {
				return
			}
		default:
			w.err = fmt.Errorf("an answer to request %d, which nobody asked", h.Xid)
			return
		}
	}
}

// ping keeps the session, and has a server say something three times before its silence
// counts as its end.
func (w *readConn) ping() {
	t := time.NewTicker(w.timeout / (3 * silence))
	defer t.Stop()
	for {
		w.sending.Lock()
		w.c.SendAs(wire.XidPing, wire.OpPing, nil)
		err := w.c.Flush()
		w.sending.Unlock()
		if err != nil {
			_ = w.c.Close() // the receiver tells
			return
		}
		select {
		case <-t.C:
		case <-w.done:
			return
		case <-w.pinger:
			return
		}
	}
}

// ask sends all requests and returns once all answers are in, or earlier with an error:
// answers that come behind that are told to nobody, for what they would write to is the
// caller's again.
func (w *readConn) ask(ctx context.Context, all []request) error {
	var mu sync.Mutex
	left := false
	defer func() {
		mu.Lock()
		left = true
		mu.Unlock()
	}()
	for chunk := range slices.Chunk(all, inFlight) {
		answered := make(chan struct{})
		w.sending.Lock()
		for i, q := range chunk {
			last := i == len(chunk)-1
			on := func(h wire.ReplyHeader, r *wire.Reader) error {
				mu.Lock()
				defer mu.Unlock()
				if !left {
					if err := q.on(h, r); err != nil {
						return err // the asker hears it by the connection's end
					}
				}
				if last {
					close(answered)
				}
				return nil
			}
			xid := w.c.Send(q.op, q.body)
			w.pending <- pending{xid, on} // before it is on the wire: nothing of an earlier chunk waits
		}
		err := w.c.Flush()
		w.sending.Unlock()
		if err != nil {
			_ = w.c.Close()
		}
		select {
		case <-answered:
		case <-w.done:
			return fmt.Errorf("the connection for reads: %w", w.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// close ends the session; nothing goes with it.
func (w *readConn) close() {
	w.closing.Do(func() {
		close(w.pinger)
		w.sending.Lock()
		w.c.SendAs(0, wire.OpCloseSession, nil)
		_ = w.c.Flush() // the session would expire by itself
		w.sending.Unlock()
		_ = w.c.Close()
	})
	<-w.done
}

func (w *readConn) auth(ctx context.Context, a Auth) error {
	var code wire.Code
	answered := make(chan struct{})
	w.sending.Lock()
	p := wire.AuthPacket{Scheme: a.Scheme, Auth: a.Secret}
	w.c.SendAs(wire.XidAuth, wire.OpAuth, p.Encode)
	w.pending <- pending{wire.XidAuth, func(h wire.ReplyHeader, _ *wire.Reader) error {
		code = h.Err
		close(answered)
		return nil
	}}
	err := w.c.Flush()
	w.sending.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-answered:
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
	if code != wire.OK {
		return fmt.Errorf("refused with code %d", code)
	}
	return nil
}

// watch makes the server tell of every change below the paths, for as long as the
// connection lasts, whether they exist or not.
func (w *readConn) watch(ctx context.Context, paths []string) error {
	var all []request
	var refused wire.Code
	for _, path := range paths {
		all = append(all, request{wire.OpAddWatch, func(b *wire.Writer) { b.String(w.chroot + path); b.Int32(recursive) },
			func(h wire.ReplyHeader, _ *wire.Reader) error {
				refused = min(refused, h.Err)
				return nil
			}})
	}
	err := w.ask(ctx, all)
	if refused == wire.Unimplemented { // perhaps it has hung up since
		return errNoWatch
	}
	if err == nil && refused != wire.OK {
		return fmt.Errorf("watch %v: refused with code %d", paths, refused)
	}
	return err
}

// barrier returns a zxid: every change up to it has been told to fired, and every read
// from now on sees it.
func (w *readConn) barrier(ctx context.Context, path string) (zxid int64, err error) {
	q := wire.Path{Path: w.chroot + path}
	read := wire.PathWatch{Path: w.chroot + path}
	err = w.ask(ctx, []request{
		{wire.OpSync, q.Encode, func(h wire.ReplyHeader, _ *wire.Reader) error {
			if h.Err != wire.OK {
				return fmt.Errorf("sync: code %d", h.Err)
			}
			return nil
		}},
		{wire.OpExists, read.Encode, func(h wire.ReplyHeader, _ *wire.Reader) error {
			zxid = h.Zxid
			return nil
		}},
	})
	return zxid, err
}

// get reads the nodes at the paths; absent ones are nil.
func (w *readConn) get(ctx context.Context, paths []string) ([]*remoteNode, error) {
	nodes := make([]*remoteNode, len(paths))
	all := make([]request, len(paths))
	for i, path := range paths {
		q := wire.PathWatch{Path: w.chroot + path}
		all[i] = request{wire.OpGetData, q.Encode, func(h wire.ReplyHeader, r *wire.Reader) error {
			switch h.Err {
			case wire.OK:
			case wire.NoNode:
				return nil
			case wire.NoAuth:
				nodes[i] = &remoteNode{opaque: true}
				return nil
			default:
				return fmt.Errorf("read %s: code %d", path, h.Err)
			}
			data := slices.Clone(r.Buffer())
			var st wire.Stat
			st.Decode(r)
			t := &remoteNode{data: data, czxid: st.Czxid, mzxid: st.Mzxid, version: st.Version, aversion: st.Aversion, children: st.NumChildren, large: len(data) > maxImport}
			if tree.IsEphemeral(st.EphemeralOwner) {
				t.owner = st.EphemeralOwner
			}
			nodes[i] = t
			return r.Err()
		}}
	}
	return nodes, w.ask(ctx, all)
}

// acls reads the access lists of nodes; those of nodes that are gone, or say no more, stay
// unread.
func (w *readConn) acls(ctx context.Context, paths []string, nodes []*remoteNode) error {
	all := make([]request, len(paths))
	for i, path := range paths {
		q := wire.Path{Path: w.chroot + path}
		all[i] = request{wire.OpGetACL, q.Encode, func(h wire.ReplyHeader, r *wire.Reader) error {
			if h.Err != wire.OK {
				return nil
			}
			nodes[i].acl = wire.DecodeACLs(r)
			var st wire.Stat
			st.Decode(r)
			nodes[i].aversion = st.Aversion
			return r.Err()
		}}
	}
	return w.ask(ctx, all)
}

// below lists every path at and below top, parents first; none when it is not there.
func (w *readConn) below(ctx context.Context, top string) ([]string, error) {
	var found []string
	level := []string{top}
	for len(level) > 0 {
		var next []string
		all := make([]request, len(level))
		for i, path := range level {
			q := wire.PathWatch{Path: w.chroot + path}
			all[i] = request{wire.OpGetChildren, q.Encode, func(h wire.ReplyHeader, r *wire.Reader) error {
				switch h.Err {
				case wire.OK:
				case wire.NoNode:
					return nil
				case wire.NoAuth:
					found = append(found, path)
					return nil
				default:
					return fmt.Errorf("list %s: code %d", path, h.Err)
				}
				found = append(found, path)
				for _, name := range r.Strings() {
					next = append(next, path+"/"+name)
				}
				return r.Err()
			}}
		}
		if err := w.ask(ctx, all); err != nil {
			return nil, err
		}
		level = next
	}
	return found, nil
}
