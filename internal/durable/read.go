package durable

import (
	"context"
	"io"
)

// UntilDone reads from r as long as ctx lasts, so that a long copy ends when its context does.
func UntilDone(ctx context.Context, r io.Reader) io.Reader { return untilDone{ctx, r} }

type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
