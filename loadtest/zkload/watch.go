package zkload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// hearWithin bounds the time until the last session has heard of one change.
const hearWithin = 30 * time.Second

// Notify has every session watch path, has one more session write to it, and returns how
// long after the write was sent the last session's event had arrived; times over, each
// time anew. What the events say is checked when all are there.
func (c *Clients) Notify(ctx context.Context, writer *Clients, path string, data []byte, times int) (took []time.Duration, err error) {
	if len(c.conns) == 0 || len(writer.conns) == 0 {
		return nil, errors.New("watching takes a session, and writing another one")
	}
	socks := make([]net.Conn, len(c.conns))
	for i, conn := range c.conns {
		socks[i] = conn.Net()
	}
	a, err := newArrivals(socks)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	set := func(w *wire.Writer) { (&wire.SetDataRequest{Path: path, Data: data, Version: -1}).Encode(w) }
	watch := Request{wire.OpGetData, func(w *wire.Writer, _ int) { (&wire.PathWatch{Path: path, Watch: true}).Encode(w) }}
	setter := writer.conns[0]
	for range times {
		if _, err := c.Run(ctx, len(c.conns), 1, watch); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		if err := errors.Join(a.forget(), setter.Deadline(hearWithin)); err != nil {
			return nil, err
		}
		sent := time.Now()
		setter.Send(wire.OpSetData, set)
		if err := setter.Flush(); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		last, err := a.wait(sent.Add(hearWithin))
		if err != nil {
			return nil, fmt.Errorf("hear: %w", err)
		}
		took = append(took, last.Sub(sent))
		if h, _, err := setter.Next(); err != nil || h.Err != wire.OK {
			return nil, fmt.Errorf("write: answered with %d: %w", h.Err, err)
		}
		for _, conn := range c.conns {
			if err := heard(conn, path); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// heard reads the event that has arrived.
func heard(c *client.Conn, path string) error {
	h, r, err := c.Next()
	if err != nil {
		return err
	}
	var e wire.WatcherEvent
	e.Decode(r)
	if h.Xid != wire.XidNotification || r.Err() != nil || e.Path != path || e.Type != 3 {
		return fmt.Errorf("the change of %s was told as %+v %+v", path, h, e)
	}
	return nil
}
