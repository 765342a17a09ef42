// Package zkload puts load on a ZooKeeper server, Apache's or ours, with one lean client:
// sessions that keep a window of requests under way, and count nothing that was not
// answered as it should be.
package zkload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// sessionTimeout is what every session asks for; a run is shorter, so nobody pings.
const sessionTimeout = 40 * time.Second

// Patience bounds all requests of one run.
const Patience = 5 * time.Minute

// Request is the i-th request of a run.
type Request struct {
	Op   wire.Op
	Body func(w *wire.Writer, i int)
}

// Clients are sessions at one server.
type Clients struct{ conns []*client.Conn }

// Dial opens n sessions at addr, a few at a time.
func Dial(ctx context.Context, addr string, n int) (*Clients, error) {
	c := &Clients{conns: make([]*client.Conn, n)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range c.conns {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			conn, err := client.Dial(addr, wire.ConnectRequest{TimeoutMS: int32(sessionTimeout.Milliseconds()), Password: make([]byte, 16)}, Patience)
			if err == nil && conn.Session.SessionID == 0 {
				err = errors.Join(fmt.Errorf("the server at %s gives no session", addr), conn.Close())
			}
			if err != nil {
				return err
			}
			c.conns[i] = conn
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, c.Cut())
	}
	return c, nil
}

// Len is how many sessions there are.
func (c *Clients) Len() int { return len(c.conns) }

// Cut closes the connections; the sessions live on until they expire.
func (c *Clients) Cut() error {
	var errs []error
	for _, conn := range c.conns {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}

// Close ends the sessions, then the connections.
func (c *Clients) Close() error {
	_, err := c.each(context.Background(), len(c.conns), 1, Request{Op: wire.OpCloseSession})
	return errors.Join(err, c.Cut())
}

// Run makes n requests, split evenly over the sessions, each of which keeps window of
// them under way, and returns how long that took. The first answer with an error ends it.
func (c *Clients) Run(ctx context.Context, n, window int, q Request) (time.Duration, error) {
	return c.each(ctx, n, window, q)
}

func (c *Clients) each(ctx context.Context, n, window int, q Request) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for k, conn := range c.conns {
		if k >= n {
			break
		}
		g.Go(func() error {
			stop := context.AfterFunc(ctx, func() { _ = conn.Deadline(-time.Second) })
			defer stop()
			if err := conn.Deadline(Patience); err != nil {
				return err
			}
			if err := run(conn, k, len(c.conns), n, window, q); err != nil {
				return errors.Join(context.Cause(ctx), err)
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

// run makes the requests from, from+step and so on below n.
func run(c *client.Conn, from, step, n, window int, q Request) error {
	next, under := from, 0
	body := func(w *wire.Writer) {
		if q.Body != nil {
			q.Body(w, next)
		}
	}
	for next < n || under > 0 {
		if !c.More() {
			for ; next < n && under < window; next, under = next+step, under+1 {
				c.Send(q.Op, body)
			}
			if err := c.Flush(); err != nil {
				return err
			}
		}
		h, _, err := c.Next()
		if err != nil {
			return err
		}
		if h.Xid == wire.XidNotification {
			continue
		}
		if h.Err != wire.OK {
			return fmt.Errorf("request %d of kind %d was answered with %d", h.Xid, q.Op, h.Err)
		}
		under--
	}
	return nil
}
