package zkload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/internal/jute/zkwire"
)

// Notify has every session watch path, has one more session write to it, and returns how
// long after the write was sent the last session had heard; times over, each time anew.
func (c *Clients) Notify(ctx context.Context, writer *Clients, path string, data []byte, times int) ([]time.Duration, error) {
	if len(c.conns) == 0 || len(writer.conns) == 0 {
		return nil, errors.New("watching takes a session, and writing another one")
	}
	set := Request{jute.OpSetData, func(w *jute.Writer, _ int) {
		(&jute.SetDataRequest{Path: path, Data: data, Version: -1}).Encode(w)
	}}
	watch := Request{jute.OpGetData, func(w *jute.Writer, _ int) { (&jute.PathWatch{Path: path, Watch: true}).Encode(w) }}
	took := make([]time.Duration, 0, times)
	for range times {
		if _, err := c.Run(ctx, len(c.conns), 1, watch); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		heard := make([]time.Time, len(c.conns))
		g, ctx := errgroup.WithContext(ctx)
		for i, conn := range c.conns {
			g.Go(func() (err error) { heard[i], err = hear(conn, path); return err })
		}
		sent := time.Now()
		if _, err := writer.Run(ctx, 1, 1, set); err != nil {
			_ = c.Cut() // nobody will hear anything
			return nil, errors.Join(fmt.Errorf("write: %w", err), g.Wait())
		}
		if err := g.Wait(); err != nil {
			return nil, fmt.Errorf("hear: %w", err)
		}
		var last time.Duration
		for _, at := range heard {
			last = max(last, at.Sub(sent))
		}
		took = append(took, last)
	}
	return took, nil
}

func hear(c *zkwire.Conn, path string) (time.Time, error) {
	h, r, err := c.Next()
	at := time.Now()
	if err != nil {
		return at, err
	}
	var e jute.WatcherEvent
	e.Decode(r)
	if h.Xid != jute.XidNotification || r.Err() != nil || e.Path != path || e.Type != 3 {
		return at, fmt.Errorf("the change of %s was told as %+v %+v", path, h, e)
	}
	return at, nil
}
