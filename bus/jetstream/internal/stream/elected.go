package stream

import (
	"context"
	"time"
)

const (
	// lookFirst is how long whoever waits for an ack waits before the leader is looked at, which most are spared.
	lookFirst = time.Second
	// lookLimit bounds one look, and lookPause is between two.
	lookLimit = time.Second
	lookPause = 200 * time.Millisecond
)

// UntilElected is ctx until an election is over that was seen while it lasted: the leader did not answer and now does, or
// it is another one. A cluster neither stores nor answers what is published while it elects, so that whoever waits
// for an ack then waits in vain; and what was stored is found. The look is over when the CancelFunc returns.
func (s Stream) UntilElected(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	t := time.AfterFunc(lookFirst, func() {
		defer close(over)
		s.elected(ctx)
		cancel()
	})
	return ctx, func() {
		cancel()
		if !t.Stop() {
			<-over
		}
	}
}

// elected returns once such an election is over, or ctx.
func (s Stream) elected(ctx context.Context) {
	leader, silent := "", false
	for looks := 0; ctx.Err() == nil; looks++ {
		now, err := s.leader(ctx)
		switch {
		case err != nil:
			silent = true
		case silent || looks > 0 && now != leader:
			return
		}
		leader = now
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
		}
	}
}

// leader is the server that leads the stream, "" outside of a cluster; it is asked once.
func (s Stream) leader(ctx context.Context) (string, error) {
	ctx, cancel := s.conn.WhileUp(ctx, lookLimit)
	defer cancel()
	st, err := s.conn.JS.Stream(ctx, s.name)
	if err != nil {
		return "", err
	}
	if c := st.CachedInfo().Cluster; c != nil {
		return c.Leader, nil
	}
	return "", nil
}
