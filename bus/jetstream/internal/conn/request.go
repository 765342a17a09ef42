package conn

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// ExpectHeader guards a publish with the last sequence of its own subject.
const ExpectHeader = "Nats-Expected-Last-Subject-Sequence"

// Ack is the server's answer to a publish or to a batch's commit.
type Ack struct {
	Error     *APIError `json:"error"`
	Stream    string    `json:"stream"`
	Seq       uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
	Batch     string    `json:"batch"`
	Count     int       `json:"count"`
}

// Request publishes and waits for the ack. An *APIError is the server's refusal, any
// other error an unknown outcome or none.
func (c *Conn) Request(ctx context.Context, m *nats.Msg) (*Ack, error) {
	ctx, cancel := c.WhileUp(ctx, RequestTimeout)
	defer cancel()
	reply, err := c.NATS.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, Failure(err)
	}
	var a Ack
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return nil, fmt.Errorf("publish on %s: the answer is no ack: %w", m.Subject, err)
	}
	if a.Error != nil {
		return nil, a.Error
	}
	if a.Stream == "" || a.Seq == 0 {
		return nil, fmt.Errorf("publish on %s: the answer %q is no ack", m.Subject, reply.Data)
	}
	return &a, nil
}

// Flush waits until the server has seen everything sent so far.
func (c *Conn) Flush(ctx context.Context) error {
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	return c.Retry(ctx, func(ctx context.Context) error {
		ctx, cancel := c.WhileUp(ctx, RequestTimeout)
		defer cancel()
		return Failure(c.NATS.FlushWithContext(ctx))
	})
}
