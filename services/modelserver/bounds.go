package modelserver

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	maxBodies  = 64 << 20 // bytes of REST bodies being decoded at once
	maxCalls   = 1024     // gRPC calls at once, over all connections
	maxStreams = 256      // of them on one connection; more wait at the client
)

var errBodies = fmt.Errorf("requests of %d MiB are being read already; try again later, or send smaller batches", maxBodies>>20)

// metered reads one body and counts it against what all of them may have.
type metered struct {
	r     io.Reader
	all   *semaphore.Weighted
	taken int64
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if n > 0 && !m.all.TryAcquire(int64(n)) {
		return 0, errBodies
	}
	m.taken += int64(n)
	return n, err
}

// done gives back what was taken.
func (m *metered) done() { m.all.Release(m.taken) }

// calls refuses what is more than most calls at once, before their messages are read.
type calls struct {
	most int64
	now  atomic.Int64
}

func (c *calls) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if c.now.Add(1) > c.most {
		c.now.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls are being answered already; try again later", c.most)
	}
	context.AfterFunc(ctx, func() { c.now.Add(-1) }) // the call's own ctx: it ends with the call
	return ctx, nil
}
