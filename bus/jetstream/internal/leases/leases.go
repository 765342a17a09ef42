// Package leases says who may act: keys of a bucket that run out.
package leases

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/incarnation"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
)

// Bucket is the KV bucket of the leases. Its revisions are the epochs.
const Bucket = "MONOLITH_LEASES"

// The stream behind the bucket, and what its subjects begin with.
const (
	behind   = "KV_" + Bucket
	subjects = "$KV." + Bucket + "."
)

// pollLease bounds the wait for a lease that becomes free without our noticing.
const pollLease = time.Second

// Leases are keys of a bucket with a time to live of their own. The key's revision at
// its creation is the epoch: it rises with every holder, and renewals, which change the
// revision, do not change it. What a holder writes elsewhere is fenced by the epoch,
// not by the lease: a paused holder cannot know that it lost the lease. A holder whose process
// has ended on this machine, by kill -9 say, is not waited for.
type Leases struct{ conn *conn.Conn }

var _ bus.Leases = Leases{}

// New returns the leases; their bucket is there.
func New(c *conn.Conn) Leases { return Leases{c} }

// grant is a lease from its creation to its loss.
type grant struct {
	conn     *conn.Conn
	subject  string
	value    string // the holder, a word of its own, so that two grants are never equal, and its process
	ttl      time.Duration
	revision uint64    // of the last renewal; of the renewing goroutine only
	until    time.Time // our side of the lease's end: counted from before the request
	lost     chan struct{}
}

func (l Leases) TryAcquire(ctx context.Context, name, holder string, ttl time.Duration) (bus.Lease, func(), error) {
	if err := wire.CheckLease(name, holder, ttl); err != nil {
		return bus.Lease{}, nil, err
	}
	g := &grant{
		conn: l.conn, subject: subjects + wire.LeaseKey(name), value: strings.TrimSpace(holder + " " + rand.Text() + " " + incarnation.Self()),
		ttl: ttl.Truncate(time.Second), lost: make(chan struct{}),
	}
	if err := g.create(ctx); err != nil {
		return bus.Lease{}, nil, fmt.Errorf("lease %s: %w", name, err)
	}
	epoch := g.revision
	renew, stop := context.WithCancel(ctx)
	ended := context.AfterFunc(l.conn.Context(), stop)
	gone := make(chan struct{})
	started := l.conn.Spawn(func() {
		defer close(gone)
		defer ended()
		defer stop()
		g.keep(renew)
	})
	if !started {
		stop()
		return bus.Lease{}, nil, fmt.Errorf("lease %s: %w", name, l.conn.Over())
	}
	release := sync.OnceFunc(func() { stop(); <-gone })
	return bus.Lease{Name: name, Epoch: epoch, Lost: g.lost}, release, nil
}

func (l Leases) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (bus.Lease, func(), error) {
	if err := wire.CheckLease(name, holder, ttl); err != nil {
		return bus.Lease{}, nil, err
	}
	for {
		got, release, err := l.TryAcquire(ctx, name, holder, ttl)
		if err == nil || (!errors.Is(err, bus.ErrConflict) && !bus.Retryable(err)) {
			return got, release, err
		}
		if ctx.Err() != nil || l.conn.Context().Err() != nil {
			return bus.Lease{}, nil, fmt.Errorf("lease %s: %w: %w", name, bus.ErrUnavailable, errors.Join(ctx.Err(), context.Cause(l.conn.Context())))
		}
		l.await(ctx, name)
	}
}

// await returns when the lease may have become free.
func (l Leases) await(parent context.Context, name string) {
	ctx, cancel := context.WithTimeout(parent, pollLease)
	defer cancel()
	defer context.AfterFunc(l.conn.Context(), cancel)()
	kv, err := l.conn.JS.KeyValue(ctx, Bucket)
	if err != nil {
		<-ctx.Done()
		return
	}
	w, err := kv.Watch(ctx, wire.LeaseKey(name))
	if err != nil {
		<-ctx.Done()
		return
	}
	defer func() {
		if err := w.Stop(); err != nil {
			l.conn.Log.Debug("watch was gone already", "lease", name, "err", err)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				<-ctx.Done()
				return
			case e == nil: // everything up to now has been shown
			case e.Operation() != jetstream.KeyValuePut:
				return
			}
		}
	}
}

// create takes the lease when the key is absent, deleted or run out.
func (g *grant) create(ctx context.Context) error {
	ctx, cancel := g.conn.Bound(ctx)
	defer cancel()
	last := uint64(0)
	m, err := stream.Of(g.conn, behind).Ask(ctx, stream.Query{LastFor: g.subject})
	switch {
	case errors.Is(err, bus.ErrNotFound):
	case err != nil:
		return err
	case alive(m) && incarnation.Over(string(m.Data[bytes.LastIndexByte(m.Data, ' ')+1:])):
		g.conn.Log.Info("the process that held a lease has ended: the lease is taken over", "lease", g.subject)
		last = m.Seq
	case alive(m):
		return fmt.Errorf("%w: %s holds it", bus.ErrConflict, m.Data)
	default:
		last = m.Seq
	}
	return g.put(ctx, last)
}

// alive says whether the key's last message is a holder rather than a marker.
func alive(m *stream.Message) bool {
	return len(m.Header["KV-Operation"]) == 0 && len(m.Header["Nats-Marker-Reason"]) == 0
}

// put writes the key under the revision expected; its time to live starts anew. It is
// sent once: who repeated it could not tell its own success from another's.
func (g *grant) put(ctx context.Context, revision uint64) error {
	sent := time.Now()
	a, err := g.conn.Request(ctx, &nats.Msg{Subject: g.subject, Data: []byte(g.value), Header: nats.Header{
		conn.ExpectHeader: {strconv.FormatUint(revision, 10)},
		"Nats-TTL":        {g.ttl.String()},
	}})
	if err != nil {
		var api *conn.APIError
		if errors.As(err, &api) {
			return api.Sentinel()
		}
		return err
	}
	g.revision, g.until = a.Seq, sent.Add(g.ttl)
	return nil
}

// keep renews until ctx ends, a renewal is refused or the time is over; then it closes
// lost, and gives the key up if it is still ours.
func (g *grant) keep(ctx context.Context) {
	for {
		next := time.NewTimer(min(g.ttl/3, time.Until(g.until)))
		select {
		case <-ctx.Done():
			next.Stop()
			close(g.lost) // before anybody else can have it
			g.free()
			return
		case <-next.C:
		}
		if !g.renew(ctx) {
			close(g.lost)
			if ctx.Err() != nil {
				g.free()
			}
			return
		}
	}
}

// renew tries until it succeeds, is refused or the time is over.
func (g *grant) renew(ctx context.Context) bool {
	ctx, cancel := context.WithDeadline(ctx, g.until)
	defer cancel()
	pauses := conn.NewPauses()
	for {
		attempt, cancel := context.WithTimeout(ctx, max(g.ttl/3, 300*time.Millisecond))
		err := g.put(attempt, g.revision)
		cancel()
		switch {
		case err == nil:
			return true
		case errors.Is(err, bus.ErrConflict):
			if !g.mine(ctx) {
				g.conn.Log.Warn("lease is lost", "lease", g.subject, "err", err)
				return false
			}
		case !bus.Retryable(err):
			g.conn.Log.Warn("lease cannot be renewed", "lease", g.subject, "err", err)
		}
		if pauses.Wait(ctx) != nil {
			return false
		}
	}
}

// mine says whether the message the renewal stumbled over is a renewal of ours whose ack
// was lost, and goes on from it.
func (g *grant) mine(ctx context.Context) bool {
	m, err := stream.Of(g.conn, behind).Ask(ctx, stream.Query{LastFor: g.subject})
	if err != nil || !alive(m) || string(m.Data) != g.value || m.Seq <= g.revision {
		return false
	}
	g.revision = m.Seq
	return true
}

// free deletes the key if it is still ours; otherwise it runs out by itself. A renewal whose
// answer was not awaited any more may have come first.
func (g *grant) free() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := g.delete(ctx)
	var api *conn.APIError
	if errors.As(err, &api) && api.ErrCode == conn.CodeWrongLast && g.mine(ctx) {
		err = g.delete(ctx)
	}
	if err != nil {
		g.conn.Log.Debug("lease is left to run out", "lease", g.subject, "err", err)
	}
}

func (g *grant) delete(ctx context.Context) error {
	_, err := g.conn.Request(ctx, &nats.Msg{Subject: g.subject, Header: nats.Header{
		conn.ExpectHeader: {strconv.FormatUint(g.revision, 10)},
		"KV-Operation":    {"DEL"},
		"Nats-TTL":        {"60s"},
	}})
	return err
}
